"""From stored results to a student's outcome in an assignment: lateness, excusals, what waits."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from twophase.grading.course.deadlines import Due, read_time
from twophase.grading.course.lateness import Late
from twophase.grading.course.scheme import Scheme
from twophase.grading.results.records import Record
from twophase.grading.scores.dropping import highest_ratio, ratio
from twophase.grading.scores.outcome import Outcome
from twophase.grading.scores.rubric import (
    ZERO,
    ManualGrades,
    Rubric,
    exercise_scores,
    require_at_most,
)
from twophase.grading.scores.which_counts import which_counts


@dataclass(frozen=True)
class Scorer:
    """All that a student's score depends on. `now`: what has not come by then may be missing."""

    scheme: Scheme
    manual: ManualGrades
    times: Mapping[str, datetime]
    now: datetime

    def outcome(self, student: str, rubric: Rubric, attempts: Sequence[Record]) -> Outcome:
        """The score of one student in one assignment."""
        due, extension = self.scheme.due_for(student, rubric.assignment)
        if attempts:
            tried = [self._attempt(student, rubric, record, due) for record in attempts]
            digests = {r["file"]: r["digests"]["submission"] for r in attempts}
            found = which_counts(tried, digests, self.scheme.submissions.counts)
        else:
            found = self._nothing(student, rubric, due)
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

    def _nothing(self, student: str, rubric: Rubric, due: Due | None) -> Outcome:
        """No submission: not due yet, missing, or graded by hand alone."""
        topic, worth = rubric.assignment.topic, rubric.worth
        made = exercise_scores(student, rubric, None, self.manual)
        begun = any(c.status == "by hand" for c in made)
        if not begun and due is not None and self.now < rubric.assignment.late.last(due).end:
            return Outcome(student, topic, "open", worth, notes=(f"not handed in; due {due}",))
        if begun or rubric.only_by_hand:
            return self._scored(Outcome(student, topic, "graded", worth, exercises=made), rubric)
        return Outcome(student, topic, "missing", worth, ZERO, made, notes=("not handed in",))

    def _attempt(self, student: str, rubric: Rubric, record: Record, due: Due | None) -> Outcome:
        """One submission as if it were the only one."""
        made = exercise_scores(student, rubric, record, self.manual)
        topic, file, when = rubric.assignment.topic, record["file"], self.when(record)
        plain = Outcome(student, topic, "graded", rubric.worth, None, made, file, when)
        whole = self.manual.override(record, "")
        if whole:
            if not any(s.rule.extra for s in rubric.items):
                require_at_most(whole.points, rubric.worth, plain.topic, whole.where)
            return replace(plain, points=whole.points, exercises=()).noting(
                f"set by hand: {whole.because}"
            )
        scored = self._scored(plain, rubric)
        rule = rubric.assignment.late
        if due is None or scored.status == "pending":
            return scored
        if scored.handed_in is None:
            waits = f"when {record['file']} was handed in is not known: give files.times"
            return scored.waiting_for(waits) if rule.can_cost and scored.points else scored
        late = rule.lateness(due, scored.handed_in)
        if late == Late() or scored.points is None:
            return scored
        left = rule.left(scored.points, rubric.worth, late)
        return replace(scored, points=left, late=late, cost=scored.points - left)

    def _scored(self, outcome: Outcome, rubric: Rubric) -> Outcome:
        """The outcome with its points, lowest dropped, before lateness; pending if a cell is."""
        made = [replace(c, kept=not (c.excused and c.points is None)) for c in outcome.exercises]
        waiting = tuple(dict.fromkeys(c.note for c in made if c.kept and c.points is None))
        if waiting:
            fault = any(c.status == "internal" for c in made)
            return replace(outcome, status="pending", points=None, waiting=waiting, fault=fault)
        there = [n for n, c in enumerate(made) if c.kept]
        if all(made[n].item.rule.extra for n in there):
            return replace(outcome, status="excused", points=None)
        items = [made[n].weighted for n in there]
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
