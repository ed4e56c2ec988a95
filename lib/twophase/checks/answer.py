"""An answer as a judge sees it: names to call, in this process or in another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from twophase.protocol import AnswerError, ProtocolError, roundtrip
from twophase.protocol.errors import error_from


class Handle(Protocol):
    """An object made by the answer, which stays where the answer runs."""

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any: ...
    def get(self, attribute: str) -> Any: ...


class Answer(Protocol):
    """What `observe` is given. Arguments and results are plain data; Python functions among the arguments are callbacks."""

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any: ...
    def new(self, name: str, *args: Any, **kwargs: Any) -> Handle: ...


def outcome(attempt: Callable[[], Any]) -> Any:
    """What `attempt` returns, or {"raised": the exception's class names} if the answer raised.

    For checks in which raising is the right thing to do. Anything but a raised exception (a stub, a time-out) passes through.
    """
    try:
        return attempt()
    except AnswerError as e:
        if e.kind != "raised":
            raise
        return {"raised": [n for n in e.type_names if n != "Exception"]}


def refuses(attempt: Callable[[], Any], error: str = "ValueError") -> bool:
    """Whether the answer refuses `attempt` with an exception of class `error` (or one derived from it)."""
    seen = outcome(attempt)
    return isinstance(seen, dict) and error in seen.get("raised", ())


def _crossed(value: Any, what: str) -> Any:
    try:
        return roundtrip(value)
    except ProtocolError as e:
        raise AnswerError("not_plain", f"{what}: {e}") from None


def _argument(value: Any) -> Any:
    """A copy of an argument, so that the answer cannot change the case; a function is wrapped so that its calls are copied too."""
    if callable(value):

        def callback(*args: Any, **kwargs: Any) -> Any:
            sent = [_crossed(a, "an argument of the callback") for a in args]
            named = {k: _crossed(a, "an argument of the callback") for k, a in kwargs.items()}
            return roundtrip(value(*sent, **named))

        return callback
    return roundtrip(value)


def _run(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    try:
        return function(*map(_argument, args), **{k: _argument(v) for k, v in kwargs.items()})
    except Exception as e:
        raise error_from(e) from e


class LocalHandle:
    """An object of the answer in this process."""

    def __init__(self, instance: object) -> None:
        self._instance = instance

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        function = getattr(self._instance, method, None)
        if not callable(function):
            raise AnswerError("missing", f"{type(self._instance).__name__} has no method {method!r}")
        return _crossed(_run(function, args, kwargs), f"what {method} returned")

    def get(self, attribute: str) -> Any:
        try:
            value = getattr(self._instance, attribute)
        except Exception as e:  # a property may raise anything
            raise error_from(e) from e
        return _crossed(value, f"the attribute {attribute}")


class LocalAnswer:
    """The answer whose names live in `namespace`: a notebook's user namespace, a reference, a misconception."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace

    def _find(self, name: str) -> Callable[..., Any]:
        found = self._namespace.get(name)
        if not callable(found):
            what = "is not defined" if found is None else f"is a {type(found).__name__}, not something to call"
            raise AnswerError("missing", f"{name} {what}: run the cell that defines it")
        return found  # type: ignore[no-any-return]

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return _crossed(_run(self._find(name), args, kwargs), f"what {name} returned")

    def new(self, name: str, *args: Any, **kwargs: Any) -> LocalHandle:
        return LocalHandle(_run(self._find(name), args, kwargs))
