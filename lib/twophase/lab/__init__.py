"""What a learner's notebook imports: `check`, `hint`, `solution`, `progress`, `timed`, and
`NotYet`, which its stubs raise.

`check` judges the answer that the notebook defines and raises if it is wrong; the others only show
something. In the process that runs a notebook for the official grader (environment variable
TWOPHASE_WORKER=1) all five only look as if they did: there are no checks there, and the score is
made elsewhere.
"""

from __future__ import annotations

import os
from typing import Any

from twophase.lab.shown import Note, Source, Unjudged
from twophase.protocol import NotYet
from twophase.protocol.checks_called import CALLED, WORTH

__all__ = ["NotYet", "check", "hint", "progress", "solution", "timed"]

NOT_HERE = Note("Not shown", "this notebook is being graded")
IN_WORKER = os.environ.get("TWOPHASE_WORKER") == "1"


def check(exercise_id: str = "") -> Any:
    """Judge this notebook's answer to an exercise.

    Returns its points if the answer is right; of an exercise that is judged after handing in, a 0
    that says so. Raises `CheckFailed`, in a few lines, if the answer is wrong or not written yet,
    and `LabError` (a ValueError) if there is no such exercise or no notebook around.
    """
    if IN_WORKER:
        CALLED[exercise_id] = None
        worth = WORTH.get(exercise_id, 1.0)
        return Unjudged(worth, worth)
    from twophase.lab.checking import check_answer

    return check_answer(exercise_id)


def hint(exercise_id: str = "") -> Any:
    """The next hint for an exercise: each call goes one step further, up to the third. Raises
    `LabError` for an unknown id."""
    if IN_WORKER:
        return NOT_HERE
    from twophase.lab.showing import next_hint

    return next_hint(exercise_id)


def solution(exercise_id: str = "", give_up: bool = False) -> Any:
    """The author's answer to an exercise, once an answer of your own has been checked (or with
    `give_up=True`).

    Raises `LabError` for an unknown id.
    """
    if IN_WORKER:
        return Source("Not shown where a notebook is graded.", "")
    from twophase.lab.showing import author_answer

    return author_answer(exercise_id, give_up)


def progress() -> Any:
    """A table of this notebook's exercises and one of the course: done, tried or open, with points
    and minutes."""
    if IN_WORKER:
        return NOT_HERE
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
        return NOT_HERE
    from twophase.lab.clock import predict_then_time

    return predict_then_time(exercise_id, predict, prepare)
