"""The errors that both sides know: an answer not written yet, one that went wrong, and a function
that is not there."""

from __future__ import annotations


class ProtocolError(Exception):
    """A value that may not cross, or bytes that are no frame. The message is one sentence for a
    person."""


class NotYet(Exception):
    """Raised by a stub: the answer to this exercise has not been written yet."""

    def __init__(self, exercise_id: str) -> None:
        super().__init__(exercise_id)
        self.exercise_id = exercise_id

    def _render_traceback_(self) -> list[str]:
        """One line in IPython instead of a stack: the stub has nothing to debug."""
        return [f"NotYet: {self.exercise_id}"]


class Withheld(ImportError):
    """Raised in the official worker by what it does not have: the course's library but for `lab`
    and `protocol`, and other libraries that have answers ready-made."""


class AnswerError(Exception):
    """What a judge sees when an answer gives no value.

    `kind` is one of: missing (the name is not defined), not_yet (the stub), raised (the answer
    raised), not_plain (it returned something that is not data), unusable (data that the check can
    do nothing with), timeout, died (its process ended), protocol (its process sent nonsense).
    `type_names` lists the classes of the raised exception, most special first, so that a check may
    ask for a ValueError.
    """

    def __init__(self, kind: str, message: str, type_names: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.type_names = type_names


class JudgeFault(Exception):
    """The judge itself cannot go on. It passes through everything that turns an answer's errors
    into verdicts."""


def error_from(exception: BaseException) -> AnswerError:
    """The AnswerError that stands for an exception which an answer raised."""
    if isinstance(exception, AnswerError):
        return exception
    names = tuple(
        str(c.__name__)[:100] for c in type(exception).__mro__ if c not in (object, BaseException)
    )[:20]
    if any(
        c.__name__ == "NotYet" for c in type(exception).__mro__
    ):  # by name: the class may be another process's
        return AnswerError("not_yet", f"{_text(exception)} is not written yet", names)
    return AnswerError("raised", f"{type(exception).__name__}: {_text(exception)}", names)


def _text(exception: BaseException) -> str:
    """The exception's message, which an answer's own class may refuse to give."""
    try:
        return str(exception)[:500]
    except Exception:
        return "(its message cannot be printed)"
