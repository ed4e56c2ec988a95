"""The calls of one answer: what it is given must be afterwards what it was, and what it gave must
stay what it was. The same code in the notebook's process and in the official worker."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable
from typing import Any

from twophase.protocol.arrays import described
from twophase.protocol.codec import MAX_FRAME_BYTES, Callback, decode_each, encode_each
from twophase.protocol.errors import AnswerError
from twophase.protocol.invoke import guarded

Args = tuple[tuple[Any, ...], dict[str, Any]]

FIXED = (int, float, bool, str, type(None))  # no call can change one
KEPT = 16  # sets of arguments, for the time when they are handed over again
LARGEST_KEPT = 2**20  # bytes of each
ARRAY = b"array"  # begins what tells an array: of a frame the first byte is 0


def lent(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose results are only lent: an answer that changes one has changed what belongs
    to its caller, as with an argument."""
    function.lends = True  # type: ignore[attr-defined]
    return function


def lends(function: Any) -> bool:
    """Whether what `function` returns must be left as it was."""
    return getattr(function, "lends", False) is True


class _Loan:
    """The results of a function that lends, each with what it was."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._results: list[tuple[Any, bytes | None]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self._function(*args, **kwargs)
        self._results.append((result, _print(result)))
        return result

    def changed(self) -> bool:
        return any(_print(result) != was for result, was in self._results)


class ArgumentGuard:
    """Makes the calls of one answer, and keeps what it needs to look at them again.

    Arguments that were handed over before are the same objects the next time, so that an answer
    which holds on to them meets them again. What it returned itself (a state that is handed back to
    it) it may change.
    """

    def __init__(self) -> None:
        self._given: dict[bytes, Args] = {}
        self._gave: tuple[Any, bytes] | None = None
        self._own: deque[bytes | None] = deque(maxlen=4 * KEPT)  # what it returned

    def function(self, called: str, function: Callable[..., Any], given: Args) -> Any:
        """function(*args, **kwargs). Raises AnswerError as `guarded` does; also (unusable) if it
        changes its arguments, or by this call what it returned the time before."""
        value = self.method(called, function, given)
        if self._gave is not None and _print(self._gave[0]) not in (None, self._gave[1]):
            raise AnswerError(
                "unusable",
                f"{called} returned the same object as the time before, and what that held is gone:"
                " make a new one for every call",
                ("SharedResult",),
            )
        now = self._own[-1]
        self._gave = (value, now) if now and len(now) <= LARGEST_KEPT else None
        return value

    def method(self, called: str, method: Callable[..., Any], given: Args) -> Any:
        """method(*args, **kwargs) of an object, whose results may change with it. Raises
        AnswerError as `function` does for the arguments."""
        before = _prints(given)
        args, kwargs = self._same(before, given)
        loans = [_Loan(a) if lends(a) else a for a in args]
        value = guarded(method, tuple(loans), kwargs)
        for i, (was, now) in enumerate(zip(before, _prints((args, kwargs)), strict=True)):
            if was != now and not self._returned(was):
                raise AnswerError(
                    "unusable",
                    f"{called} changed its argument {_name(method, i, (args, kwargs))}: what it is"
                    " given belongs to the caller; work on a copy",
                    ("ChangedArgument",),
                )
        for i, loan in enumerate(loans):
            if isinstance(loan, _Loan) and loan.changed():
                raise AnswerError(
                    "unusable",
                    f"{called} changed what {_name(method, i, (args, kwargs))} returned: it belongs"
                    " to the caller; work on a copy",
                    ("ChangedArgument",),
                )
        self._own.append(_print(value))
        return value

    def _returned(self, was: bytes | None) -> bool:
        """Whether the answer returned this itself, alone or as one of a few. The parts of what it
        returned are looked at only here: few answers change what they are given."""
        return was in self._own or any(was in _parts(gave) for gave in reversed(self._own))

    def _same(self, before: list[bytes | None], given: Args) -> Args:
        """The arguments as the objects that they were the last time, functions excepted."""
        prints = [p for p in before if p is not None]
        if len(prints) < len(before) or any(map(callable, (*given[0], *given[1].values()))):
            return given
        key = b"".join(prints) + repr([*given[1]]).encode()
        if len(key) > LARGEST_KEPT or (len(self._given) >= KEPT and key not in self._given):
            return given
        kept = self._given.setdefault(key, given)
        return kept if kept is given or _prints(kept) == before else given


def _prints(given: Args) -> list[bytes | None]:
    return [
        repr(value).encode() if type(value) in FIXED else _print(value)
        for value in (*given[0], *given[1].values())
    ]


def _print(value: Any) -> bytes | None:
    """What tells whether a value has changed; None if that cannot be told (an object of the
    answer's own, say)."""
    try:
        array = described(value)
        if array is None:
            return encode_each([value], lambda v: Callback(0) if callable(v) else None)
    except Exception:  # also a tensor whose memory is gone
        return None
    told, data = array
    return ARRAY + repr(told).encode() + data if len(data) <= MAX_FRAME_BYTES else None


def _parts(gave: bytes | None) -> list[bytes | None]:
    value = None if gave is None or gave.startswith(ARRAY) else decode_each(gave)[0]
    if not isinstance(value, list | tuple) or len(value) > KEPT:
        return []
    return [_print(part) for part in value]


def _name(function: Callable[..., Any], at: int, given: Args) -> str:
    try:
        return [*inspect.signature(function).bind(*given[0], **given[1]).arguments][at]
    except (TypeError, ValueError, IndexError):
        return str(at + 1)
