"""Running one call of an answer: the same code in the notebook's process and in the official
worker.

Whatever is raised becomes an AnswerError, and what is returned must be plain data. (Who calls
copies the arguments, and makes callbacks of functions among them.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from twophase.protocol.errors import AnswerError, ProtocolError, error_from


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
