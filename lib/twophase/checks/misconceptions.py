"""Writing down the wrong answers of an exercise: a decorator that makes the record of one from the
function and its sentence, and the right answer with one part replaced."""

from __future__ import annotations
import __future__

import inspect
import linecache
import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from twophase.checks.exercise import Misconception

F = TypeVar("F", bound=Callable[..., Any])


class Misconceptions(list[Misconception]):
    """The wrong answers of one exercise, in the order in which they are written down.

        wrong = Misconceptions()

        @wrong("a blog's cache class", "The batch is a whole number: round down.")
        def not_rounded(memory_bytes: int, weight_bytes: int) -> float: ...

        EXERCISE = Exercise(..., misconceptions=tuple(wrong))

    The slug is the function's name, or the class's in small letters.
    """

    def __call__(self, seen: str, says: str, *, entry: str | None = None) -> Callable[[F], F]:
        """Record the function or class below under its own name: `seen` is where it was met, `says`
        one sentence for the person.

        With `entry` it stands for that entry alone; what the exercise asks for besides is the
        reference's.
        """

        def record(answer: F) -> F:
            self.add(_slug(answer.__name__), {entry: answer} if entry else answer, seen, says)
            return answer

        return record

    def add(self, slug: str, answer: Any, seen: str, says: str) -> None:
        """Record an answer that is made elsewhere: a function, a class, or a dict of some of the
        entries (the others are the reference's)."""
        self.append(Misconception(slug, answer, seen, says))


def _slug(name: str) -> str:
    """KeysTwice -> keys_twice; a function's name is its slug already."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def replaced(right: F, parts: Mapping[str, str]) -> F:
    """The right answer with parts of its source replaced, each old text by its new one.

        replaced(max_batch, {"memory_bytes - weight_bytes": "memory_bytes"})

    `right` is a function or a class at the top of a module; the copy sees the same names as it.
    Raises ValueError if an old text does not stand exactly once in the source.
    """
    source = source_of(right)
    for old, new in parts.items():
        if source.count(old) != 1:
            raise ValueError(
                f"{old!r} stands {source.count(old)} times in {right.__name__}; quote a part of it"
                " that stands there once"
            )
        source = source.replace(old, new)
    return compiled(source, right, f"{right.__name__} with {' and '.join(parts.values())}")


def source_of(thing: Callable[..., Any]) -> str:
    """The source of a function or class, decorators left out, beginning at the margin."""
    known: str | None = vars(thing).get("__source__")
    text = known or _written(thing)
    start = re.search(r"^(async def|def|class) ", text, re.MULTILINE)
    if start is None:
        raise ValueError(f"{thing!r} is no def or class: there is nothing to replace in it")
    return text[start.start() :]


@cache  # many wrong answers are made of one right one
def _written(thing: Callable[..., Any]) -> str:
    return textwrap.dedent(inspect.getsource(thing))


def compiled(source: str, like: F, called: str) -> F:
    """The function or class that `source` defines, in the module of `like`; `called` is its file in
    a traceback."""
    module = vars(sys.modules[like.__module__])
    names: dict[str, Any] = {}
    file = f"<{called}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    flags = __future__.annotations.compiler_flag
    exec(compile(source, file, "exec", flags, dont_inherit=True), module, names)
    made: F = names[like.__name__]
    made.__source__ = source  # type: ignore[attr-defined]
    return made
