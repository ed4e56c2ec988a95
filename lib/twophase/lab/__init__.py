"""What a learner's notebook imports: `check`, `hint`, `solution`, `progress`, `timed`, and
`NotYet`, which its stubs raise.

`check` judges the answer that the notebook defines and raises if it is wrong; the others only show
something. In the process that runs a notebook for the official grader (environment variable
TWOPHASE_WORKER=1) all five do nothing: there are no checks there, and the score is made elsewhere.
"""

from __future__ import annotations

import os
from typing import Any

from twophase.protocol import NotYet

__all__ = ["NotYet", "check", "hint", "progress", "solution", "timed"]

IN_WORKER = os.environ.get("TWOPHASE_WORKER") == "1"
CALLED: dict[str, None] = {}  # there: the ids with which `check` was called, for the grader to ask


class _Unsaid(float):
    """What `check` returns where nothing is judged: a number, so that a cell which adds points up,
    prints or asserts them goes on to what stands below, however many it asserts. Only none they are
    not."""

    __hash__ = float.__hash__

    def __eq__(self, other: object) -> bool:
        return other is not None and not (isinstance(other, int | float) and float(other) == 0)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __gt__(self, other: object) -> bool:
        return True

    __ge__ = __le__ = __gt__

    def __lt__(self, other: object) -> bool:
        return False

    def __add__(self, other: float) -> _Unsaid:
        return _Unsaid(float(self) + other)

    __radd__ = __add__

    def _with(self, *others: object) -> _Unsaid:
        return self

    __sub__ = __rsub__ = __mul__ = __rmul__ = __round__ = _with  # type: ignore
    __truediv__ = __rtruediv__ = __floordiv__ = __neg__ = __pos__ = __abs__ = _with

    @property
    def out_of(self) -> _Unsaid:
        """As many as those."""
        return self

    def __repr__(self) -> str:
        return "judged by the grader"


def check(exercise_id: str = "") -> Any:
    """Judge this notebook's answer to an exercise.

    Returns its points if the answer is right; of an exercise that is judged after handing in, a 0
    that says so. Raises `CheckFailed`, in a few lines, if the answer is wrong or not written yet,
    and `LabError` (a ValueError) if there is no such exercise or no notebook around.
    """
    if IN_WORKER:
        CALLED[exercise_id] = None
        return _Unsaid(1.0)
    from twophase.lab.checking import check_answer

    return check_answer(exercise_id)


def hint(exercise_id: str = "") -> Any:
    """The next hint for an exercise: each call goes one step further, up to the third. Raises
    `LabError` for an unknown id."""
    if IN_WORKER:
        return None
    from twophase.lab.showing import next_hint

    return next_hint(exercise_id)


def solution(exercise_id: str = "", give_up: bool = False) -> Any:
    """The author's answer to an exercise, once an answer of your own has been checked (or with
    `give_up=True`).

    Raises `LabError` for an unknown id.
    """
    if IN_WORKER:
        return None
    from twophase.lab.showing import author_answer

    return author_answer(exercise_id, give_up)


def progress() -> Any:
    """A table of this notebook's exercises and one of the course: done, tried or open, with points
    and minutes."""
    if IN_WORKER:
        return None
    from twophase.lab.tables import Progress

    return Progress.now()


def timed(exercise_id: str, predict: Any, prepare: Any) -> Any:
    """Your prediction, then the clock: a table of how many times as long as the first each one
    takes.

    `predict()` calls your answer and returns a number for each name (bytes, say); it is recorded
    before anything is timed. `prepare[name]()` returns the function to time. Before the answer is
    written it says so and times nothing. Raises `LabError` if the names differ or a number is not
    positive.
    """
    if IN_WORKER:
        return None
    from twophase.lab.clock import predict_then_time

    return predict_then_time(exercise_id, predict, prepare)
