"""An answer as a judge sees it: names to call, in this process or in another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Protocol, TypeVar, runtime_checkable

from twophase.protocol import AnswerError, ObjectRef, decode, roundtrip
from twophase.protocol.arguments import FIXED, Args, ArgumentGuard, lends, lent
from twophase.protocol.codec import decode_each, encode_each
from twophase.protocol.invoke import crossed, guarded
from twophase.protocol.missing import find, find_method

T = TypeVar("T")
Across = Callable[[], AbstractContextManager[None]]  # around what runs on the other side


class Handle(Protocol):
    """An object made by the answer, which stays where the answer runs."""

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any: ...
    def get(self, attribute: str) -> Any: ...


# an attribute's name; a call (the method's name, *arguments); as a list, a call of which nothing is
# wanted back
Asked = str | tuple[Any, ...] | list[Any]


@runtime_checkable
class Batched(Protocol):
    """A handle that can be asked several things at once."""

    def each(self, *asked: Asked) -> list[Any]: ...


def each(handle: Handle, *asked: Asked) -> list[Any]:
    """What several calls and attributes of one object give, one after the other; what the first
    that raises raises. One message where the object is in another process: so no argument may tell
    what an earlier call is to give."""
    if isinstance(handle, Batched):
        return handle.each(*asked)
    return [_asked(handle, one) for one in asked]


def _asked(handle: Handle, one: Asked) -> Any:
    if isinstance(one, str):
        return handle.get(one)
    return tell(handle, *one) if isinstance(one, list) else handle.call(*one)


class Answer(Protocol):
    """What `observe` is given. Arguments and results are plain data; Python functions among the
    arguments are callbacks."""

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any: ...
    def new(self, name: str, *args: Any, **kwargs: Any) -> Handle: ...


@runtime_checkable
class Timed(Protocol):
    """An answer with a clock: the judge says when a case begins and how long it may take, callbacks
    included."""

    def start_exercise(self, limit_s: float) -> None: ...
    def start_case(self, limit_s: float) -> None: ...

    def within(self, check: Callable[[], T]) -> T:
        """check(), given up with an AnswerError (timeout) if it computes for longer than the case
        that was started may take."""


def outcome(attempt: Callable[[], Any]) -> Any:
    """What `attempt` returns, or {"raised": the exception's class names} if the answer raised.

    For checks in which raising is the right thing to do. Anything but a raised exception (a stub, a
    time-out) passes through.
    """
    try:
        return attempt()
    except AnswerError as e:
        if e.kind != "raised":
            raise
        return {"raised": [n for n in e.type_names if n != "Exception"]}


def refuses(attempt: Callable[[], Any], error: str = "ValueError") -> bool:
    """Whether the answer refuses `attempt` with an exception of class `error` (or one derived from
    it)."""
    seen = outcome(attempt)
    return isinstance(seen, dict) and error in seen.get("raised", ())


def tell(handle: Handle, method: str, *args: Any) -> None:
    """Call a method of which nothing is wanted back: it may return whatever it likes, itself
    included."""
    try:
        handle.call(method, *args)
    except AnswerError as e:
        if e.kind != "not_plain":
            raise


def argument(value: Any, across: Across = nullcontext) -> Any:
    """A copy of an argument, so that the answer cannot change the case.

    A function, also one inside a list, a tuple or a dict, is wrapped so that its calls are copied
    too, and run `across`. A handle stands for its object.
    """
    if type(value) in FIXED:
        return value
    kept: list[Any] = []

    def keep(thing: Any) -> ObjectRef | None:
        if not isinstance(thing, LocalHandle) and not callable(thing):
            return None
        kept.append(thing.instance if isinstance(thing, LocalHandle) else _callback(thing, across))
        return ObjectRef(len(kept) - 1)

    (copy,) = decode_each(encode_each([value], keep), refer=lambda reference: kept[reference.id])
    return copy


def _callback(function: Callable[..., Any], across: Across) -> Callable[..., Any]:
    def callback(*args: Any, **kwargs: Any) -> Any:
        sent = [crossed(roundtrip, a, "an argument of the callback") for a in args]
        named = {k: crossed(roundtrip, a, "an argument of the callback") for k, a in kwargs.items()}
        with across():
            return roundtrip(function(*sent, **named))

    return lent(callback) if lends(function) else callback


def _copies(args: tuple[Any, ...], kwargs: Mapping[str, Any], across: Across) -> Args:
    named = {k: argument(v, across) for k, v in kwargs.items()}
    return tuple(argument(a, across) for a in args), named


class LocalHandle:
    """An object of the answer in this process."""

    def __init__(self, instance: object, guard: ArgumentGuard, across: Across) -> None:
        self.instance = instance
        self._guard = guard
        self._across = across

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        given = _copies(args, kwargs, self._across)
        with self._across():
            return decode(self._guard.method(method, find_method(self.instance, method), given))

    def get(self, attribute: str) -> Any:
        with self._across():  # a property may do and raise anything
            value = guarded(getattr, (self.instance, attribute), {})
        return crossed(roundtrip, value, f"the attribute {attribute}")


class LocalAnswer:
    """The answer whose names live in `namespace`: a notebook's user namespace, a reference, a
    misconception. Its code runs `across`, and so do the check's functions that it calls."""

    def __init__(self, namespace: Mapping[str, Any], across: Across = nullcontext) -> None:
        self._namespace = namespace
        self._across = across
        self._guard = ArgumentGuard()

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        function, given = find(self._namespace, name), _copies(args, kwargs, self._across)
        with self._across():
            return decode(self._guard.function(name, function, given))

    def new(self, name: str, *args: Any, **kwargs: Any) -> LocalHandle:
        make, given = find(self._namespace, name), _copies(args, kwargs, self._across)
        with self._across():
            return LocalHandle(self._guard.made(name, make, given), self._guard, self._across)


class AskedOnce:
    """An answer that is asked only once for what it gives without arguments (inputs that expose a
    fault, tests): however many cases look at that, it cannot give each of them something else."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._gave: dict[str, Any] = {}

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs:
            return self._answer.call(name, *args, **kwargs)
        if name not in self._gave:
            try:
                self._gave[name] = self._answer.call(name)
            except AnswerError as e:
                self._gave[name] = e
        if isinstance(self._gave[name], AnswerError):
            raise self._gave[name]
        return roundtrip(self._gave[name])  # a copy: a check may change what it got

    def new(self, name: str, *args: Any, **kwargs: Any) -> Handle:
        return self._answer.new(name, *args, **kwargs)


class TimedAnswer(Answer, Timed, Protocol):
    """An answer with a clock."""


class Relay:
    """One answer in two processes, which are asked in turn. What is bounded is what it returns and
    gets back: what it keeps elsewhere is not there when the other process is asked."""

    def __init__(self, one: TimedAnswer, other: TimedAnswer) -> None:
        self._answers = one, other
        self._calls = 0

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self._calls += 1
        turn = self._calls.bit_count() % 2  # the Thue–Morse sequence: in step with nothing
        return self._answers[turn].call(name, *args, **kwargs)

    def new(self, name: str, *args: Any, **kwargs: Any) -> Handle:
        raise TypeError("an object cannot move to another process: only functions are relayed")

    def start_exercise(self, limit_s: float) -> None:
        for answer in self._answers:
            answer.start_exercise(limit_s)

    def start_case(self, limit_s: float) -> None:
        for answer in self._answers:
            answer.start_case(limit_s)

    def within(self, check: Callable[[], T]) -> T:
        one, other = self._answers
        return one.within(lambda: other.within(check))


class Twins:
    """An answer whose objects are made in pairs: each call meets a second object first, so that two
    that share what each should have of its own are not what one alone is."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self._answer.call(name, *map(_first, args), **kwargs)

    def new(self, name: str, *args: Any, **kwargs: Any) -> Handle:
        other = self._answer.new(name, *map(_first, args), **kwargs)
        return _Pair(self._answer.new(name, *map(_first, args), **kwargs), other)


class _Pair:
    """Asked one by one, not `Batched`: what an answer may know by being asked for several things at
    once, it does not know here."""

    def __init__(self, handle: Handle, other: Handle) -> None:
        self._handle, self._other = handle, other

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        with suppress(AnswerError):  # what is wrong with it, the first object shows as well
            self._other.call(method, *map(_first, args), **kwargs)
        return self._handle.call(method, *map(_first, args), **kwargs)

    def get(self, attribute: str) -> Any:
        return self._handle.get(attribute)


def _first(value: Any) -> Any:
    """An argument, an object of the answer's as its own side knows it."""
    return value._handle if isinstance(value, _Pair) else value
