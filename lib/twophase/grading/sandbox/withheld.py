"""What a submission's process has of this package: `lab`, which its notebook imports, and
`protocol`. All else is not in its memory.

An answer is Python, numpy and torch. A function of the library is the answer to some exercise, or
is one with two others; a list of those that are was never complete. So none is there: a name of the
library can be imported, as a notebook's own cells for the clock do, and says so when it is used.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from twophase.protocol import Withheld

PACKAGE = "twophase"
KEPT = ("twophase.lab", "twophase.protocol")
PEERS = ("transformers", "gguf")  # libraries that have what is asked for ready-made
OURS = ("twophase.checks", "twophase.grading", "twophase.cli")
REFUSED = {
    OURS: "the official grader keeps it in another process",
    PEERS: "it has answers to exercises of this course",
}
USES = (  # whatever one does with a name
    "call getitem iter len contains enter mro_entries bool float int index eq lt le gt ge"
    " add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod pow rpow matmul rmatmul"
    " neg instancecheck subclasscheck"
)


class Absent:
    """A name of the library. Whoever uses it is told."""

    def __init__(self, dotted: str) -> None:
        self._dotted = dotted

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):  # what Python looks for by itself
            raise AttributeError(name)
        return Absent(f"{self._dotted}.{name}")

    def __or__(self, other: object) -> Absent:  # an annotation: Config | None
        return self

    __ror__ = __or__
    __hash__ = object.__hash__


def _used(absent: Absent, *args: Any, **kwargs: Any) -> Any:
    raise Withheld(
        f"{absent._dotted} is not available here: where an answer is graded there is nothing of the"
        " course's library; write that part yourself."
    )


for _name in USES.split():
    setattr(Absent, f"__{_name}__", _used)


class AbsentModule(ModuleType):
    """A module of the library: every name in it is absent."""

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")


class Finder(MetaPathFinder, Loader):
    """Finds absent modules for the library's, what is `kept` of it once more, and refuses the
    checks, the grader and libraries that have the answers."""

    def __init__(self, kept: dict[str, ModuleType]) -> None:
        self.kept = kept

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name in self.kept:  # taken out of `sys.modules`, or reloaded
            return ModuleSpec(name, self, is_package=hasattr(self.kept[name], "__path__"))
        for packages, why in REFUSED.items():
            if _inside(name, packages):
                raise Withheld(f"{name} is not available here: {why}.")
        if not _inside(name, (PACKAGE,)) or name in sys.modules:
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.kept.get(spec.name) or AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def leave_out() -> None:
    """Take all of the package but what is kept out of reach, for good: what is loaded of it, which
    is the grader's own, and what could be."""
    kept = (PACKAGE, *KEPT)
    for name in [n for n in sys.modules if _inside(n, (PACKAGE,))]:
        if name != PACKAGE and not _inside(name, KEPT):
            del sys.modules[name]
            room, _, own = name.rpartition(".")
            if room in kept:
                vars(sys.modules[room]).pop(own, None)
    sys.meta_path.insert(0, Finder({n: m for n, m in sys.modules.items() if _inside(n, KEPT)}))


def _inside(name: str, packages: tuple[str, ...]) -> bool:
    """Whether a module is one of these packages, or lies in one."""
    return any(name == package or name.startswith(package + ".") for package in packages)
