"""What was handed in: which files are submissions, whose they are, and when they came."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path

from twophase.grading.errors import Unreadable
from twophase.grading.files import notebook
from twophase.grading.intake import archives
from twophase.grading.intake.layouts import READERS, TITLES, HandIn, hand_ins
from twophase.grading.intake.trees import Node, walk

LAYOUTS = ("auto", *READERS, "plain")
ZIP_NOTEBOOKS = 100  # a student's zip with more is no answer


@dataclass(frozen=True)
class Submission:
    """One notebook that was handed in, or what lies in its place.

    `path` is a file on the disk; `members` leads from there into a zip, one number for each zip on
    the way. `name` is the path below the folder as text that can be printed, unique within a run.
    `student` and `submitted` (ISO 8601 with an offset) are empty if the layout does not tell them.
    `trouble` says why nothing can be read, if that is known already.
    """

    path: Path
    name: str
    student: str = ""
    submitted: str = ""
    members: tuple[int, ...] = ()
    trouble: str = ""
    layout: str = "plain"

    def read(self) -> bytes:
        """The first bytes, one more than a notebook may have. Raises Unreadable."""
        if self.trouble:
            raise Unreadable(self.trouble)
        if self.members:
            return archives.read_member(self.path, self.members)
        return notebook.read_bytes(self.path)


def find(folder: Path, layout: str = "auto") -> list[Submission]:
    """Everything handed in below a folder or in a zip, by name. Raises ValueError if there is
    nothing. `layout`: one of LAYOUTS; `auto` goes by clear signs.

    What cannot be read is there, with the reason; so is whoever handed in something else.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"there is no layout {layout!r}; it is one of {', '.join(LAYOUTS)}")
    found = [s for hand in hand_ins(_tree(folder), layout) for s in _submissions(hand)]
    if not found:
        raise ValueError(
            f"there is no .ipynb file in {folder} or below it; give the folder or the zip that"
            " holds the submissions"
        )
    return _distinct(found)


def describe(submissions: Sequence[Submission]) -> str:
    """For a person: `Canvas's layout: 212 notebooks of 210 students; 1 file or folder without …`"""
    layouts = " and ".join(
        f"{TITLES[x]} layout" for x in TITLES if any(s.layout == x for s in submissions)
    )
    notebooks = sum(not s.trouble for s in submissions)
    students = len({s.student for s in submissions if s.student})
    said = f"{layouts[:1].upper()}{layouts[1:]}: {_count(notebooks, 'notebook')}"
    said += f" of {_count(students, 'student')}" if students else ""
    if broken := len(submissions) - notebooks:
        others = _count(broken, "file or folder", "files or folders")
        said += f"; {others} without one that can be read"
    return said


def _count(n: int, one: str, many: str = "") -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def _tree(path: Path) -> Node:
    """The folder or zip with everything in it, the zips opened. Raises ValueError."""
    if path.is_dir():
        top = walk(path)
        for node in [n for n in top.all() if n.kind == "zip"]:
            archives.list_members(node)
    elif path.is_file() and path.name.lower().endswith(".zip"):
        top = Node("", "zip", path.resolve())
        archives.list_members(top, whole_class=True)
    else:
        instead = "give the folder or the zip that holds the submissions"
        one = "(for one notebook: twophase check)"
        raise ValueError(f"{path} is no folder and no zip; {instead} {one}")
    if top.trouble:
        why = top.trouble.partition(";")[0]  # what follows is for a student
        instead = "download it again, or give the folder that it unpacks to"
        raise ValueError(f"{path}: {why}" + (f"; {instead}" if top.kind == "zip" else ""))
    return top


def _submissions(hand: HandIn) -> Iterator[Submission]:
    """The notebooks of one hand-in, and what may be one; if there is none, one that says so."""
    there = [n for node in hand.nodes for n in _readable(node)]
    found = [n for n in there if n.is_notebook or n.trouble]
    if not found:
        first = hand.nodes[0]
        found = [Node(hand.name, "file", first.path, first.members, trouble=_instead(there))]
    who = (hand.student, hand.submitted)
    for node in found:
        yield Submission(node.path, node.name, *who, node.members, node.trouble, hand.layout)


def _readable(node: Node) -> Iterator[Node]:
    """All below a node; in place of a zip with very many notebooks its own name, and the reason."""
    if node.kind == "zip" and (n := sum(c.is_notebook for c in node.all())) > ZIP_NOTEBOOKS:
        instead = "if a whole class is in it, grade the zip itself"
        why = f"it is a zip with {n:,} notebooks, more than {ZIP_NOTEBOOKS}; {instead}"
        yield Node(node.name, "file", node.path, node.members, trouble=why)
        return
    yield node
    for child in node.inside:
        yield from _readable(child)


def _instead(nodes: Iterable[Node]) -> str:
    """That there is no notebook, and what there is."""
    names = [n.own for n in nodes if n.kind == "file"]
    if not names:
        return "it holds no notebook: there is nothing in it"
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return f"it holds no notebook (.ipynb), only {', '.join(names[:3])}{more}"


def _distinct(found: Iterable[Submission]) -> list[Submission]:
    """Sorted by name, every name once: a second `x.ipynb` is `x (2).ipynb`."""
    found = sorted(found, key=lambda s: (s.name, os.fsencode(s.path), s.members))
    used = {s.name for s in found}
    seen: set[str] = set()
    made: list[Submission] = []
    for s in found:
        stem, dot, ending = s.name.rpartition(".")
        if not dot or "/" in ending:
            stem, dot, ending = s.name, "", ""
        others = (o for n in count(2) if (o := f"{stem} ({n}){dot}{ending}") not in used)
        name = next(o for o in chain([s.name], others) if o not in seen)
        seen.add(name)
        made.append(replace(s, name=name))
    return sorted(made, key=lambda s: s.name)
