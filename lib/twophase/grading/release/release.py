"""What was handed out, read from the released notebook: its exercises and its locked cells."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import takewhile
from pathlib import Path

import twophase
from twophase.checks import extra, manifest, prove, registry
from twophase.checks.exercise import Exercise
from twophase.checks.manifest import Manifest
from twophase.checks.registry import Catalog
from twophase.grading.errors import GraderFault, Unreadable
from twophase.grading.files.check_calls import checked
from twophase.grading.files.digests import checks_digest
from twophase.grading.files.notebook import Cell, Notebook, parse, read_notebook
from twophase.grading.release.compose import compose

SETUP = (
    "from twophase.lab import NotYet, check, hint, solution, progress\nimport math\nimport numpy as"
    " np\nimport torch\n"
)
SEVERAL = (
    "it asks for exercises of {}, and no cell has an id that says of which it is; hand in a"
    " notebook for each"
)


@dataclass(frozen=True)
class Release:
    """One assignment. `locked` are its ungraded locked code cells in order; those in `first` come
    before any answer.

    `held_back` are exercises that it asks and that cannot be judged here: their checks are with the
    instructor. `given` are the sources of its unlocked code cells, the answers' aside; `stubs` what
    stands in the answers' cells.
    """

    topic: str
    exercises: Mapping[str, Exercise]
    locked: Mapping[str, str]
    first: tuple[str, ...]
    digest: str
    held_back: tuple[str, ...] = ()
    given: frozenset[str] = frozenset()
    stubs: Mapping[str, str] = field(default_factory=dict)


def from_cells(
    topic: str,
    cells: tuple[Cell, ...],
    exercises: Mapping[str, Exercise],
    digest: str,
    held_back: Collection[str] = (),
) -> Release:
    """The release of a notebook of these cells: its check cells say what of `exercises` it asks.
    Raises ValueError if that is one without a check."""
    checks = [c.grade_id for c in cells if c.grade and c.grade_id.endswith("-check")]
    asked = [i.removesuffix("-check") for i in checks]
    unknown = [i for i in asked if i not in exercises and i not in held_back]
    if unknown:
        raise ValueError(f"the released notebook of {topic} asks {unknown[0]}, which has no check")
    locked = {c.grade_id: c.source for c in cells if _is_locked(c)}
    before = takewhile(lambda c: c.grade_id not in exercises, cells)
    first = tuple(c.grade_id for c in before if _is_locked(c))
    judged = {i: exercises[i] for i in asked if i in exercises}
    later = tuple(i for i in asked if i not in exercises)
    answers = [c for c in cells if c.grade_id in exercises]
    stubs = {c.grade_id: c.source.strip() for c in answers if "NotYet" in c.source}
    others = [c for c in cells if c.is_code and c.grade_id not in exercises]
    given = frozenset(c.source.strip() for c in others if not (c.locked or c.grade))
    return Release(topic, judged, locked, first, digest, later, given, stubs)


def _is_locked(cell: Cell) -> bool:
    return cell.is_code and cell.locked and not cell.grade and cell.grade_id != ""


def course_root() -> Path:
    """The clone that this package runs from, or TWOPHASE_COURSE. It holds `exercises/`."""
    return Path(os.environ.get("TWOPHASE_COURSE") or Path(twophase.__path__[0]).parents[1])


@dataclass(frozen=True)
class Source:
    """Where a course's releases come from: what `--release`, `--checks` and `--variants` name. It
    pickles: paths, no more.

    Without `release` a notebook is put together from the course's own and the folders', as
    `twophase release` does it.
    """

    release: Path | None = None
    checks: tuple[Path, ...] = ()
    variants: Path | None = None

    def catalog(self) -> Catalog:
        """The exercises, the folders' included. Raises ValueError for a mistake in a folder."""
        return _catalog(self)

    def load(self, topic: str) -> Release:
        """The release of a topic. Raises GraderFault if its notebook or a check is wrong."""
        try:
            return _load(self, topic)
        except ValueError as e:
            raise GraderFault(str(e)) from None

    def digest(self, topic: str) -> str:
        """The digest of the topic's release; no check is loaded for it. Raises ValueError."""
        return _release_digest(self, topic, _notebook(self, topic))

    def topics(self) -> list[str]:
        """The topics that it has, in the order of the chapters."""
        given = self.manifest()
        return [t for t in self.catalog().topics() if given is None or t in given.notebooks]

    def topic_of(self, notebook: Notebook, name: str) -> str:
        """The topic of most of its grade_ids; if it has none, of all its calls of checks, of its
        name's beginning, of what its name has in it. Raises Unreadable."""
        known = self.topics()
        found = Counter(t for c in notebook.cells if (t := c.grade_id.split("-", 1)[0]) in known)
        if found:
            return found.most_common(1)[0][0]
        asked = self._asked(notebook)
        named = {t for t in known if name.startswith(self.catalog().stem(t))}
        told = asked if len(asked) == 1 else named or self._in_name(name)
        if len(told) == 1 and told <= {*known}:
            return told.pop()
        if len(asked) > 1:
            raise Unreadable(SEVERAL.format(" and ".join(sorted(asked))))
        raise Unreadable(
            "no cell of it belongs to an exercise of this course, by its id, a check that it calls,"
            " or the notebook's name: keep that, such as 03_kv_cache.ipynb"
        )

    def besides(self, notebook: Notebook, topic: str) -> dict[str, int]:
        """The other topics of which a notebook has exercises, and how many: those are not graded if
        it is of `topic`."""
        ids = {c.grade_id.removesuffix("-check") for c in notebook.cells if c.is_code}
        ids.update(i for c in notebook.cells if c.is_code for i in checked(c.source))
        catalog = self.catalog()
        others = {t: {*catalog.ids(t), *catalog.listed_ids(t)} for t in self.topics() if t != topic}
        return {t: len(ids & asked) for t, asked in others.items() if ids & asked}

    def _asked(self, notebook: Notebook) -> set[str]:
        """The topics of the course whose checks a notebook calls, released or not."""
        ids = [i for c in notebook.cells if c.is_code for i in checked(c.source)]
        return {i.partition("-")[0] for i in ids} & {*self.catalog().names()}

    def _in_name(self, name: str) -> set[str]:
        """The topics of the course whose notebook's name is part of this one: a copy's, say."""
        stems = {t: self.catalog().stem(t) for t in self.catalog().names()}
        return {t for t, stem in stems.items() if re.search(rf"(?<!\d){stem}", name)}

    def private(self) -> tuple[Path, ...]:
        """The instructor's folders: no submission may read anything in them."""
        return tuple(p for p in (self.release, *self.checks, self.variants) if p is not None)

    def folder(self) -> Path | None:
        """The release's folder: the one given, or the one that this package lies in, if any."""
        root = course_root()
        return self.release or (root if (root / manifest.FILE_NAME).is_file() else None)

    def manifest(self) -> Manifest | None:
        """What the release says of itself. Raises ValueError if a release was given and is none."""
        folder = self.folder()
        return manifest.read(folder) if folder else None

    def validate(self) -> None:
        """Load everything once, before anything is graded. Raises ValueError for a mistake."""
        given, catalog = self.manifest(), self.catalog()
        if given is not None:
            _require_same(given, catalog, f"{self.folder()}")
        touched = {t for folder in catalog.folders() for t in folder.topics}
        for topic in [t for t in self.topics() if given is not None or t in touched]:
            _load(self, topic)
        for folder in catalog.folders():
            for exercise_id in folder.ids():
                if wrong := prove.reference(folder.load(exercise_id)):
                    raise ValueError(f"{folder.path_of(exercise_id)}: {wrong}")


