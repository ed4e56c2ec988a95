"""The calls of one answer: what it is given must be afterwards what it was, and what it gave must
stay what it was. The same code in the notebook's process and in the official worker."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from twophase.protocol.arrays import described
from twophase.protocol.codec import MAX_FRAME_BYTES, Callback, decode, encode, encode_each
from twophase.protocol.errors import AnswerError, ProtocolError
from twophase.protocol.invoke import crossed, guarded
from twophase.protocol.parts import MAX_DEPTH, MAX_NODES

Args = tuple[tuple[Any, ...], dict[str, Any]]

FIXED = frozenset((int, float, bool, str, type(None)))  # no call can change one
KEPT = 16  # sets of arguments of each function, for the time when they are handed over again
LARGEST_KEPT = 2**20  # bytes of each
MOST_KEPT = 64 * 2**20  # bytes of all
LATELY = 4  # sets of arguments, of all functions together, that are looked at after each call
LATELY_BYTES = 2**16  # of these together: more would take too long each time
ARRAY = b"array"  # begins what tells an array: a frame begins with 0, what is written differently


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


class _Given(NamedTuple):
    """What a call was given: as objects, as it was, and how much the answer had returned by
    then."""

    called: str
    given: Args
    was: list[bytes]
    n_returned: int


class _Lately:
    """What the last calls were given: an answer may hold on to it, and change it in a later
    call."""

    def __init__(self) -> None:
        self._calls: list[_Given] = []

    def add(self, called: str, given: Args, was: list[bytes | None], n_returned: int) -> None:
        prints = [p for p in was if p is not None]
        if len(prints) < len(was):  # an object of the answer's own: nobody can tell
            return
        # the same objects again may have been returned in between
        calls = [c for c in self._calls if c.given is not given][1 - LATELY :]
        calls.append(_Given(called, given, prints, n_returned))
        while sum(len(p) for c in calls for p in c.was) > LATELY_BYTES:
            del calls[0]
        self._calls = calls

    def changed(self) -> list[tuple[_Given, bytes]]:
        """What has changed since, each part as it was. It is told once."""
        found: list[tuple[_Given, bytes]] = []
        for call in self._calls:
            now = _prints(call.given)
            found += [(call, was) for was, is_ in zip(call.was, now, strict=True) if was != is_]
        if found:
            told = [id(call) for call, _ in found]
            self._calls = [call for call in self._calls if id(call) not in told]
        return found


class ArgumentGuard:
    """Makes the calls of one answer, and keeps what it needs to look at them again.

    Arguments that were handed over before are the same objects the next time, so that an answer
    which holds on to them meets them again. What it returned itself (a state that is handed back to
    it) it may change.
    """

    def __init__(self) -> None:
        self._given: dict[str, dict[bytes, Args]] = {}  # by what was called
        self._kept_bytes = 0
        self._gave: dict[str, tuple[Any, bytes]] = {}  # the time before, by what was called
        self._own: deque[bytes] = deque(maxlen=4 * KEPT)  # frames of what it returned
        self._n_returned = 0  # all of them, also those no longer kept
        self._lately = _Lately()

    def function(self, called: str, function: Callable[..., Any], given: Args) -> bytes:
        """The frame of function(*args, **kwargs). Raises AnswerError as `method` does; also
        (unusable) if what it returned the time before has changed since."""
        value = self.made(called, function, given)
        gave = self._gave.pop(called, None)  # each exercise answers for itself
        if gave is not None and _frame(gave[0]) not in (None, gave[1]):
            raise AnswerError(
                "unusable",
                f"{called} returned the same object as the time before, and what that held is gone:"
                " make a new one for every call",
                ("SharedResult",),
            )
        frame = self._crossed(called, value)
        if type(value) not in FIXED and len(frame) <= LARGEST_KEPT:
            self._gave[called] = value, frame
        return frame

    def method(self, called: str, method: Callable[..., Any], given: Args) -> bytes:
        """The frame of method(*args, **kwargs) of an object, whose results may change with it.
        Raises AnswerError as `made` does, also (not_plain) if that is no plain data."""
        return self._crossed(called, self.made(called, method, given))

    def made(self, called: str, function: Callable[..., Any], given: Args) -> Any:
        """function(*args, **kwargs) itself. Raises AnswerError as `guarded` does; also (unusable)
        if it changes its arguments, or those of one of the last calls."""
        if all(type(value) in FIXED for value in (*given[0], *given[1].values())):
            value = guarded(function, *given)
            self._still_as_given()
            return value
        before = _prints(given)
        n_returned = self._n_returned
        same = args, kwargs = self._same(called, before, given)
        loans = [_Loan(a) if lends(a) else a for a in args]
        value = guarded(function, tuple(loans), kwargs)
        for i, (was, now) in enumerate(zip(before, _prints((args, kwargs)), strict=True)):
            if was != now and not self._returned(was):
                raise AnswerError(
                    "unusable",
                    f"{called} changed its argument {_name(function, i, (args, kwargs))}: what it"
                    " is given belongs to the caller; work on a copy",
                    ("ChangedArgument",),
                )
        for i, loan in enumerate(loans):
            if isinstance(loan, _Loan) and loan.changed():
                raise AnswerError(
                    "unusable",
                    f"{called} changed what {_name(function, i, (args, kwargs))} returned: it"
                    " belongs to the caller; work on a copy",
                    ("ChangedArgument",),
                )
        self._still_as_given()
        self._lately.add(called, same, before, n_returned)
        return value

    def _still_as_given(self) -> None:
        for call, was in self._lately.changed():
            # what it returned afterwards, a view perhaps, does not make an argument its own
            if not self._returned(was, since=call.n_returned):
                raise _changed_later(call.called)

    def _crossed(self, called: str, value: Any) -> bytes:
        frame: bytes = crossed(encode, value, f"what {called} returned")
        if type(value) not in FIXED:
            self._own.append(frame)
            self._n_returned += 1
        return frame

    def _returned(self, was: bytes | None, since: int | None = None) -> bool:
        """Whether the answer returned this itself, alone or as one of a few; `since` it had
        returned so much, it no longer counts. What it returned is looked at only here: few answers
        change what they are given."""
        later = 0 if since is None else self._n_returned - since
        before = [*self._own][: max(0, len(self._own) - later)]
        return any(was in _parts(decode(frame)) for frame in reversed(before))

    def _same(self, called: str, before: list[bytes | None], given: Args) -> Args:
        """The arguments as the objects that they were the last time, functions excepted. Raises
        AnswerError (unusable) if the answer has changed them since."""
        prints = [p for p in before if p is not None]
        if len(prints) < len(before) or any(map(callable, (*given[0], *given[1].values()))):
            return given
        key = b"".join(prints) + repr([*given[1]]).encode()
        sets = self._given.setdefault(called, {})  # a notebook's first exercises leave room
        kept = sets.get(key)
        if kept is None:
            room = len(sets) < KEPT and self._kept_bytes + len(key) <= MOST_KEPT
            if room and len(key) <= LARGEST_KEPT:
                sets[key] = given
                self._kept_bytes += len(key)
            return given
        changed = [was for was, now in zip(before, _prints(kept), strict=True) if was != now]
        if not all(map(self._returned, changed)):
            raise _changed_later(called)
        return given if changed else kept


def _changed_later(called: str) -> AnswerError:
    return AnswerError(
        "unusable",
        f"after {called} had returned, your code went on to change what it had been given: that"
        " belongs to the caller; work on a copy",
        ("ChangedArgument",),
    )


def _prints(given: Args) -> list[bytes | None]:
    return [_print(value) for value in (*given[0], *given[1].values())]


def _print(value: Any) -> bytes | None:
    """What tells whether a value has changed; None if that cannot be told (an object of the
    answer's own, say)."""
    try:
        if _written(value):
            return repr(value).encode()
        array = described(value)
        if array is None:
            return encode_each([value], lambda v: Callback(0) if callable(v) else None)
    except Exception:  # also a tensor whose memory is gone
        return None
    told, data = array
    return ARRAY + repr(told).encode() + data if len(data) <= MAX_FRAME_BYTES else None


def _written(value: Any) -> bool:
    """Whether `repr` writes all of a value, within the bounds of a frame: it is fixed, or a list,
    tuple or dict of such. (A list of one list twice, and so on, doubles at every depth.)"""
    todo, nodes = [(value, 0)], 0
    while todo:
        part, depth = todo.pop()
        kind = type(part)
        if kind in FIXED:
            continue
        if kind not in (list, tuple, dict):
            return False
        inside = [*part, *part.values()] if kind is dict else part
        nodes += len(inside)
        if depth > MAX_DEPTH or nodes > MAX_NODES:
            return False
        if not set(map(type, inside)) <= FIXED:
            todo += [(x, depth + 1) for x in inside]
    return True


def _frame(value: Any) -> bytes | None:
    try:
        return encode(value)
    except ProtocolError:
        return None


def _parts(gave: Any) -> list[bytes | None]:
    few = isinstance(gave, list | tuple) and len(gave) <= KEPT
    return [_print(part) for part in ([gave, *gave] if few else [gave])]


def _name(function: Callable[..., Any], at: int, given: Args) -> str:
    try:
        return [*inspect.signature(function).bind(*given[0], **given[1]).arguments][at]
    except (TypeError, ValueError, IndexError):
        return str(at + 1)
