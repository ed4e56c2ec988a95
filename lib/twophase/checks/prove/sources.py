"""Where the programs come from that are mutated: the reference with the helpers that it calls, the
right answers in tests/answers, the misconceptions."""

from __future__ import annotations
import __future__

import ast
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

from twophase.checks.exercise import Exercise
from twophase.checks.misconceptions import source_of

Names = dict[str, Any]


@dataclass(frozen=True)
class Program:
    """Source that can be run with a mistake in it. `names(source)` gives what it defines."""

    called: str
    source: str
    names: Callable[[str], Names]


def answers(exercise: Exercise, folder: Path) -> list[Program]:
    """The independently written right answers, `<topic>/<slug>__<how>.py` in `folder`."""
    found = sorted((folder / exercise.topic).glob(f"{exercise.slug}__*.py"))
    return [
        Program(p.stem.partition("__")[2], p.read_text(encoding="utf-8"), as_cell) for p in found
    ]


def as_cell(source: str) -> Names:
    """The names that source defines if it is run after a notebook's setup cell."""
    setup = {"np": "numpy", "torch": "torch", "math": "math"}
    names: Names = {"__name__": "__main__"}
    names |= {short: importlib.import_module(module) for short, module in setup.items()}
    exec(_compiled(source, "answer"), names)
    return names


def own(exercise: Exercise, called: str, answer: Any) -> Program | None:
    """The reference or a misconception, with what it calls in its own module. None if it was made
    by something else than a def or class there (a lambda, a closure)."""
    parts = exercise.namespace(answer)
    makers = {entry: made for entry, made in parts.items() if _has_source(made)}
    if len(makers) < len(parts):
        return None
    modules = {made.__module__ for made in makers.values()}
    if len(modules) > 1:
        return None
    module = vars(sys.modules[modules.pop()])
    sources: dict[str, str] = {}
    for made in makers.values():
        _collect(made, module, sources)

    def names(source: str) -> Names:
        run: Names = dict(module)
        exec(_compiled(source, called), run)
        return {entry: run[made.__name__] for entry, made in makers.items()}

    return Program(called, "\n\n".join(sources.values()), names)


def _has_source(made: Any) -> bool:
    named = inspect.isfunction(made) or inspect.isclass(made)
    return named and made.__name__ != "<lambda>" and made.__qualname__ == made.__name__


def _collect(thing: Any, module: Mapping[str, Any], sources: dict[str, str]) -> None:
    """The source of `thing` and of all functions and classes of its module that it mentions, those
    that it needs first."""
    if thing.__name__ in sources:
        return
    source = source_of(thing)
    sources[thing.__name__] = ""  # a place, so that a circle ends
    for node in ast.walk(ast.parse(source)):
        named = module.get(node.id) if isinstance(node, ast.Name) else None
        if named is not thing and _has_source(named) and named.__module__ == thing.__module__:
            _collect(named, module, sources)
    del sources[thing.__name__]
    sources[thing.__name__] = source


@lru_cache(4)  # a mutant is run anew for every seed
def _compiled(source: str, called: str) -> CodeType:
    flags = __future__.annotations.compiler_flag
    made: CodeType = compile(source, f"<mutant of {called}>", "exec", flags, dont_inherit=True)
    return made
