"""Whether an answer leans on the course's library, of which there is nothing where it is graded. In
practice that is said, not punished.

Works on the functions as they are, not on their text: on every global name and attribute that the
answer's code (and the notebook's own functions that it calls) can reach.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

OURS = ("twophase.lab", "twophase.protocol")  # what every notebook has


def used(answers: Iterable[Any]) -> list[str]:
    """The dotted names of the library's functions and classes that the answers' code can reach."""
    names = {name for thing in _reach(list(answers)) if (name := _name_in_library(thing))}
    return sorted(names)


def _name_in_library(thing: Any) -> str:
    """The dotted name of a function, class or compiled loop of the library; else empty."""
    thing = next((t for of in ("py_func", "serial") if (t := _of(thing, of)) is not None), thing)
    module, name = _of(thing, "__module__"), _of(thing, "__qualname__")
    if not isinstance(module, str) or not isinstance(name, str):
        return ""
    is_ours = module.startswith("twophase.") and not module.startswith(OURS)
    return f"{module}.{name}" if is_ours else ""


def _of(thing: Any, attribute: str) -> Any:
    """An attribute, or None: what a notebook has made may raise anything when it is asked (a dict
    whose `__getattr__` looks up a key)."""
    try:
        return getattr(thing, attribute, None)
    except Exception:
        return None


def _reach(todo: list[Any]) -> Iterator[Any]:
    """Every object that these functions and classes mention, through the functions defined beside
    them."""
    home = {_of(a, "__module__") for a in todo if not _name_in_library(a)}
    seen: set[int] = set()
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        yield thing
        kind = type(thing)  # isinstance would ask for its __class__, if it is something else
        if issubclass(kind, type) and thing.__module__ in home:
            todo += [*vars(thing).values(), *thing.__bases__]
        elif kind is FunctionType and thing.__module__ in home:
            todo += _mentioned(thing)
        elif issubclass(kind, property | staticmethod | classmethod):
            todo.append(thing.fget if isinstance(thing, property) else thing.__func__)


def _mentioned(function: FunctionType) -> list[Any]:
    names = {n for code in _codes(function.__code__) for n in code.co_names}
    found = [function.__globals__[n] for n in names if n in function.__globals__]
    found += [c.cell_contents for c in function.__closure__ or () if _filled(c)]
    found += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    found.append(getattr(function, "__wrapped__", None))
    modules = [m for m in found if issubclass(type(m), ModuleType)]
    modules += [
        sys.modules[n] for n in names if n in sys.modules and n.startswith("twophase")
    ]  # imports in the body
    looked: set[int] = set()
    while (
        modules
    ):  # twophase.theory.kv_cache.max_batch: through the modules, one attribute at a time
        module = modules.pop()
        if id(module) in looked:
            continue
        looked.add(id(module))
        members = [vars(module)[n] for n in names if n in vars(module)]
        found += members
        modules += [m for m in members if issubclass(type(m), ModuleType)]
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
