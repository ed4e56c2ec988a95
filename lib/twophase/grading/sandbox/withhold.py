"""Taking things away from the worker, in the zygote that it is forked from: the checks, the grader,
and the answers.

A withheld function loses its code, not only its name: the function object itself is emptied, so
that a second name, a closure, a decorator's `__wrapped__` or a walk through the garbage collector
find a function that says that it is withheld.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from twophase.protocol import Withheld

MESSAGE = "(why it is withheld)"
# where a decorator keeps the function: functools, methods, properties, Numba, our own
WRAPPED = (
    "__wrapped__",
    "__func__",
    "fget",
    "fset",
    "py_func",
    "func",
    "compute",
    "serial",
    "parallel",
)
REFUSED = ("twophase.checks", "twophase.grading", "twophase.cli")
PEERS = ("transformers", "gguf")  # libraries that have what is asked for ready-made


class Refuse:
    """An import finder that refuses the checks and the grader, libraries that have the answers, and
    a second reading of a module that an answer was taken from."""

    def __init__(self, emptied: frozenset[str]) -> None:
        self._emptied = emptied

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if _inside(name, REFUSED):
            raise Withheld(
                f"{name} is not available here: the official grader keeps it in another process."
            )
        if _inside(name, PEERS):
            raise Withheld(
                f"{name} is not available here: it has answers to exercises of this course."
            )
        if name in self._emptied:
            raise Withheld(
                f"{name} cannot be loaded again here: an answer to this notebook has been taken out"
                " of it."
            )
        return None


def _inside(name: str, packages: tuple[str, ...]) -> bool:
    """Whether a module is one of these packages, or lies in one."""
    return any(name == package or name.startswith(package + ".") for package in packages)


class Library:
    """Under which names the package knows every function and class."""

    def __init__(self) -> None:
        self.modules = {n: m for n, m in list(sys.modules.items()) if n.split(".")[0] == "twophase"}
        self.refused = [n for n in self.modules if _inside(n, REFUSED)]
        self._places: dict[int, list[tuple[dict[str, Any], str]]] = {}
        for names in map(vars, self.modules.values()):
            for name, value in names.items():
                # or a compiled loop, or a table of answers
                if callable(value) or hasattr(value, "serial") or isinstance(value, dict):
                    self._places.setdefault(id(value), []).append((names, name))

    def replace(self, found: Any, stub: Any) -> None:
        """Put `stub` under every name that `found` has."""
        for names, name in self._places.get(id(found), ()):
            names[name] = stub


def withhold(names: Iterable[str], library: Library | None = None) -> list[str]:
    """Empty the functions and classes of these dotted names and refuse the imports above. Returns
    the names that were not found."""
    library = library or Library()
    missing, emptied = [], set()
    for dotted in names:
        module, _, attribute = dotted.rpartition(".")
        found = getattr(library.modules.get(module), attribute, None)
        if found is None:
            missing.append(dotted)
            continue
        emptied.add(module)
        message = (
            f"{dotted} is not available here: it is the answer to an exercise of this notebook."
        )
        library.replace(
            found, WithheldClass(message) if isinstance(found, type) else _stub(message)
        )
        _empty(found, message)
    for name in library.refused:
        del sys.modules[name]
    for r in REFUSED:
        vars(library.modules["twophase"]).pop(r.split(".")[1], None)
    sys.meta_path.insert(0, Refuse(frozenset(emptied)))
    return missing


class WithheldClass:
    """In the place of a class: whoever makes one, or asks for a method of it, is told."""

    def __init__(self, message: str) -> None:
        self._message = message

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise Withheld(self._message)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python looks for by itself
            raise AttributeError(name)
        raise Withheld(self._message)


def _stub(message: str) -> Any:
    def withheld(*args: Any, **kwargs: Any) -> Any:
        raise Withheld(message)

    return withheld


def _empty(thing: Any, message: str, depth: int = 0) -> None:
    """Take the code out of a function or of every function of a class, through whatever wraps
    it."""
    if depth > 10:
        return
    if isinstance(thing, FunctionType):
        thing.__code__ = _hollow(message, thing.__code__)
    elif isinstance(thing, type):
        for value in list(vars(thing).values()):
            _empty(value, message, depth + 1)
    elif isinstance(thing, dict) and not depth:  # a table; a class's own dicts name other classes
        for value in thing.values():
            _empty(value, message, depth + 1)
        thing.clear()
    for inner in _wrapped(thing):
        _empty(inner, message, depth + 1)
    if hasattr(thing, "cache_clear"):
        thing.cache_clear()


def _wrapped(thing: Any) -> Iterator[Any]:
    if isinstance(thing, type):
        return
    for name in WRAPPED:
        inner = getattr(thing, name, None)
        if inner is not None and inner is not thing:
            yield inner


def _hollow(message: str, old: CodeType) -> CodeType:
    """Code that raises Withheld, with as many free variables as the code that it replaces."""
    hollow = _hollow_with(len(old.co_freevars))
    return hollow.replace(co_consts=tuple(message if c == MESSAGE else c for c in hollow.co_consts))


@cache
def _hollow_with(n_free: int) -> CodeType:
    """The same with MESSAGE in the message's place: compiled once, before the fork."""
    free = [f"v{i}" for i in range(n_free)]
    lines = ["def outer():"]
    lines += [f"    {v} = None" for v in free]
    lines += ["    def withheld(*args, **kwargs):"]
    lines += [f"        if 0: {v}" for v in free]
    lines += [
        "        raise __import__('twophase.protocol',"
        f" fromlist=['Withheld']).Withheld({MESSAGE!r})"
    ]
    lines += ["    return withheld"]
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)
    code: CodeType = names["outer"]().__code__
    return code


for _n in range(3):
    _hollow_with(_n)
