"""`release.json`: what a release says about itself, to the student's notebook and to the grader.
Nothing in it is secret."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FILE_NAME = "release.json"
SCHEMA = 1


@dataclass(frozen=True)
class HeldBack:
    """An exercise that is judged after handing in: its check is not in the release."""

    id: str
    title: str
    points: int
    minutes: int
    entries: tuple[str, ...]
    replaces: str


@dataclass(frozen=True)
class Manifest:
    """A release: its topics' notebooks (SHA-256) and exercises, and of what it was made."""

    version: str
    notebooks: Mapping[str, str]
    exercises: Mapping[str, tuple[str, ...]]
    held_back: Mapping[str, HeldBack]
    checks: tuple[str, ...]  # the digests of the instructor's folders
    variants: str

    def to_bytes(self) -> bytes:
        """The same bytes for the same release."""
        tree = {"schema": SCHEMA, **asdict(self)}
        return (json.dumps(tree, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode(
            "utf-8"
        )


def read(folder: Path) -> Manifest:
    """The manifest in a release's folder. Raises ValueError, with the path, if there is none or it
    is damaged."""
    path = folder / FILE_NAME
    try:
        return _parse(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(
            f"{folder} is no release: it has no {FILE_NAME}; make one with `twophase release --out"
            f" {folder}`"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise ValueError(
            f"{path} cannot be read ({type(e).__name__}); take it from the release again"
        ) from None


def installed() -> Manifest | None:
    """The manifest of the release that this package lies in; None in a clone of the course."""
    root = Path(__file__).parents[3]
    return read(root) if (root / FILE_NAME).is_file() else None


def _parse(tree: Any) -> Manifest:
    if tree["schema"] != SCHEMA:
        raise ValueError("another schema")
    held = {
        i: HeldBack(**{**h, "entries": tuple(h["entries"])}) for i, h in tree["held_back"].items()
    }
    return Manifest(
        version=str(tree["version"]),
        notebooks={str(t): str(d) for t, d in tree["notebooks"].items()},
        exercises={str(t): tuple(map(str, ids)) for t, ids in tree["exercises"].items()},
        held_back=held,
        checks=tuple(map(str, tree["checks"])),
        variants=str(tree["variants"]),
    )
