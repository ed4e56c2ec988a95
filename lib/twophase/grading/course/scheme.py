"""What `course.yml` says: assignments, points, deadlines, who has more time. reading.py reads
it, example/ explains it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

from twophase.grading.course.deadlines import Due, Duration, LateRule
from twophase.grading.course.fields import nearest

CountsPolicy = Literal["best", "latest"]
UnreadablePolicy = Literal["pending", "zero"]
# an answer that is right only without the notebook's other cells
RightAlonePolicy = Literal["counts", "pending"]


@dataclass(frozen=True)
class Partial:
    """Points for an answer that is not right, as shares of the exercise's: the larger one counts.

    `cases` times the share of the cases, among those that are never shown, that are right; and one
    share for each misconception named.
    """

    cases: Fraction = Fraction(0)
    misconceptions: Mapping[str, Fraction] = field(default_factory=dict)


@dataclass(frozen=True)
class ExerciseRule:
    """How an exercise counts. `points` None: what its check says. `extra`: it adds points, not to
    the maximum."""

    points: Fraction | None = None
    partial: Partial = field(default_factory=Partial)
    extra: bool = False
    by_hand: bool = False
    title: str = ""


@dataclass(frozen=True)
class Assignment:
    """One notebook to hand in. `exercises` None: all that its results have. `points` None: the sum
    of its exercises'."""

    topic: str
    title: str
    due: Due | None = None
    late: LateRule = field(default_factory=LateRule)
    points: Fraction | None = None
    exercises: Mapping[str, ExerciseRule] | None = None
    by_hand: Mapping[str, ExerciseRule] = field(default_factory=dict)
    partial: Partial = field(default_factory=Partial)
    drop_lowest: int = 0
    canvas: str = ""


@dataclass(frozen=True)
class Extension:
    """More time for one student or group in one assignment: until a time, or by a duration."""

    who: str
    topic: str
    until: Due | None = None
    by: Duration | None = None
    because: str = ""
    where: str = ""

    def of(self, due: Due) -> Due:
        return self.until if self.until is not None else due.after(self.by or Duration())


@dataclass(frozen=True)
class Excusal:
    """A student (or group) need not do an assignment, or one exercise of it."""

    who: str
    topic: str
    exercise: str = ""
    because: str = ""
    where: str = ""


@dataclass(frozen=True)
class Group:
    """Students who hand in together, in all assignments or in some."""

    name: str
    members: tuple[str, ...]
    topics: tuple[str, ...] = ()

    def covers(self, topic: str) -> bool:
        return not self.topics or topic in self.topics


@dataclass(frozen=True)
class Files:
    """The files beside course.yml that it names; None where it names none."""

    roster: Path | None = None
    roster_key: str = ""
    manual: Path | None = None
    overrides: Path | None = None
    times: Path | None = None


def _stem(name: str) -> str:
    """`ann` of the folder `ann`, of `ann.ipynb`, and of the zip `ann.zip`."""
    return name.removesuffix(".zip").removesuffix(".ipynb")


@dataclass(frozen=True)
class Scheme:
    """All of course.yml."""

    title: str
    zone: ZoneInfo
    assignments: Mapping[str, Assignment]
    counts: CountsPolicy = "latest"
    unreadable: UnreadablePolicy = "pending"
    right_alone: RightAlonePolicy = "counts"
    student: re.Pattern[str] | Literal["folder", "file"] = "folder"
    drop_lowest: int = 0
    groups: tuple[Group, ...] = ()
    extensions: tuple[Extension, ...] = ()
    excused: tuple[Excusal, ...] = ()
    files: Files = field(default_factory=Files)
    path: Path = Path("course.yml")

    def student_of(self, file: str) -> str | None:
        """Whose file this is, by its path; None if the rule finds nobody in it."""
        parts = file.split("/")
        if self.student == "file":
            return _stem(parts[-1])
        if self.student == "folder":
            return _stem(parts[0])
        found = self.student.search(file)
        return found["student"] if found and found["student"] else None

    def group_of(self, who: str, topic: str) -> Group | None:
        """The group that a student is in, or that has this name, for this assignment."""
        return next(
            (g for g in self.groups if g.covers(topic) and (who in g.members or who == g.name)),
            None,
        )

    def members(self, who: str, topic: str) -> tuple[str, ...]:
        """The students that a student's or group's work counts for."""
        group = self.group_of(who, topic)
        return group.members if group else (who,)

    def means(self, who: str, student: str, topic: str) -> bool:
        """Whether `who`, a student or a group's name, means this student."""
        return who == student or any(
            g.name == who and student in g.members and g.covers(topic) for g in self.groups
        )

    def due_for(self, student: str, assignment: Assignment) -> tuple[Due | None, Extension | None]:
        """A student's own deadline, and the extension that made it so; the latest if there are
        several."""
        due, found = assignment.due, None
        if due is None:
            return None, None
        for extension in self.extensions:
            if extension.topic == assignment.topic and self.means(
                extension.who, student, assignment.topic
            ):
                longer = extension.of(assignment.due or due)
                if longer.end > due.end:
                    due, found = longer, extension
        return due, found

    def excusal(self, student: str, topic: str, exercise: str = "") -> Excusal | None:
        """What excuses a student from this exercise, or (without one) from the whole assignment."""
        fits = (e for e in self.excused if e.topic == topic and e.exercise == exercise)
        return next((e for e in fits if self.means(e.who, student, topic)), None)

    def require(self, who: str, known: set[str], where: str) -> None:
        """Raise ValueError unless `who` is a student or a group."""
        if who not in known and all(g.name != who for g in self.groups):
            everyone = known | {g.name for g in self.groups}
            near = (
                nearest(who, everyone)
                if len(everyone) <= 20 or "mean" in nearest(who, everyone)
                else ""
            )
            raise ValueError(f"{where}: there is no student or group {who!r}{near}")
