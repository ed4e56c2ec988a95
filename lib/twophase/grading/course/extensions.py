"""More time for some, and work that some need not do. Which of these are a student's, groups and
all, `Scheme.due_for` and `Scheme.excusal` find out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from twophase.grading.course.deadlines import Due, Duration
from twophase.grading.course.fields import FROM_ABOVE
from twophase.grading.course.values import Deadline, Span, Text


@dataclass(frozen=True)
class Extension:
    """More time for one student or group in one assignment: until a time, or by a duration."""

    student: Text
    assignment: Text
    until: Deadline | None = None
    by: Span | None = None
    because: Text = ""
    where: Annotated[str, FROM_ABOVE] = ""

    def __post_init__(self) -> None:
        if (self.until is None) == (self.by is None):
            raise ValueError("needs either until (a time) or by (a duration)")

    def of(self, due: Due) -> Due:
        return self.until if self.until is not None else due.after(self.by or Duration())


@dataclass(frozen=True)
class Excusal:
    """A student (or group) need not do an assignment, or one exercise of it."""

    student: Text
    assignment: Text
    exercise: Text = ""
    because: Text = ""
    where: Annotated[str, FROM_ABOVE] = ""
