"""A learner's notebook and a new release of it, made one. The learner's text always survives.

A cell of the release is known by its grade_id, or by the `twophase: {cell, digest}` that
tools/exercises.py wrote into its metadata; the digest of its text as released tells whether the
learner has changed it. All other cells are the learner's own, and stay behind the cell that they
stood behind.
"""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import nbformat
from nbformat import NotebookNode

KEPT = "kept-from-an-earlier-release"
KEPT_TEXT = (
    "## Kept from an earlier release\n\nYour answers to exercises that the course no longer has."
)
OURS = (
    "nbgrader",
    "twophase",
    "deletable",
    "editable",
)  # metadata that makes a cell one of the release's
TOP = ""  # the anchor of cells above the first one of the release


def read(data: bytes) -> NotebookNode:
    """A notebook of any format up to the present one, with an id for every cell. Raises ValueError
    if it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nb = nbformat.v4.upgrade(nbformat.reads(data.decode("utf-8"), as_version=4))
            _, nb = nbformat.validator.normalize(nb)
            nbformat.validate(nb)
    except Exception as e:  # nbformat raises what it likes
        raise ValueError(f"it cannot be read as a notebook ({type(e).__name__})") from None
    return nb


def to_bytes(nb: NotebookNode) -> bytes:
    """The notebook as a file. Raises ValueError if it is not valid."""
    try:
        nbformat.validate(nb)
    except nbformat.ValidationError as e:
        raise ValueError(f"the merged notebook would not be valid ({e.message})") from None
    text: str = nbformat.writes(nb, version=nbformat.NO_CONVERT)
    return (text.rstrip("\n") + "\n").encode("utf-8")


def key(cell: NotebookNode) -> str | None:
    """The name that a release knows this cell by; None for a learner's own."""
    found = cell.metadata.get("nbgrader", {}).get("grade_id") or cell.metadata.get(
        "twophase", {}
    ).get("cell")
    return found if isinstance(found, str) else None


def is_answer(cell: NotebookNode) -> bool:
    return bool(cell.metadata.get("nbgrader", {}).get("solution"))


def edited(cell: NotebookNode) -> bool:
    """Whether the text differs from what was released; yes, if that is not known."""
    return bool(cell.metadata.get("twophase", {}).get("digest") != _digest(cell.source))


def _digest(source: str) -> str:
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def as_own(cell: NotebookNode) -> NotebookNode:
    """A copy without the marks of the release: from now on the learner's."""
    own = copy.deepcopy(cell)
    for mark in OURS:
        own.metadata.pop(mark, None)
    return own


@dataclass
class Merge:
    """The merged notebook and what to tell the learner."""

    notebook: NotebookNode
    lines: list[str] = field(default_factory=list)
    changed: bool = True


@dataclass
class _Sorted:
    """A learner's cells, sorted: those of the release by key, own ones by what they stand behind,
    answers without exercise."""

    held: dict[str, NotebookNode] = field(default_factory=dict)
    own: dict[str, list[NotebookNode]] = field(default_factory=dict)
    removed: list[NotebookNode] = field(default_factory=list)


def _sort(cells: list[NotebookNode], known: set[str]) -> _Sorted:
    last = {key(c): i for i, c in enumerate(cells)}
    found, anchor = _Sorted(), TOP
    for i, cell in enumerate(cells):
        k = key(cell)
        if k == KEPT and not edited(cell):
            continue
        if k is None:
            found.own.setdefault(anchor, []).append(cell)
        elif last[k] != i:  # a cell that was split or pasted: the last one counts, as in grading
            found.own.setdefault(anchor, []).append(as_own(cell))
        elif k in known:
            found.held[k] = cell
            anchor = k
        elif is_answer(cell) and edited(cell):
            found.removed.append(cell)
        elif edited(cell):
            found.own.setdefault(anchor, []).append(as_own(cell))
    return found


def merge(mine: NotebookNode, release: NotebookNode) -> Merge:
    """`release` with the learner's answers and own cells in it. Neither argument is changed."""
    mine, release = copy.deepcopy(mine), copy.deepcopy(release)
    known = {k for c in release.cells if (k := key(c)) is not None}
    parts = _sort(mine.cells, known)
    result = Merge(mine)
    cells = list(parts.own.get(TOP, []))
    for new in release.cells:
        k = key(new) or new.id
        cells += _join(parts.held.get(k), new, result.lines)
        cells += parts.own.get(k, [])
    if parts.removed:
        heading = nbformat.v4.new_markdown_cell(KEPT_TEXT)
        heading.metadata["twophase"] = {"cell": KEPT, "digest": _digest(KEPT_TEXT)}
        heading.id = KEPT
        cells += [heading, *parts.removed]
        result.lines += [
            f"{key(c)} is no longer in the course; your answer is at the end" for c in parts.removed
        ]
    _make_ids_unique(cells)
    _require_nothing_lost(mine.cells, cells)
    result.changed = _plain(cells) != _plain(mine.cells)
    result.notebook = copy.deepcopy(mine)
    result.notebook.cells = cells
    return result


def _plain(cells: list[NotebookNode]) -> list[Any]:
    return [{k: v for k, v in c.items() if k != "id"} for c in cells]


def _join(old: NotebookNode | None, new: NotebookNode, lines: list[str]) -> list[NotebookNode]:
    """The cells that stand for one cell of the release: the new one, the learner's, or both."""
    name = key(new) or new.id
    if old is None:
        if is_answer(new):
            lines.append(f"{name} is new")
        return [new]
    fresh = old.metadata.get("twophase", {}).get("digest") != new.metadata.get("twophase", {}).get(
        "digest"
    )
    if old.source == new.source:
        return [_with_text_of(old, new)]
    if is_answer(new) and edited(old):
        if fresh:
            lines.append(
                f"{name}: what stands above the answer has changed; yours is kept, read the task"
                " again"
            )
        return [_with_text_of(old, new)]
    if not edited(old):
        lines.append(f"{name} has changed")
        return [new]
    if not fresh and "nbgrader" not in new.metadata and new.cell_type == old.cell_type == "code":
        return [old]  # a cell to play with, and nothing new about it
    lines.append(f"{name} is as released; your version of it stands below it")
    return [new, as_own(old)]


def _with_text_of(old: NotebookNode, new: NotebookNode) -> NotebookNode:
    """The new cell with the learner's text and outputs, and what else their editor noted about
    it."""
    cell = copy.deepcopy(new)
    cell.source = old.source
    cell.metadata = nbformat.from_dict({**old.metadata, **new.metadata})
    if cell.cell_type == "code" and old.cell_type == "code":
        cell.outputs, cell.execution_count = old.outputs, old.execution_count
    if "attachments" in old:
        cell.attachments = old.attachments
    return cell


def _make_ids_unique(cells: list[NotebookNode]) -> None:
    """The release's cells keep their ids; a learner's cell that has one of them gets another."""
    taken = {c.id for c in cells if key(c) is not None}
    for cell in cells:
        if key(cell) is None:
            while cell.id in taken:
                cell.id = nbformat.v4.new_code_cell().id
            taken.add(cell.id)


def _require_nothing_lost(before: list[NotebookNode], after: list[NotebookNode]) -> None:
    """Every text that a learner wrote must be there afterwards, as often as before. Raises
    ValueError."""
    written = Counter(c.source for c in before if key(c) is None or edited(c))
    present = Counter(c.source for c in after)
    lost = [text for text, n in written.items() if present[text] < n]
    if lost:
        raise ValueError(
            f"bringing in the release would lose a cell of yours that begins {lost[0][:40]!r}"
        )
