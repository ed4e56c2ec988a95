"""A class: every student's outcomes and totals, from stored results and course.yml."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Literal

from twophase.grading.course import misspelt_misconceptions, reading
from twophase.grading.course.by_hand_file import read_manual, read_overrides
from twophase.grading.course.fields import absent
from twophase.grading.course.hand_in_times import read_times
from twophase.grading.course.roster_file import Student, read_roster
from twophase.grading.course.scheme import Scheme
from twophase.grading.results.grade import OTHER_TOPIC
from twophase.grading.results.records import Record
from twophase.grading.scores.dropping import highest_ratio
from twophase.grading.scores.outcome import Outcome, pending_reasons
from twophase.grading.scores.rubric import ZERO, ManualGrades, Rubric, make_rubric, require_bounds
from twophase.grading.scores.scoring import Scorer
from twophase.grading.scores.student_matching import by_student

EXCUSED = "excused, so it does not count"


@dataclass(frozen=True)
class Total:
    """A student with all outcomes. `graded`: all that is due is final; `none`: nothing counts yet;
    `pending`: `waiting` says for what."""

    student: Student
    outcomes: Mapping[str, Outcome]
    status: Literal["graded", "pending", "none"]
    points: Fraction = ZERO
    out_of: Fraction = ZERO
    waiting: tuple[str, ...] = ()

    @property
    def percent(self) -> Fraction | None:
        return 100 * self.points / self.out_of if self.status == "graded" else None


@dataclass(frozen=True)
class Gradebook:
    """The class. `strangers`: files of nobody in the roster. `notes`: for the instructor."""

    scheme: Scheme
    rubrics: Mapping[str, Rubric]
    totals: tuple[Total, ...]
    strangers: tuple[str, ...]
    notes: tuple[str, ...]
    lost: bool = False  # the grader failed on a file before it knew what it was

    @property
    def outcomes(self) -> list[Outcome]:
        return [o for t in self.totals for o in t.outcomes.values()]

    @property
    def faults(self) -> bool:
        """Whether the grader itself failed on something that counts."""
        return self.lost or any(o.fault for o in self.outcomes)

    @property
    def complete(self) -> bool:
        """Whether every student has a final grade for all that is due, and every file a student."""
        return not self.strangers and all(t.status != "pending" for t in self.totals)


@dataclass(frozen=True)
class CourseFiles:
    """What the files beside course.yml hold."""

    roster: tuple[Student, ...]
    manual: ManualGrades
    times: Mapping[str, datetime]


def load_course(path: Path) -> tuple[Scheme, CourseFiles]:
    """course.yml and the files that it names. Raises ValueError."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}; give the course's file to --course")
    scheme = reading.read_course(path)
    files = scheme.files
    roster = read_roster(files.roster.file, files.roster.key) if files.roster else []
    hand = read_manual(files.manual) if files.manual else []
    overrides = read_overrides(files.overrides) if files.overrides else []
    times = read_times(files.times, scheme.time_zone) if files.times else {}
    return scheme, CourseFiles(tuple(roster), ManualGrades(scheme, hand, overrides), times)


def make_gradebook(
    scheme: Scheme, beside: CourseFiles, records: Sequence[Record], now: datetime | None = None
) -> Gradebook:
    """Score a class; `records` in any order. Raises ValueError if course.yml contradicts them."""
    notes: list[str] = []
    by_topic: dict[str, list[Record]] = {topic: [] for topic in scheme.assignments}
    for record in sorted(records, key=lambda r: str(r["file"])):
        by_topic.setdefault(_topic(scheme, record), []).append(record)
    made = [make_rubric(scheme, a, by_topic[t], notes) for t, a in scheme.assignments.items()]
    rubrics = {rubric.assignment.topic: rubric for rubric in made if rubric}
    require_bounds(rubrics.values(), beside.manual, [r["digests"]["submission"] for r in records])
    handed_in, strangers, doubts = by_student(scheme, beside.roster, by_topic)
    notes += doubts
    students, inside = _students(scheme, beside, handed_in), _inside_others(handed_in)
    scorer = Scorer(scheme, beside.manual, beside.times, now or datetime.now(UTC))
    totals = []
    for student in students:
        who, nowhere = student.key, handed_in.get((student.key, ""), [])
        # what cannot be read and does not say of what it is may be of any that is not there
        theirs = {t: handed_in.get((who, t), nowhere) for t in rubrics}
        if all((who, t) in handed_in for t in rubrics):
            notes += [f"{r['file']}: of no assignment, as it seems: passed over." for r in nowhere]
        outcomes = {t: scorer.outcome(who, rubric, theirs[t]) for t, rubric in rubrics.items()}
        for t, found in outcomes.items():
            if found.status == "missing" and (who, t) in inside:
                outcomes[t] = found.waiting_for(inside[who, t])
        totals.append(_total(student, outcomes, scheme))
    notes += [*_useless_excusals(scheme, rubrics), *_notes(scheme, beside, by_topic)]
    lost = any(r["status"] == "internal" for r in by_topic.get("", []))
    return Gradebook(scheme, rubrics, tuple(totals), tuple(strangers), tuple(notes), lost)


