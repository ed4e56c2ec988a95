"""What `course.yml` says: assignments, points, deadlines, who has more time. The types of the
fields say how each is written; reading.py reads it, example/ explains it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, ValidationInfo

from twophase.grading.course.deadlines import Due
from twophase.grading.course.extensions import Excusal, Extension
from twophase.grading.course.fields import (
    FROM_ABOVE,
    KEY,
    MAPPING,
    Mistake,
    Value,
    entries,
    nearest,
    shorthand,
)
from twophase.grading.course.lateness import LateRule
from twophase.grading.course.values import (
    UTC,
    Beside,
    CanvasNumber,
    Deadline,
    Names,
    Points,
    Share,
    Text,
    TimeZone,
    Title,
    Topic,
    Whole,
    Whose,
    YesNo,
)


@dataclass(frozen=True)
class Partial:
    """Points for an answer that is not right, as shares of the exercise's: the larger one counts.

    `cases` times the share of the cases, among those that are never shown, that are right; and one
    share for each misconception named.
    """

    cases: Share = Fraction(0)
    misconceptions: Annotated[Mapping[str, Share], MAPPING] = field(default_factory=dict)


@dataclass(frozen=True)
class ExerciseRule:
    """How an exercise counts. `points` None: as its check says. `extra`: beyond the maximum."""

    points: Points | None = None
    partial: Annotated[Partial, MAPPING] = field(default_factory=Partial)
    extra: YesNo = False
    by_hand: Annotated[bool, FROM_ABOVE] = False
    title: Text = ""

    def __post_init__(self) -> None:
        if self.by_hand and self.points is None:
            raise Mistake(
                "is missing; a cell graded by hand has no check that knows them", "points"
            )
        if self.by_hand and self.partial != Partial():
            raise Mistake("is for exercises with a check only", "partial")


def _rules(value: Value, info: ValidationInfo) -> Value:
    """Exercises by their ids: `id: 4`, or `id:` with points, extra, title, partial below it."""
    if info.field_name == "by_hand":
        return entries(value, lambda _: {KEY: True}, "points")
    partial = info.data.get("partial", Partial())
    return entries(value, lambda _: {"partial": partial}, "points")


Rules = Annotated[Mapping[str, ExerciseRule], BeforeValidator(_rules)]


@dataclass(frozen=True)
class Assignment:
    """A notebook to hand in. `exercises` None: all in its results. `points` None: their sum."""

    topic: Annotated[Topic, FROM_ABOVE]
    title: Title
    due: Deadline | None = None
    late: Annotated[LateRule, MAPPING] = field(default_factory=LateRule)
    points: Points | None = None
    partial: Annotated[Partial, MAPPING] = field(default_factory=Partial)
    exercises: Rules | None = None
    by_hand: Rules = field(default_factory=dict)
    drop_lowest: Whole = 0
    canvas: CanvasNumber = ""

    def __post_init__(self) -> None:
        for twice in set(self.exercises or ()) & set(self.by_hand):
            raise Mistake(f"{twice!r} is under exercises too", "by_hand")
        rules = (*(self.exercises or {}).values(), *self.by_hand.values())
        if self.exercises is not None and all(rule.extra for rule in rules):
            instead = "name at least one that is not extra credit"
            raise Mistake(f"nothing here counts towards the maximum; {instead}", "exercises")


def _assignments(value: Value, info: ValidationInfo) -> Value:
    """Assignments by their topics; what they do not say themselves is as for the whole course."""
    course = {n: info.data[n] for n in ("late", "partial") if n in info.data}
    return entries(value, lambda topic: course | {"title": topic.replace("_", " "), KEY: topic})


def _numbered(value: Value, info: ValidationInfo) -> Value:
    """The rows of a list with their places in the file."""
    if not isinstance(value, list):
        return value or []
    return [
        row | {KEY: f"{info.field_name}[{n}]"} if isinstance(row, dict) else row
        for n, row in enumerate(value, 1)
    ]


@dataclass(frozen=True)
class Group:
    """Students who hand in together, in all assignments or in some."""

    name: Annotated[str, FROM_ABOVE]
    members: Names
    assignments: Names = ()

    def covers(self, topic: str) -> bool:
        return not self.assignments or topic in self.assignments


def _groups(value: Value) -> Value:
    """Groups by their names: `team: [ann, bob]`, or `team:` with members and assignments."""
    return entries(value, lambda name: {KEY: name}, "members")


@dataclass(frozen=True)
class RosterFile:
    """The file that lists the students; `key` names the column that tells them apart."""

    file: Beside
    key: Text = ""


@dataclass(frozen=True)
class Files:
    """The files beside course.yml that it names; None where it names none."""

    roster: Annotated[RosterFile | None, BeforeValidator(shorthand("file"))] = None
    manual: Beside | None = None
    overrides: Beside | None = None
    times: Beside | None = None


@dataclass(frozen=True)
class Submissions:
    """Whose a file is, and which of several count. `right_alone`: an answer that is right only
    without the notebook's other cells."""

    student: Whose = "folder"
    counts: Literal["best", "latest"] = "latest"
    unreadable: Literal["pending", "zero"] = "pending"
    right_alone: Literal["counts", "pending"] = "counts"


