"""The words of a release, from the templates in texts/: its README for students, and a Makefile
with the course's own recipe for installing."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from twophase.checks.manifest import Manifest
from twophase.checks.registry import Catalog

TEXTS = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("texts")),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
KEPT = ("PYTHON", "TORCH_INDEX", "BIN", "READY")


def makefile(course: str) -> str:
    """The students' Makefile: how to install, from the course's, and what works without its rooms.
    Raises ValueError if the course's no longer has these parts."""
    blocks = course.split("\n\n")
    found = {}
    for part, begins in (("variables", "PYTHON ?="), ("install", "$(READY):"), ("lab", "lab:")):
        block = next((b for b in blocks if b.startswith(begins)), None)
        if block is None:
            absent = f"no block that begins with {begins!r}, which a release takes over"
            raise ValueError(f"the course's Makefile has {absent}")
        found[part] = block.strip("\n")
    lines = found["variables"].splitlines()
    found["variables"] = "\n".join(line for line in lines if line.split(" ")[0] in KEPT)
    return TEXTS.get_template("makefile.txt").render(found)


def readme(catalog: Catalog, manifest: Manifest) -> str:
    """What a student reads first: how to install, work, check, hand in; what there is to do."""
    topics = [t for t in catalog.topics() if t in manifest.notebooks]
    ids = [i for t in topics for i in manifest.exercises[t]]
    return TEXTS.get_template("readme.txt").render(
        notebooks={catalog.stem(t): [*map(catalog.load, manifest.exercises[t])] for t in topics},
        held=[f"`{i}`" for i in ids if i in manifest.held_back],
        example=next((i for i in ids if i not in manifest.held_back), ids[0]),
        first=catalog.stem(topics[0]),
    )
