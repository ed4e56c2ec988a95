"""Zips that somebody else made: nothing is written to the disk, no declared size is believed.

A member is known by its number in the zip's directory, not by its name: two may have the same one.
"""

from __future__ import annotations

import io
import os
import stat
import zipfile
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from unicodedata import category

from twophase.grading.errors import Unreadable
from twophase.grading.files.notebook import MAX_BYTES, isolated, open_regular
from twophase.grading.intake.trees import DEEPEST, Node, below, skipped

DEPTH = 3  # a download of a class, a student's zip in it, one more in that
INNER_BYTES = 32 * 2**20  # a zip in a zip is unpacked into memory
INNER_TOTAL = 16 * INNER_BYTES  # all zips in one student's zip
DIRECTORY_BYTES, MEMBERS = 2**20, 5_000  # of a zip that a student may have made
CLASS_DIRECTORY_BYTES, CLASS_MEMBERS = 2**25, 200_000  # of the zip that the command was given
CHUNK = 2**16
CROWDED = "it is a zip with too many files in it; hand in the notebook itself"
NO_ZIP = "it is no zip, or a damaged one; make it again, or hand in the notebook itself"
DAMAGED_MEMBER = "it is damaged in its zip ({}); hand it in again"
NAMELESS = "(a file without a name)"


class _Careful(io.BufferedReader):
    """A file that gives at most `most` bytes at a time: zipfile reads a directory in one go."""

    most = DIRECTORY_BYTES

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = self.most + 1 if size is None or size < 0 else min(size, self.most + 1)
        data = super().read(wanted)
        if len(data) > self.most:
            raise Unreadable(CROWDED)
        return data


class Budget:
    """How much one student's zip may still hold, with all zips in it. It never goes up again."""

    def __init__(self) -> None:
        self.members, self.bytes = MEMBERS, INNER_TOTAL

    def spend(self, members: int = 0, n_bytes: int = 0) -> None:
        """Raises Unreadable when there is nothing left."""
        self.members -= members
        self.bytes -= n_bytes
        if self.members < 0:
            raise Unreadable(CROWDED)
        if self.bytes < 0:
            size = f"larger than {INNER_TOTAL // 2**20} MiB together"
            raise Unreadable(f"the zips in its zip are {size}; hand in the notebook itself")


def list_members(node: Node, whole_class: bool = False) -> None:
    """Put what is in a zip and its zips into `node.inside`; or why that fails into `trouble`."""
    try:
        with isolated(), _file(node.path) as file:
            _fill(node, file, None if whole_class else Budget(), depth=1)
    except Unreadable as e:
        node.inside, node.trouble = [], str(e)


def read_member(path: Path, members: tuple[int, ...], most: int = MAX_BYTES + 1) -> bytes:
    """The first `most` bytes of a file, a zip's member, or (with several numbers) one of a zip in
    it. Raises Unreadable."""
    with isolated(), ExitStack() as inner:
        if not members:
            file = inner.enter_context(_file(path))
            file.most = most
            return file.read(most)
        z = _outer(path)
        for number in members[:-1]:
            data = _inner(z, number)
            z = inner.enter_context(_zip(_Careful(io.BytesIO(data)), whole_class=True))
        return _member(z, members[-1], most)


def _outer(path: Path) -> zipfile.ZipFile:
    try:
        at = os.stat(path, follow_symlinks=False)
    except OSError as e:
        raise Unreadable(f"it cannot be opened ({e.strerror})") from None
    return _kept(path, at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns)


@lru_cache(1)
def _kept(path: Path, *which: int) -> zipfile.ZipFile:
    """The zip that was read last, still open: to read a directory of thousands takes 30 ms."""
    return _zip(_file(path), whole_class=True)


def _fill(node: Node, file: _Careful, budget: Budget | None, depth: int) -> None:
    """`budget` None: the zip of a whole class, where each zip in it has its own."""
    folders = {"": node}
    with _zip(file, whole_class=budget is None) as z:
        there = z.infolist()
        if budget is not None:
            budget.spend(members=len(there))
        elif len(there) > CLASS_MEMBERS:
            raise Unreadable(CROWDED)
        for number, info in enumerate(there):
            parts = _parts(info)
            if not parts or any(skipped(p) for p in parts):
                continue
            parent = _folder(folders, node, parts[:-1])
            child = Node(below(parent.name, parts[-1]), "file", node.path, (*node.members, number))
            child.trouble = _refused(info) if parts[-1].lower().endswith((".ipynb", ".zip")) else ""
            parent.inside.append(child)
            if parts[-1].lower().endswith(".zip"):
                child.kind = "zip"
                if not child.trouble:
                    _fill_inner(child, z, budget or Budget(), depth + 1)


