"""What lies in a folder, as a tree of names. Links are not followed; zips look like folders."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

DEEPEST = 40  # folders in folders; what lies deeper keeps its name and counts as lying there
SKIPPED = frozenset(
    {".ipynb_checkpoints", "__MACOSX", "__pycache__", ".DS_Store", "Thumbs.db", "desktop.ini"}
)


@dataclass
class Node:
    """A folder, a zip, or any other thing with a name.

    `name` is the path below the top, as text that can be printed; `path` and `members` say where it
    is (see Submission). `trouble`: why it cannot be looked into, in words that end a sentence.
    """

    name: str
    kind: Literal["folder", "zip", "file"]
    path: Path
    members: tuple[int, ...] = ()
    inside: list[Node] = field(default_factory=list)
    trouble: str = ""

    @property
    def own(self) -> str:
        """The last part of the name."""
        return self.name.rpartition("/")[2]

    @property
    def is_notebook(self) -> bool:
        return self.kind == "file" and self.own.lower().endswith(".ipynb")

    def all(self) -> Iterator[Node]:
        """This node and every one below it."""
        yield self
        for child in self.inside:
            yield from child.all()

    def child(self, own: str) -> Node | None:
        return next((c for c in self.inside if c.own == own), None)


def skipped(own: str) -> bool:
    """Whether a file or folder of this name is never handed in, but left behind by a program."""
    # the second: what macOS writes beside each file of a foreign disk
    return own in SKIPPED or own.startswith("._")


def below(parent: str, own: str) -> str:
    return f"{parent}/{own}" if parent else own


def walk(folder: Path) -> Node:
    """The tree of a folder. Files that end in .zip are `zip`, not opened yet."""
    top = Node("", "folder", folder)
    # a folder to look into, the node that takes what is found, and the folder's name
    todo = [(top, top, "")]
    while todo:
        node, into, name = todo.pop()
        try:
            entries = sorted(os.scandir(node.path), key=lambda e: os.fsencode(e.name))
        except OSError as e:
            node.trouble = f"it is a folder that cannot be opened ({e.strerror})"
            continue
        for entry in (e for e in entries if not skipped(e.name)):
            own = os.fsencode(entry.name).decode("utf-8", "replace")
            child = Node(below(name, own), "file", Path(entry.path))
            # one that is named like a notebook is one, and unreadable
            if _is_folder(entry) and not own.lower().endswith(".ipynb"):
                child.kind = "folder"
                deep = child.name.count("/") >= DEEPEST
                todo.append((child, into if deep else child, child.name))
            elif own.lower().endswith(".zip"):
                child.kind = "zip"
            into.inside.append(child)
    return top


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