@cache
def _catalog(source: Source) -> Catalog:
    if not source.checks and source.variants is None:
        return registry.COURSE
    held = extra.read(source.variants) if source.variants else None
    # this package may be a release that has them already
    there = {folder.digest for folder in registry.COURSE.checks}
    given = [folder for path in source.checks if (folder := extra.read(path)).digest not in there]
    return Catalog([*registry.COURSE.checks, *given], held)


def _require_same(given: Manifest, catalog: Catalog, where: str) -> None:
    """The release must have been made of the folders that grade it. Raises ValueError."""
    checks = tuple(c.digest for c in catalog.checks)
    variants = catalog.variants.digest if catalog.variants else ""
    options = ("--checks", given.checks, checks), ("--variants", given.variants, variants)
    for option, made_of, now in options:
        if made_of != now:
            how = f"with another {option}, or it was edited since: release anew"
            if not now:
                how = f"with {option}; give the same folder here"
            if not made_of:
                how = f"without {option}; leave it out here, or release anew"
            raise ValueError(f"the release in {where} was made {how}")


@cache
def _load(source: Source, topic: str) -> Release:
    catalog, given = source.catalog(), source.manifest()
    exercises = {e.id: e for e in catalog.load_topic(topic)}
    notebook = _notebook(source, topic)
    digest = _release_digest(source, topic, notebook)
    if given is not None and given.notebooks.get(topic) != notebook.digest:
        raise ValueError(
            f"the notebook of {topic} in {source.folder()} is not as it was released; release anew"
        )
    later = frozenset(given.held_back) - frozenset(exercises) if given else ()
    return from_cells(topic, notebook.cells, exercises, digest, later)


def _release_digest(source: Source, topic: str, notebook: Notebook) -> str:
    return f"{notebook.digest[:32]}{checks_digest(topic, source.catalog().folders())[:32]}"


def _notebook(source: Source, topic: str) -> Notebook:
    """The released notebook of a topic. Raises ValueError if it is missing or cannot be read."""
    catalog, folder = source.catalog(), source.folder()
    name = f"{catalog.stem(topic)}.ipynb"
    own = (course_root() / "exercises", course_root() / "solutions")
    rooms = (folder / "exercises",) if folder else own
    room = next((r for r in rooms if (r / name).is_file()), None)
    if folder is None and any(topic in f.topics for f in catalog.folders()):
        cells = compose(topic, catalog, room)
        return parse(json.dumps({"cells": cells}, sort_keys=True).encode("utf-8"))
    if room is None and folder is None:  # the package alone
        asked = (
            Cell("code", f'check("{i}")', f"{i}-check", grade=True, locked=True)
            for i in catalog.ids(topic)
        )
        return Notebook((Cell("code", SETUP, f"{topic}-setup", locked=True), *asked), "0" * 64)
    path = (room or rooms[0]) / name
    try:
        return read_notebook(path)
    except Unreadable as e:
        raise ValueError(f"the released notebook {path} cannot be read: {e}") from None