def _inside_others(
    handed_in: Mapping[tuple[str, str], Sequence[Record]],
) -> dict[tuple[str, str], str]:
    """By student and assignment: a sentence where exercises of it are inside a notebook of another
    one. Nobody has looked at these, so they are no zero."""
    return {
        (who, flag["where"]): f"{record['file']} has exercises of it inside, which were not graded:"
        " ask for them as a notebook of their own, or give points by hand"
        for (who, _), records in handed_in.items()
        for record in records
        for flag in record["flags"]
        if flag["name"] == OTHER_TOPIC
    }


def _topic(scheme: Scheme, record: Record) -> str:
    """The assignment of a record. A file that cannot be read says none: then its name may."""
    topic = str(record["topic"])
    if topic or len(scheme.assignments) == 1:
        return topic or next(iter(scheme.assignments))
    parts = reversed(str(record["file"]).split("/"))
    return next(
        (t for p in parts for t in sorted(scheme.assignments, key=len, reverse=True) if t in p), ""
    )


def _students(
    scheme: Scheme, beside: CourseFiles, handed_in: Iterable[tuple[str, str]]
) -> list[Student]:
    """The roster, or else whoever handed in or is named. Raises ValueError for other names."""
    roster = list(beside.roster)
    grouped = {m for g in scheme.groups.values() for m in g.members}
    if not roster:
        named = {e.student for e in scheme.exceptions} | {h.who for h in beside.manual.hand}
        keys = {who for who, _ in handed_in} | grouped | (named - set(scheme.groups))
        roster = [Student(k) for k in sorted(keys)]
    known = {s.key for s in roster}
    for member in sorted(grouped):
        scheme.require(member, known, f"{scheme.path}: groups")
    for e in scheme.exceptions:
        scheme.require(e.student, known, f"{scheme.path}: {e.where}.student")
    for h in beside.manual.hand:
        scheme.require(h.who, known, f"{h.where}: student")
    return sorted(roster, key=lambda s: (s.name.casefold() or s.key.casefold(), s.key))


def _total(student: Student, outcomes: dict[str, Outcome], scheme: Scheme) -> Total:
    waiting = pending_reasons(outcomes.values())
    if waiting:
        return Total(student, outcomes, "pending", waiting=waiting)
    there = [t for t, o in outcomes.items() if o.points is not None]
    if all(outcomes[t].free for t in there):  # nothing yet, or excused from everything
        for topic in there:
            outcomes[topic] = replace(outcomes[topic], counted=False).noting(EXCUSED)
        return Total(student, outcomes, "none")
    items = [outcomes[t].weighted for t in there]
    kept = {there[n] for n in highest_ratio(items, scheme.drop_lowest)}
    for topic in there:
        o = outcomes[topic]
        if topic not in kept:
            why = EXCUSED if o.free else "dropped"
            outcomes[topic] = replace(o, counted=False).noting(why)
        elif o.free:
            outcomes[topic] = o.noting("counts all the same, because it helps")
    points = sum((outcomes[t].points or ZERO for t in kept), ZERO)
    return Total(student, outcomes, "graded", points, sum((outcomes[t].worth for t in kept), ZERO))


def _useless_excusals(scheme: Scheme, rubrics: Mapping[str, Rubric]) -> Iterator[str]:
    """A sentence for each that is of an exercise which its assignment does not have."""
    for e in scheme.excused:
        known = [s.id for s in rubrics[e.assignment].items] if e.assignment in rubrics else []
        if e.exercise and known and e.exercise not in known:
            yield f"{scheme.path}: {e.where}.exercise: {absent('exercise', e.exercise, known)}"


def _notes(scheme: Scheme, beside: CourseFiles, by_topic: Mapping[str, list[Record]]) -> list[str]:
    """What had no effect, or more than meant: other topics' results, overrides of none or many."""
    found = misspelt_misconceptions.unknown_names(scheme)
    found += [
        f"{t}: {len(records)} results of it are stored, and it is not in course.yml: not counted."
        for t, records in by_topic.items()
        if t and t not in scheme.assignments
    ]
    stored = [r for records in by_topic.values() for r in records]
    digests = [r["digests"]["submission"] for r in stored]
    if lost := sorted(set(beside.times) - {r["file"] for r in stored} - set(digests)):
        of = f"{len(lost):,} of {len(beside.times):,} names"
        found.append(f"{scheme.files.times}: no stored file has {of}, such as {lost[0]!r}.")
    for o in beside.manual.overrides:
        n = sum(d.startswith(o.digest) for d in digests)
        if n != 1:
            many = f"{n} files have this digest: it holds for all"
            found.append(f"{o.where}: {many if n else 'no file has this digest now'}.")
    return found
