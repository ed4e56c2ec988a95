"""What ends the grading of one submission, a judge, or a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from twophase.protocol.errors import JudgeFault


class GraderFault(JudgeFault):
    """The grader itself cannot go on: no fault of the submission."""


class Unreadable(ValueError):
    """The file is no notebook that can be graded. The message is one sentence."""


class ServerGone(GraderFault):
    """What a judge was forked from, and its zygotes are, has gone: it cannot start another."""


class CannotWrite(Exception):
    """The results cannot be written. What was written before is whole, and the next run goes on
    from there."""


@contextmanager
def writing(what: object) -> Iterator[None]:
    """An OSError in here, of a full disk say, becomes a sentence. Raises CannotWrite."""
    try:
        yield
    except OSError as e:
        raise CannotWrite(f"{what} cannot be written: {e.strerror}") from None
