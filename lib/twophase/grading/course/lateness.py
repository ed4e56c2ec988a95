"""How late work is, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Literal

from twophase.grading.course.deadlines import Due, Duration
from twophase.grading.course.fields import Mistake
from twophase.grading.course.values import Share, Span


@dataclass(frozen=True)
class Late:
    """How late something is, how many days that begins, and whether it is still accepted."""

    by: timedelta = timedelta(0)
    days: int = 0
    accepted: bool = True


@dataclass(frozen=True)
class LateRule:
    """What lateness costs. Shares are of the points earned, or of those possible; `floor` is a
    share of what was earned."""

    per_day: Share = Fraction(0)
    of: Literal["earned", "possible"] = "earned"
    grace: Span = field(default_factory=Duration)
    floor: Share = Fraction(0)
    cutoff: Span | None = None

    def __post_init__(self) -> None:
        if self.cutoff is not None and self.cutoff.roughly < self.grace.roughly:
            raise Mistake(f"{self.cutoff} is shorter than the grace, {self.grace}", "cutoff")

    @property
    def can_cost(self) -> bool:
        return self.per_day > 0 or self.cutoff is not None

    def last(self, due: Due) -> Due:
        """Until when something is accepted; only sensible with a cutoff."""
        return due.after(self.cutoff or Duration())

    def lateness(self, due: Due, handed_in: datetime) -> Late:
        """Within the grace nothing is late; beyond it the days are counted from the due time."""
        if handed_in < due.after(self.grace).end:
            return Late()
        accepted = self.cutoff is None or handed_in < self.last(due).end
        days = max(1, (handed_in - due.end).days - 1)
        while handed_in >= due.after(Duration(days)).end:
            days += 1
        return Late(handed_in - due.end, days, accepted)

    def left(self, earned: Fraction, worth: Fraction, late: Late) -> Fraction:
        """The points that are left of `earned`."""
        if not late.accepted:
            return Fraction(0)
        lost = late.days * self.per_day * (earned if self.of == "earned" else worth)
        return max(earned - lost, earned * self.floor, Fraction(0))
