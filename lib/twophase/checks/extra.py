"""Exercises that an instructor adds, from a folder outside the package: `read(folder)`.

The folder is laid out as twophase.checks is: `<topic>/__init__.py` with `ORDER`, one module per
exercise with `EXERCISE`. A topic of its own has `CHAPTER = 21` there. Held-back siblings say whose
place they take: `REPLACES = {"fewest_chips": "max_batch"}`. Its modules are imported under a
private name made from the folder's path; sys.path stays as it is. So a process that is started anew
reads the folder again and gets the same.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from twophase.checks.exercise import Exercise

NAME = re.compile(r"[a-z][a-z0-9_]*")
LONGEST_ID = 58  # nbformat allows 64 signs in a cell's id, and the check cell's ends with "-check"
NOTEBOOKS = "solutions"  # the folder's notebooks, beside its topics


@dataclass(frozen=True)
class Topic:
    """What a folder has of one topic: the slugs in teaching order, and which of the course's they
    replace."""

    name: str
    chapter: int | None
    order: tuple[str, ...]
    replaces: Mapping[str, str]


@dataclass(frozen=True)
class Extra:
    """A folder of exercises. `digest` is one SHA-256 over its Python files: what judges."""

    folder: Path
    package: str
    topics: Mapping[str, Topic]
    digest: str

    def load(self, exercise_id: str) -> Exercise:
        """The exercise of this id, which the folder has. Raises ValueError, with the path, if its
        module is none."""
        topic, _, slug = exercise_id.partition("-")
        path = self.path_of(exercise_id)
        if not path.is_file():
            raise ValueError(
                f"{path} is missing, and ORDER of {path.parent.name}/__init__.py names it"
            )
        exercise = getattr(_import(f"{self.package}.{topic}.{slug}", path), "EXERCISE", None)
        if not isinstance(exercise, Exercise):
            raise ValueError(
                f"{path} defines no EXERCISE = Exercise(...), which is what makes it an exercise"
            )
        if exercise.id != exercise_id:
            raise ValueError(
                f"{path}: the id {exercise.id!r} should be {exercise_id!r}, that is"
                " <topic>-<module>"
            )
        return exercise

    def modules(self) -> list[Path]:
        """Its Python files, those that its exercises share included."""
        return _modules(self.folder)

    def path_of(self, exercise_id: str) -> Path:
        """The module of an exercise."""
        topic, _, slug = exercise_id.partition("-")
        return self.folder / topic / f"{slug}.py"

    def ids(self) -> list[str]:
        """All its exercises, topic by topic, in teaching order."""
        return [f"{t.name}-{slug}" for t in self.topics.values() for slug in t.order]

    def notebook(self, stem: str) -> Path:
        """Where the folder has a topic's tasks and model solutions."""
        return self.folder / NOTEBOOKS / f"{stem}.ipynb"


def read(folder: Path) -> Extra:
    """The exercises of a folder, each topic's `ORDER` read. Raises ValueError, one sentence with
    the path, for any mistake."""
    return _read(folder.expanduser().resolve())


@cache
def _read(folder: Path) -> Extra:
    if not folder.is_dir():
        raise ValueError(
            f"{folder} is no folder; give the one that holds <topic>/__init__.py and {NOTEBOOKS}/"
        )
    package = _package(folder)
    places = [
        p
        for p in sorted(folder.iterdir())
        if p.is_dir() and p.name != NOTEBOOKS and any(p.glob("*.py"))
    ]
    topics = {p.name: _topic(p, package) for p in places}
    if not topics:
        raise ValueError(
            f"{folder} has no exercises: a topic is a folder in it with an __init__.py that defines"
            " ORDER"
        )
    return Extra(folder, package, topics, _digest(folder))


def _package(folder: Path) -> str:
    """A package of a private name whose modules are the folder's files."""
    digest = hashlib.sha256(str(folder).encode("utf-8", "surrogatepass")).hexdigest()
    name = f"twophase_extra_{digest[:16]}"
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules.setdefault(name, package)
    return name


def _topic(place: Path, package: str) -> Topic:
    init = place / "__init__.py"
    if not NAME.fullmatch(place.name):
        raise ValueError(
            f"{place}: a topic's name has small letters, digits and _ only, such as kv_cache"
        )
    if not init.is_file():
        raise ValueError(f"{init} is missing; it lists the topic's exercises: ORDER = (...)")
    module = _import(f"{package}.{place.name}", init)
    order = _order(getattr(module, "ORDER", None), init)
    chapter = getattr(module, "CHAPTER", None)
    if chapter is not None and (type(chapter) is not int or not 1 <= chapter <= 99):
        raise ValueError(f"{init}: CHAPTER is a whole number from 1 to 99; got {chapter!r}")
    strays = {p.stem for p in place.glob("*.py") if not p.stem.startswith("_")} - set(order)
    if strays:
        raise ValueError(
            f"{place / min(strays)}.py is not in ORDER; list it there, or begin its name with _"
        )
    return Topic(
        place.name, chapter, order, _replaces(getattr(module, "REPLACES", {}), order, init)
    )


def _order(order: Any, init: Path) -> tuple[str, ...]:
    if (
        not isinstance(order, tuple | list)
        or not order
        or not all(isinstance(s, str) for s in order)
    ):
        raise ValueError(
            f"{init} must define ORDER, the names of its modules in teaching order: ORDER ="
            ' ("first",)'
        )
    for slug in order:
        if not NAME.fullmatch(slug) or order.count(slug) > 1:
            raise ValueError(
                f"{init}: ORDER has {slug!r}; a name stands there once, in small letters, digits"
                " and _"
            )
        if len(f"{init.parent.name}-{slug}") > LONGEST_ID:
            raise ValueError(
                f"{init}: the id {init.parent.name}-{slug} has more than {LONGEST_ID} signs;"
                " shorten it"
            )
    return tuple(order)


def _replaces(replaces: Any, order: tuple[str, ...], init: Path) -> dict[str, str]:
    if not isinstance(replaces, Mapping) or not all(
        isinstance(s, str) for pair in replaces.items() for s in pair
    ):
        raise ValueError(
            f'{init}: REPLACES is a dict such as {{"mine": "max_batch"}}; got {replaces!r}'[:300]
        )
    for slug in replaces:
        if slug not in order:
            raise ValueError(f"{init}: REPLACES names {slug!r}, which is not in ORDER")
    if len(set(replaces.values())) < len(replaces):
        raise ValueError(f"{init}: REPLACES gives two siblings the place of the same exercise")
    return dict(replaces)


def _import(name: str, path: Path) -> ModuleType:
    """Import one module of the folder. Raises ValueError with its path for whatever is wrong with
    it."""
    try:
        return importlib.import_module(name)
    except SyntaxError as e:
        where = e.filename or path
        raise ValueError(f"{where}, line {e.lineno}: this is no Python: {e.msg}") from None
    except (Exception, SystemExit) as e:
        raise ValueError(f"{path} cannot be imported: {type(e).__name__}: {e}"[:500]) from e


def _modules(folder: Path) -> list[Path]:
    inside = ((p, p.relative_to(folder).parts) for p in folder.rglob("*.py"))
    return sorted(
        p
        for p, parts in inside
        if parts[0] != NOTEBOOKS and not any(part.startswith(".") for part in parts)
    )


def _digest(folder: Path) -> str:
    total = hashlib.sha256()
    for path in _modules(folder):
        name = path.relative_to(folder).as_posix().encode("utf-8", "surrogatepass")
        data = path.read_bytes()
        total.update(b"%d %d\n" % (len(name), len(data)) + name + data)
    return total.hexdigest()
