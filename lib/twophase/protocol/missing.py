"""What a check asks for and an answer does not have: a name, or a method of an object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twophase.protocol.errors import AnswerError
from twophase.protocol.invoke import guarded


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
