"""What was handed in: which files are submissions, whose they are, and when they came."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from twophase.grading import notebook
from twophase.grading.notebook import Unreadable


@dataclass(frozen=True)
class Submission:
    """One notebook that was handed in, or what lies in its place.

    `path` is a file on the disk; `members` leads from there into a zip, one number for each zip on the way. `name` is the path below the
    folder as text that can be printed, unique within a run. `student` and `submitted` (ISO 8601 with an offset) are empty if the layout does
    not tell them. `trouble` says why nothing can be read, if that is known already.
    """

    path: Path
    name: str
    student: str = ""
    submitted: str = ""
    members: tuple[int, ...] = ()
    trouble: str = ""

    def read(self) -> bytes:
        """The first bytes, one more than a notebook may have. Raises Unreadable."""
        if self.trouble:
            raise Unreadable(self.trouble)
        return notebook.read_bytes(self.path)


def find(folder: Path, layout: str = "auto") -> list[Submission]:
    """Every `.ipynb` below `folder`, whatever it turns out to be. Raises ValueError if there is none, or no such folder."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder; give the folder that holds the submissions")
    found = sorted(_walk(folder), key=os.fsencode)
    if not found:
        raise ValueError(f"there is no .ipynb file in {folder} or below it")
    return [Submission(p, _printable(p.relative_to(folder))) for p in found]


def _walk(folder: Path) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        named = [f for f in folders if f.endswith(".ipynb")]
        yield from (Path(here, f) for f in (*files, *named) if f.endswith(".ipynb"))
        folders[:] = [f for f in folders if f != ".ipynb_checkpoints" and f not in named]


def _printable(path: Path) -> str:
    return os.fsencode(path).decode("utf-8", "replace")
