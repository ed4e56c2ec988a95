"""What students get: a folder that works by itself, from a clone and an instructor's folders."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from twophase.checks import registry
from twophase.checks.manifest import FILE_NAME, HeldBack, Manifest
from twophase.checks.registry import Catalog
from twophase.grading.release import handout_texts
from twophase.grading.release.compose import compose
from twophase.grading.release.exercise_notebook import normalize, release, to_bytes, validate
from twophase.grading.release.leaks import AS_THEY_ARE
from twophase.grading.release.release import Source

KINDS = frozenset(
    {".py", ".json", ".safetensors", ".txt", ".css", ".js", ".html", ".yml", ".csv", ".typed"}
)
PACKAGE = "lib/twophase"
FORMAT = {"metadata": {}, "nbformat": 4, "nbformat_minor": 5}
NO_TOPIC = ("prove",)  # folders of checks/ that every release needs
MADE_BY_USE = {"__pycache__", ".venv", ".egg-info"}


@dataclass(frozen=True)
class Handout:
    """A release: its files by their paths, its manifest, and the model solutions (not in it)."""

    files: Mapping[str, bytes]
    manifest: Manifest
    solutions: Mapping[str, bytes]

    def differs(self, folder: Path) -> list[str]:
        """The files that `folder` and this release do not have alike."""
        files = (p for p in folder.rglob("*") if p.is_file() or p.is_symlink())
        there = {
            p.relative_to(folder).as_posix(): p
            for p in files
            if not MADE_BY_USE & {*p.relative_to(folder).parts, p.parent.suffix}
        }
        same = {n for n in there.keys() & self.files if there[n].read_bytes() == self.files[n]}
        return sorted((there.keys() | self.files.keys()) - same)


def make(root: Path, source: Source, topics: Sequence[str]) -> Handout:
    """The release of these topics, from the clone at `root`. The same input gives the same bytes.
    Raises ValueError."""
    for room in ("solutions", "exercises", PACKAGE):
        if not (root / room).is_dir():
            raise ValueError(f"{root} has no {room}/: a release is made in a clone of the course")
    catalog = source.catalog()
    made = {topic: _notebooks(topic, catalog, root) for topic in topics}
    released = {topic: to_bytes(exercises) for topic, (_, exercises) in made.items()}
    files = {f"exercises/{catalog.stem(t)}.ipynb": data for t, data in released.items()}
    files |= {name: (root / name).read_bytes() for name in AS_THEY_ARE}
    files |= dict(_package(root, topics)) | dict(_added(catalog))
    manifest = _manifest(catalog, released)
    files[FILE_NAME] = manifest.to_bytes()
    course = (root / "Makefile").read_text(encoding="utf-8")
    files["Makefile"] = handout_texts.makefile(course).encode("utf-8")
    files["README.md"] = handout_texts.readme(catalog, manifest).encode("utf-8")
    solutions = {topic: to_bytes(nb) for topic, (nb, _) in made.items()}
    return Handout(dict(sorted(files.items())), manifest, solutions)


def _notebooks(topic: str, catalog: Catalog, root: Path) -> tuple[NotebookNode, NotebookNode]:
    """A topic's model solutions with those of the folders, in canonical form and found valid; and
    what is released of them. Raises ValueError."""
    raw = compose(topic, catalog, root / "solutions")
    if not raw:
        raise ValueError(f"there is no notebook solutions/{catalog.stem(topic)}.ipynb in {root}")
    try:
        nb = normalize(nbformat.from_dict(FORMAT | {"cells": raw}), topic, catalog)
        validate(nb, topic, catalog)
        return nb, release(nb, catalog)
    # nbgrader raises RuntimeError for what it will not release
    except (RuntimeError, ValueError) as e:
        raise ValueError(f"{_where(topic, catalog)}: {e}") from None


def _where(topic: str, catalog: Catalog) -> str:
    """The notebooks that a topic's is made of: one of them has the mistake."""
    stem = catalog.stem(topic)
    own = [f"solutions/{stem}.ipynb"] if topic in registry.CHAPTERS else []
    added = [str(f.notebook(stem)) for f in catalog.folders() if topic in f.topics]
    return ", ".join(own + added)


def _package(root: Path, topics: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """The package without instructors' examples and the checks of topics that are not released."""
    for path in sorted((root / PACKAGE).rglob("*")):
        name = path.relative_to(root / PACKAGE)
        hidden = any(part.startswith((".", "__pycache__")) for part in name.parts)
        if hidden or path.suffix not in KINDS or path.is_symlink() or not path.is_file():
            continue
        room, *inner = name.parts
        if room == "checks" and len(inner) > 1 and inner[0] not in (*topics, *NO_TOPIC):
            continue
        # examples, and what an autograder's zip is made of
        if room == "grading" and len(inner) > 2:
            continue
        yield f"{PACKAGE}/{name.as_posix()}", path.read_bytes()


def _added(catalog: Catalog) -> Iterator[tuple[str, bytes]]:
    """The instructor's public exercises, without their solutions, where the registry finds them."""
    for number, folder in enumerate(catalog.checks, 1):
        for path in folder.modules():
            inside = path.relative_to(folder.folder).as_posix()
            yield f"{PACKAGE}/checks/{registry.ADDED.name}/{number}/{inside}", path.read_bytes()


def _manifest(catalog: Catalog, released: Mapping[str, bytes]) -> Manifest:
    held: dict[str, HeldBack] = {}
    for sibling, public in catalog.replaced().items():
        e = catalog.load(sibling)
        if e.topic in released:
            held[e.id] = HeldBack(e.id, e.title, e.points, e.minutes, e.entries, public)
    return Manifest(
        version=version("twophase"),
        notebooks={t: hashlib.sha256(data).hexdigest() for t, data in released.items()},
        exercises={t: tuple(catalog.ids(t)) for t in released},
        held_back=held,
        checks=tuple(f.digest for f in catalog.checks),
        variants=catalog.variants.digest if catalog.variants else "",
    )
