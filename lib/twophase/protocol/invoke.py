"""Running one call of an answer: the same code in the notebook's process and in the official
worker.

Whatever is raised becomes an AnswerError, and what is returned must be plain data. (Who calls
copies the arguments, and makes callbacks of functions among them.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twophase.protocol.errors import AnswerError, ProtocolError, error_from


def find(namespace: Mapping[str, Any], name: str) -> Callable[..., Any]:
    """What `name` stands for in the answer. Raises AnswerError (missing) if there is nothing to
    call."""
    found = namespace.get(name)
    if not callable(found):
        what = (
            "is not defined"
            if found is None
            else f"is of type {type(found).__name__}, not something to call"
        )
        raise AnswerError("missing", f"{name} {what}: run the cell that defines it")
    return found  # type: ignore[no-any-return]


def find_method(instance: object, method: str) -> Callable[..., Any]:
    """A method of an object that the answer made. Raises AnswerError: missing, or what looking it
    up raised."""
    function = guarded(getattr, (instance, method, None), {})
    if not callable(function):
        raise AnswerError("missing", f"{type(instance).__name__} has no method {method!r}")
    return function  # type: ignore[no-any-return]


def guarded(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """function(*args, **kwargs), with everything that it raises turned into an AnswerError. Ctrl-C
    passes."""
    try:
        return function(*args, **kwargs)
    except (Exception, SystemExit) as e:
        raise error_from(e) from e


def crossed(cross: Callable[[Any], Any], value: Any, what: str) -> Any:
    """cross(value), where `cross` encodes or copies; a value that is not plain data is an
    AnswerError that says `what` it was."""
    try:
        return cross(value)
    except ProtocolError as e:
        raise AnswerError("not_plain", f"{what}: {e}") from None
