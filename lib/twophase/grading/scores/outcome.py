"""What one student has in one assignment, and what there is to say about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from typing import Literal

from twophase.grading.course.deadlines import human
from twophase.grading.course.lateness import Late
from twophase.grading.scores.dropping import Weighted
from twophase.grading.scores.rounding import points_text
from twophase.grading.scores.rubric import ZERO, ExerciseScore

Status = Literal["graded", "missing", "open", "excused", "pending"]


@dataclass(frozen=True)
class Outcome:
    """A student's score in an assignment.

    `points` is None for `open` (may still be handed in), `pending` (`waiting` says for what), and
    `excused` where nothing was graded; otherwise it is out of `worth`, after lateness, which cost
    `cost`. `free`: excused, so it counts only if it helps. `counted` False: left out of the total.
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

    @property
    def weighted(self) -> Weighted:
        return Weighted(self.points or ZERO, self.worth, self.free)

    def noting(self, *notes: str) -> Outcome:
        return replace(self, notes=(*self.notes, *notes))

    def waiting_for(self, what: str) -> Outcome:
        return replace(self, status="pending", points=None, waiting=(*self.waiting, what))


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
