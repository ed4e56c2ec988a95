"""Reading a notebook that somebody else wrote, in any format since 2011, without believing it."""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from twophase.grading.errors import Unreadable
from twophase.grading.files import no_json

T = TypeVar("T")
MAX_BYTES = 8 * 2**20
MAX_CELLS = 2_000
# what some editors of Windows begin a file with
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
DAMAGED = "it is damaged, or not what its name says ({}); save it again, and hand that in"
NO_CELLS = "it is JSON, and no notebook: it has no cells"


@contextmanager
def isolated(says: str = DAMAGED) -> Iterator[None]:
    """Around whatever reads one person's data: all that it raises becomes Unreadable, a sentence
    about that person, in which {} is the error's name, and the next one's turn comes.

    Any Exception, since nobody can list what a library raises on bytes that are not what they claim
    to be: zipfile alone knows ten.
    """
    try:
        yield
    except Unreadable:
        raise
    except Exception as e:
        raise Unreadable(says.format(type(e).__name__)) from None


@dataclass(frozen=True)
class Cell:
    """One cell: its kind, its text, and what nbgrader's metadata says of it."""

    kind: str
    source: str
    grade_id: str = ""
    grade: bool = False
    locked: bool = False

    @property
    def is_code(self) -> bool:
        return self.kind == "code"


@dataclass(frozen=True)
class Notebook:
    """A notebook's cells and the SHA-256 of its bytes."""

    cells: tuple[Cell, ...]
    digest: str


def read_notebook(path: Path) -> Notebook:
    """The notebook at `path`. Raises Unreadable, with the reason, and nothing else."""
    return parse(read_bytes(path))


def read_bytes(path: Path) -> bytes:
    """The file's first bytes, one more than a notebook may have. Raises Unreadable."""
    try:
        with open(open_regular(path), "rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as e:
        raise Unreadable(f"it cannot be opened ({e.strerror})") from None


def open_regular(path: Path) -> int:
    """The descriptor of a regular file, to read from. Raises Unreadable for anything else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as e:
        if os.path.islink(path):
            raise Unreadable("it is a link, and links are not followed") from None
        raise Unreadable(f"it cannot be opened ({e.strerror})") from None
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode):
        return fd
    os.close(fd)
    if stat.S_ISDIR(mode):
        raise Unreadable("it is a folder, not a file")
    raise Unreadable("it is no file (a folder, a pipe or a device has its name)")


def parse(data: bytes) -> Notebook:
    """The notebook in these bytes. Raises Unreadable, and nothing else, on any bytes."""
    if len(data) > MAX_BYTES:
        raise Unreadable(
            f"it is larger than {MAX_BYTES // 2**20} MiB; clear its outputs and save it again"
        )
    if not data.strip():
        raise Unreadable("it is empty")
    digest = hashlib.sha256(data).hexdigest()
    with isolated():
        found = raw_cells(data)
        if len(found) > MAX_CELLS:
            raise Unreadable(f"it has more than {MAX_CELLS} cells")
        return Notebook(tuple(_cell(c) for c in found), digest)


def tree(data: bytes) -> Any:
    """The JSON in a notebook's bytes, whatever it is. Raises Unreadable."""
    text = data.decode("utf-16" if data[:2] in UTF_16 else "utf-8-sig", "replace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError, MemoryError) as e:
        raise Unreadable(no_json.sentence(data, text, e)) from None


def raw_cells(data: bytes) -> list[Any]:
    """The cells as JSON: format 4 has them at the top, 3 in worksheets. Raises Unreadable."""
    top = tree(data)
    if not isinstance(top, dict):
        raise Unreadable(NO_CELLS)
    sheets = [top] if isinstance(top.get("cells"), list) else top.get("worksheets")
    if not isinstance(sheets, list):
        raise Unreadable(NO_CELLS)
    return [cell for sheet in sheets for cell in value_at(sheet, "cells", list)]


def source_of(raw: dict[str, Any]) -> str:
    """A cell's source in one string, whether it is one or a list of lines, as Python reads it: with
    "\\n" where lines end, whatever editor it comes from."""
    source = raw.get("source", raw.get("input", ""))
    if isinstance(source, list):
        source = "".join(s for s in source if isinstance(s, str))
    return source.replace("\r\n", "\n").replace("\r", "\n") if isinstance(source, str) else ""


def value_at(tree: Any, key: str, kind: type[T]) -> T:
    """What JSON that somebody else wrote has at a key; an empty `kind` if it has no such thing, or
    one of another kind, or if it is no mapping."""
    found = tree.get(key) if isinstance(tree, dict) else None
    return found if isinstance(found, kind) else kind()


def marks_of(raw: Any) -> dict[str, Any]:
    """A cell's metadata of nbgrader's."""
    return value_at(value_at(raw, "metadata", dict), "nbgrader", dict)


def grade_id(raw: Any) -> str:
    """A cell's nbgrader id, or ""."""
    return value_at(marks_of(raw), "grade_id", str)


def _cell(raw: Any) -> Cell:
    """One cell, whatever it is: what has the wrong type counts as absent."""
    marks = marks_of(raw)
    return Cell(
        kind=value_at(raw, "cell_type", str) or "unknown",
        source=source_of(raw) if isinstance(raw, dict) else "",
        grade_id=grade_id(raw),
        grade=marks.get("grade") is True,
        locked=marks.get("locked") is True,
    )
