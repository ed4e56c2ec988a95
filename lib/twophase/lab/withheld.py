"""Whether an answer leans on a library function that is the exercise's answer. In practice that is
said, not punished.

Works on the functions as they are, not on their text: every global name and attribute that the
answer's code (and the notebook's own functions that it calls) can reach is compared with the
withheld functions themselves.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any


def used(withheld: Iterable[str], answers: Iterable[Any]) -> list[str]:
    """The dotted names among `withheld` that the answers' code can reach."""
    targets = {name: found for name in withheld if (found := _resolve(name)) is not None}
    reached = list(_reach(list(answers)))
    return [name for name, target in targets.items() if any(r is target for r in reached)]


def _resolve(dotted: str) -> Any:
    """The function of this name, if its module has been imported: an answer cannot have used one
    that has not."""
    module, _, attribute = dotted.rpartition(".")
    return getattr(sys.modules.get(module), attribute, None)


def _reach(todo: list[Any]) -> Iterator[Any]:
    """Every object that these functions and classes mention, through the functions defined beside
    them."""
    home = {getattr(a, "__module__", None) for a in todo}
    seen: set[int] = set()
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        yield thing
        if isinstance(thing, type) and thing.__module__ in home:
            todo += [*vars(thing).values(), *thing.__bases__]
        elif isinstance(thing, FunctionType) and thing.__module__ in home:
            todo += _mentioned(thing)
        elif isinstance(thing, property | staticmethod | classmethod):
            todo.append(thing.fget if isinstance(thing, property) else thing.__func__)


def _mentioned(function: FunctionType) -> list[Any]:
    names = {n for code in _codes(function.__code__) for n in code.co_names}
    found = [function.__globals__[n] for n in names if n in function.__globals__]
    found += [c.cell_contents for c in function.__closure__ or () if _filled(c)]
    found += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    found.append(getattr(function, "__wrapped__", None))
    modules = [m for m in found if isinstance(m, ModuleType)]
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
        modules += [m for m in members if isinstance(m, ModuleType)]
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