def _fill_inner(node: Node, z: zipfile.ZipFile, budget: Budget, depth: int) -> None:
    try:
        if depth > DEPTH:
            raise Unreadable(
                "it is a zip in a zip in a zip, which is not opened; hand in the notebook itself"
            )
        with isolated():
            data = _inner(z, node.members[-1])
            budget.spend(n_bytes=len(data))
            _fill(node, _Careful(io.BytesIO(data)), budget, depth)
    except Unreadable as e:
        node.inside, node.trouble = [], str(e)


def _folder(folders: dict[str, Node], top: Node, parts: list[str]) -> Node:
    """The node of a folder in a zip, made if it is not in `folders` (by path in the zip) yet."""
    parent, key = top, ""
    for part in parts:
        key = below(key, part)
        if key not in folders:
            folders[key] = Node(below(parent.name, part), "folder", top.path, top.members)
            parent.inside.append(folders[key])
        parent = folders[key]
    return parent


def _parts(info: zipfile.ZipInfo) -> list[str]:
    """The parts of a file's name, none for a folder: nothing leads upwards or to the root, and
    there are no control characters. `info.is_dir()` is not asked: it raises for an empty name."""
    name = info.orig_filename
    if not info.flag_bits & 0x800:  # not marked as UTF-8; many programs write UTF-8 all the same
        try:
            name = name.encode("cp437").decode("utf-8")
        except UnicodeError:
            name = info.orig_filename
    name = "".join("\N{REPLACEMENT CHARACTER}" if category(c) in ("Cc", "Cs") else c for c in name)
    name = name.replace("\\", "/")
    if name.endswith("/"):
        return []
    parts = [p for p in name.split("/") if p not in ("", ".", "..")] or [NAMELESS]
    return parts if len(parts) <= DEEPEST else [*parts[:DEEPEST], parts[-1]]


def _refused(info: zipfile.ZipInfo) -> str:
    """Why a member cannot be read, known from the directory alone; empty if nothing is wrong."""
    if stat.S_ISLNK(info.external_attr >> 16):
        return "it is a link, and links are not followed"
    if info.flag_bits & 0x1:
        return "it is encrypted; hand it in without a password"
    # of others, 4 KiB may become gigabytes at once
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        instead = "use an ordinary zip, or hand in the notebook itself"
        return f"it is compressed in a way that is not supported; {instead}"
    return ""


def _member(z: zipfile.ZipFile, number: int, most: int) -> bytes:
    """The first `most` bytes of a member. Raises Unreadable, also if the zip has changed."""
    members = z.infolist()
    if number >= len(members):
        raise Unreadable("its zip has changed since the run began")
    if refused := _refused(members[number]):
        raise Unreadable(refused)
    data = bytearray()
    with isolated(DAMAGED_MEMBER), z.open(members[number]) as f:
        while len(data) < most and (chunk := f.read(min(CHUNK, most - len(data)))):
            data += chunk
    return bytes(data)


def _inner(z: zipfile.ZipFile, number: int) -> bytes:
    data = _member(z, number, INNER_BYTES + 1)
    if len(data) > INNER_BYTES:
        size = f"larger than {INNER_BYTES // 2**20} MiB"
        raise Unreadable(f"it is a zip in a zip and {size}; hand in the notebook itself")
    return data


def _file(path: Path) -> _Careful:
    """A regular file, open. Raises Unreadable for anything else."""
    return _Careful(io.FileIO(open_regular(path)))


def _zip(file: _Careful, whole_class: bool) -> zipfile.ZipFile:
    """A zip with its directory read. Raises Unreadable if there is none, or an enormous one."""
    file.most = CLASS_DIRECTORY_BYTES if whole_class else DIRECTORY_BYTES
    with isolated(NO_ZIP):
        return zipfile.ZipFile(file)
