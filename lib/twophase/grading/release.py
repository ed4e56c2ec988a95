"""What was handed out: a topic's exercises, and the cells that a submission may not change. Read from the released notebook."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import twophase
from twophase.checks import registry
from twophase.checks.exercise import Exercise
from twophase.grading.notebook import Cell, Notebook, Unreadable, read
from twophase.grading.session import GraderFault

SETUP = (
    "from twophase.lab import NotYet, check, hint, solution, progress\nimport math\nimport numpy as np\nimport torch\n"
)


@dataclass(frozen=True)
class Release:
    """One assignment. `locked` are its ungraded locked code cells in order; those in `first` come before any answer."""

    topic: str
    exercises: Mapping[str, Exercise]
    locked: Mapping[str, str]
    first: tuple[str, ...]
    digest: str

    @property
    def withholds(self) -> tuple[str, ...]:
        """Everything that any of its exercises withholds: all of it is absent from the worker."""
        return tuple(sorted({name for e in self.exercises.values() for name in e.withholds}))


def from_cells(topic: str, cells: tuple[Cell, ...], exercises: Mapping[str, Exercise], digest: str) -> Release:
    """The release whose notebook has these cells: its check cells say which of `exercises` it asks."""
    asked = [c.grade_id.removesuffix("-check") for c in cells if c.grade and c.grade_id.endswith("-check")]
    unknown = [i for i in asked if i not in exercises]
    if unknown:
        raise GraderFault(f"the released notebook of {topic} asks {unknown[0]}, which has no check")
    locked: dict[str, str] = {}
    first: list[str] = []
    answers_began = False
    for cell in cells:
        answers_began |= cell.grade_id in exercises
        if cell.is_code and cell.locked and not cell.grade and cell.grade_id:
            locked[cell.grade_id] = cell.source
            first += [] if answers_began else [cell.grade_id]
    return Release(topic, {i: exercises[i] for i in asked}, locked, tuple(first), digest)


def course_root() -> Path:
    """The clone that this package runs from, or TWOPHASE_COURSE. It holds `exercises/`."""
    return Path(os.environ.get("TWOPHASE_COURSE") or Path(twophase.__path__[0]).parents[1])


@cache
def load(topic: str) -> Release:
    """The release of a topic. Raises GraderFault if its notebook is not where it should be."""
    exercises = {e.id: e for e in registry.load_topic(topic)}
    digest = checks_digest(topic)
    for room in ("exercises", "solutions"):
        path = course_root() / room / f"{registry.stem(topic)}.ipynb"
        if path.is_file():
            try:
                notebook = read(path)
            except Unreadable as e:
                raise GraderFault(f"the released notebook {path} cannot be read: {e}") from None
            return from_cells(topic, notebook.cells, exercises, f"{notebook.digest[:32]}{digest[:32]}")
    setup = Cell("code", SETUP, f"{topic}-setup", locked=True)
    asked = tuple(Cell("code", f'check("{i}")', f"{i}-check", grade=True, locked=True) for i in exercises)
    return from_cells(topic, (setup, *asked), exercises, f"{'0' * 32}{digest[:32]}")


def checks_digest(topic: str) -> str:
    """One SHA-256 over everything that decides a verdict: the topic's checks and the judge."""
    checks = Path(registry.__file__).parent
    files = sorted(checks.glob("*.py")) + sorted((checks / topic).rglob("*.py"))
    return _digest(files, checks)


@cache
def library_digest() -> str:
    """One SHA-256 over the package's Python files: what a submission may import, and the grader."""
    root = Path(twophase.__path__[0])
    return _digest(sorted(root.rglob("*.py")), root)


def _digest(files: list[Path], root: Path) -> str:
    total = hashlib.sha256()
    for path in files:
        total.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def topic_of(notebook: Notebook, name: str) -> str:
    """The topic whose grade_ids the notebook has most of; by its file's name if it has none. Raises Unreadable."""
    known = set(registry.topics())
    found = Counter(t for c in notebook.cells if (t := c.grade_id.split("-", 1)[0]) in known)
    if found:
        return found.most_common(1)[0][0]
    named = [t for t in known if name.startswith(registry.stem(t))]
    if named:
        return named[0]
    raise Unreadable("no cell of it belongs to an exercise of this course")