@dataclass(frozen=True)
class Scheme:
    """All of course.yml."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    course: Text = "Course"
    time_zone: TimeZone = UTC
    late: Annotated[LateRule, MAPPING] = field(default_factory=LateRule)
    partial: Annotated[Partial, MAPPING] = field(default_factory=Partial)
    submissions: Annotated[Submissions, MAPPING] = field(default_factory=Submissions)
    assignments: Annotated[Mapping[str, Assignment], BeforeValidator(_assignments)] = field(
        default_factory=dict
    )
    drop_lowest: Whole = 0
    groups: Annotated[Mapping[str, Group], BeforeValidator(_groups)] = field(default_factory=dict)
    extensions: Annotated[Sequence[Extension], BeforeValidator(_numbered)] = ()
    excused: Annotated[Sequence[Excusal], BeforeValidator(_numbered)] = ()
    files: Annotated[Files, MAPPING] = field(default_factory=Files)
    path: Annotated[Path, FROM_ABOVE] = Path("course.yml")

    @property
    def exceptions(self) -> tuple[Extension | Excusal, ...]:
        """What the file says of single people."""
        return (*self.extensions, *self.excused)

    def group_of(self, who: str, topic: str) -> Group | None:
        """The group that a student is in, or that has this name, for this assignment."""
        mine = (g for g in self.groups.values() if who in g.members or who == g.name)
        return next((g for g in mine if g.covers(topic)), None)

    def members(self, who: str, topic: str) -> tuple[str, ...]:
        """The students that a student's or group's work counts for."""
        group = self.group_of(who, topic)
        return group.members if group else (who,)

    def means(self, who: str, student: str, topic: str) -> bool:
        """Whether `who`, a student or a group's name, means this student."""
        return who == student or any(
            g.name == who and student in g.members and g.covers(topic) for g in self.groups.values()
        )

    def due_for(self, student: str, assignment: Assignment) -> tuple[Due | None, Extension | None]:
        """A student's own deadline, the latest of several, and the extension that made it so."""
        topic, regular = assignment.topic, assignment.due
        if regular is None:
            return None, None
        theirs = (e for e in self.extensions if e.assignment == topic)
        longer = [(e.of(regular), e) for e in theirs if self.means(e.student, student, topic)]
        due, extension = max(longer, key=lambda found: found[0].end, default=(regular, None))
        return (due, extension) if due.end > regular.end else (regular, None)

    def excusal(self, student: str, topic: str, exercise: str = "") -> Excusal | None:
        """What excuses a student from this exercise, or (without one) from the whole assignment."""
        fits = (e for e in self.excused if e.assignment == topic and e.exercise == exercise)
        return next((e for e in fits if self.means(e.student, student, topic)), None)

    def require(self, who: str, known: set[str], where: str) -> None:
        """Raise ValueError unless `who` is a student or a group."""
        everyone = known | set(self.groups)
        if who not in everyone:
            near = nearest(who, everyone, most=20)
            raise ValueError(f"{where}: there is no student or group {who!r}{near}")
