"""What of the package is a topic's own: no answer may be made of it where it is graded."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from functools import cache


@cache
def own_library(topic: str) -> tuple[str, ...]:
    """The dotted names of all functions and classes, private ones too, that the topic's modules in
    theory and kernels define: put together, they are answers as well."""
    found = [
        f"{name}.{attribute}"
        for room in ("theory", "kernels")
        for name in _modules(f"twophase.{room}.{topic}")
        for attribute, thing in vars(importlib.import_module(name)).items()
        if _made_there(thing, name)
    ]
    return tuple(sorted(found))


def _modules(name: str) -> list[str]:
    """The module of this name and those below it; none for an instructor's own topic."""
    if importlib.util.find_spec(name) is None:
        return []
    package = importlib.import_module(name)
    below = pkgutil.walk_packages(getattr(package, "__path__", []), f"{name}.")
    return [name, *(m.name for m in below)]


def _made_there(thing: object, module: str) -> bool:
    """Whether it is a function, a class or a compiled loop of that module, and no error."""
    loop = getattr(thing, "py_func", None) or getattr(thing, "serial", None)
    is_error = isinstance(thing, type) and issubclass(thing, BaseException)
    runs = callable(thing) or loop is not None
    return runs and not is_error and getattr(loop or thing, "__module__", None) == module
