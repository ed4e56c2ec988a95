"""From stored results to one student's score in one assignment: which submission counts, lateness,
excusals, what is still pending."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Literal

from twophase.grading.course.deadlines import Due, human, read_time
from twophase.grading.course.lateness import Late
from twophase.grading.course.scheme import Scheme
from twophase.grading.results.records import Record
from twophase.grading.scores.dropping import Weighted, highest_ratio, ratio
from twophase.grading.scores.rubric import (
    ZERO,
    ExerciseScore,
    ManualGrades,
    Rubric,
    exercise_scores,
    points_text,
)

Status = Literal["graded", "missing", "open", "excused", "pending"]


@dataclass(frozen=True)
class Outcome:
    """A student's score in an assignment.

    `points` is None for `open` (may still be handed in), `excused` and `pending` (`waiting` says
    for what); otherwise it is out of `worth`, after lateness, which cost `cost`. `free`: excused,
    so it counts only if it helps. `counted` False: left out of the total.
    """

    student: str
    topic: str
    status: Status
    worth: Fraction
    points: Fraction | None = None
    exercises: tuple[ExerciseScore, ...] = ()
    file: str = ""
    handed_in: datetime | None = None
    late: Late = field(default_factory=Late)
    cost: Fraction = ZERO
    waiting: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    free: bool = False
    counted: bool = True
    fault: bool = False  # it waits for the grader, not for a person

    def noting(self, *notes: str) -> Outcome:
        return replace(self, notes=(*self.notes, *notes))


@dataclass(frozen=True)
class Scorer:
    """Everything that one student's score depends on. `now`: what is not handed in by then may be
    missing."""

    scheme: Scheme
    manual: ManualGrades
    times: Mapping[str, datetime]
    now: datetime

    def outcome(self, student: str, rubric: Rubric, attempts: Sequence[Record]) -> Outcome:
        """The score of one student in one assignment."""
        due, extension = self.scheme.due_for(student, rubric.assignment)
        found = self._choose(student, rubric, attempts, due)
        if extension is not None and due is not None:
            why = f" ({extension.because})" if extension.because else ""
            found = found.noting(f"extended to {due}{why}")
        topic = rubric.assignment.topic
        excusal = self.scheme.excusal(student, topic)
        regular = [s.id for s in rubric.items if not s.rule.extra]
        if excusal or all(self.scheme.excusal(student, topic, i) for i in regular):
            why = f": {excusal.because}" if excusal and excusal.because else ""
            kept = found.points if found.status == "graded" else None
            found = replace(
                found, status="excused", points=kept, free=True, waiting=(), fault=False
            ).noting(f"excused{why}")
        return found

    def _choose(
        self, student: str, rubric: Rubric, attempts: Sequence[Record], due: Due | None
    ) -> Outcome:
        """The outcome of the submission that counts."""
        if not attempts:
            return self._nothing(student, rubric, due)
        tried = [self._attempt(student, rubric, record, due) for record in attempts]
        readable = [o for o in tried if not _unread(o)]
        passed = [f"{o.file} cannot be read: passed over" for o in tried if readable and _unread(o)]
        digests = {r["file"]: r["digests"]["submission"] for r in attempts}
        chosen = self._one_of(readable or tried, digests)
        others = len(readable or tried) - 1
        counts = self.scheme.submissions.counts
        guesses = "" if counts == "latest" else ", each of them another guess"
        if others and chosen.file:
            passed.append(f"{counts} of {others + 1} submissions{guesses}: {chosen.file}")
        return chosen.noting(*passed)

    def _one_of(self, tried: Sequence[Outcome], digests: Mapping[str, str]) -> Outcome:
        if self.scheme.submissions.counts == "latest":
            versions = {digests[o.file] for o in tried}
            if len(versions) > 1 and any(o.handed_in is None for o in tried):
                files = ", ".join(o.file for o in tried)
                waits = (
                    f"which of {files} is the latest is not known: give files.times (with counts:"
                    " best whoever hands in several has as many guesses)"
                )
                return _pending(tried[0], waits)
            return max(tried, key=lambda o: (_when(o), o.file))
        waiting = sorted(
            (o for o in tried if o.status == "pending"), key=lambda o: (not o.fault, o.file)
        )
        if waiting:
            return waiting[0]
        return max(tried, key=lambda o: (o.points or ZERO, -_when(o).timestamp(), o.file))

    def _nothing(self, student: str, rubric: Rubric, due: Due | None) -> Outcome:
        """No submission: not due yet, missing, or graded by hand alone."""
        topic, worth = rubric.assignment.topic, rubric.worth
        made = tuple(exercise_scores(student, rubric, None, self.manual))
        begun = any(c.status == "by hand" for c in made)
        if not begun and due is not None and self.now < rubric.assignment.late.last(due).end:
            return Outcome(student, topic, "open", worth, notes=(f"not handed in; due {due}",))
        if begun or rubric.only_by_hand:
            return self._scored(Outcome(student, topic, "graded", worth, exercises=made), rubric)
        return Outcome(student, topic, "missing", worth, ZERO, made, notes=("not handed in",))

    def _attempt(self, student: str, rubric: Rubric, record: Record, due: Due | None) -> Outcome:
        """One submission as if it were the only one."""
        made = tuple(exercise_scores(student, rubric, record, self.manual))
        plain = Outcome(
            student,
            rubric.assignment.topic,
            "graded",
            rubric.worth,
            exercises=made,
            file=record["file"],
            handed_in=self.when(record),
        )
        whole = self.manual.override(record, "")
        if whole:
            _require_worth(whole.points, rubric, whole.where)
            return replace(plain, points=whole.points, exercises=()).noting(
                f"set by hand: {whole.because}"
            )
        scored = self._scored(plain, rubric)
        rule = rubric.assignment.late
        if due is None or scored.status == "pending":
            return scored
        if scored.handed_in is None:
            waits = f"when {record['file']} was handed in is not known: give files.times"
            return _pending(scored, waits) if rule.can_cost and scored.points else scored
        late = rule.lateness(due, scored.handed_in)
        if late == Late() or scored.points is None:
            return scored
        left = rule.left(scored.points, rubric.worth, late)
        return replace(scored, points=left, late=late, cost=scored.points - left)

    def _scored(self, outcome: Outcome, rubric: Rubric) -> Outcome:
        """The outcome with its points, lowest exercises dropped, before lateness; pending if a cell
        is."""
        made = [replace(c, kept=not (c.excused and c.points is None)) for c in outcome.exercises]
        waiting = tuple(dict.fromkeys(c.note for c in made if c.kept and c.points is None))
        if waiting:
            fault = any(c.status == "internal" for c in made)
            return replace(outcome, status="pending", points=None, waiting=waiting, fault=fault)
        there = [n for n, c in enumerate(made) if c.kept]
        if all(made[n].item.rule.extra for n in there):
            return replace(outcome, status="excused", points=None)
        items = [_weighted(made[n]) for n in there]
        kept = highest_ratio(items, rubric.assignment.drop_lowest)
        chosen = {there[k] for k in kept}
        made = [replace(c, kept=n in chosen) for n, c in enumerate(made)]
        points = ratio([items[k] for k in sorted(kept)]) * rubric.worth
        left = [f"{c.item.id}: {'excused' if c.excused else 'dropped'}" for c in made if not c.kept]
        return replace(outcome, points=points, exercises=tuple(made)).noting(*left)

    def when(self, record: Record) -> datetime | None:
        """When a submission was handed in: `submitted` in its record, or the table of times.

        What is no time there counts as none: one person's cannot end the reckoning of a class.
        """
        said = record.get("submitted")
        if isinstance(said, str) and said:
            with contextlib.suppress(ValueError):
                return read_time(said, self.scheme.time_zone)
        found = self.times.get(record["file"]) or self.times.get(record["digests"]["submission"])
        return found.astimezone(UTC) if found else None


def _weighted(cell: ExerciseScore) -> Weighted:
    out_of = ZERO if cell.item.rule.extra else cell.item.out_of
    return Weighted(cell.points or ZERO, out_of, cell.excused)


def _unread(outcome: Outcome) -> bool:
    return any(c.status == "unreadable" for c in outcome.exercises)


def _when(outcome: Outcome) -> datetime:
    return outcome.handed_in or datetime(1990, 1, 1, tzinfo=UTC)


def _pending(outcome: Outcome, waits: str) -> Outcome:
    return replace(outcome, status="pending", points=None, waiting=(*outcome.waiting, waits))


def _require_worth(points: Fraction, rubric: Rubric, where: str) -> None:
    if points > rubric.worth and not any(s.rule.extra for s in rubric.items):
        raise ValueError(
            f"{where}: {points_text(points)} points are more than the"
            f" {points_text(rubric.worth)} of {rubric.assignment.topic}"
        )


def lateness_text(outcome: Outcome) -> str:
    """`1 day 3 h late, cost 2 points`; empty if it was on time."""
    if outcome.late == Late():
        return ""
    how = f"{human(outcome.late.by)} late"
    if not outcome.late.accepted:
        return f"{how}, after the cutoff: {points_text(outcome.cost)} points lost"
    cost = f"{points_text(outcome.cost)} points" if outcome.cost else "nothing"
    return f"{how}, cost {cost}"


def pending_reasons(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    """What keeps a total from being final."""
    pending = (o for o in outcomes if o.status == "pending")
    return tuple(dict.fromkeys(f"{o.topic}: {w}" for o in pending for w in o.waiting))
