"""What a course gives out or publishes: to agree on it is no agreement between students."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import twophase
from twophase.grading.errors import Unreadable
from twophase.grading.files import notebook
from twophase.grading.files.notebook import Cell, Notebook
from twophase.grading.release.release import course_root
from twophase.grading.similar import fragments
from twophase.grading.similar.fragments import Fragment
from twophase.grading.similar.traces import FileTraces, Mark, traces_of, words

FENCED = re.compile(r"^```[^\n]*\n(.*?)^```", re.M | re.S)
BEGUN = re.compile(r"^(?:def|class) +(\w+)", re.M)
HEADING = re.compile(r"^#+[ \t]+(.+)$", re.M)


@dataclass(frozen=True)
class Published:
    """A topic as the course shows it.

    `given`: fragments of the released notebook. `published`: those, and of the solutions, the
    book's chapter, the library's and the checks' modules. `solutions`: the model solution's own
    fragments by exercise. `stubs`: the released answer cells, `entries` the functions and classes
    that each begins. `text`: all that is shown, in one
    line, `names` its names and odd lines. `traces`: the released file's ids and metadata.
    """

    topic: str
    titles: dict[str, str]
    stubs: dict[str, str]
    entries: dict[str, frozenset[str]]
    given: frozenset[Fragment]
    published: frozenset[Fragment]
    solutions: dict[str, frozenset[Fragment]]
    names: frozenset[Mark]
    text: str
    sources: frozenset[str]
    traces: FileTraces

    def has(self, mark: Mark) -> bool:
        """Whether this is in what the course shows: no trace of another student."""
        if mark.kind in ("name", "spacing"):
            return mark in self.names
        return mark.kind in ("comment", "text") and mark.text in self.text


@cache
def load_published(topic: str, stem: str, release: Path | None = None) -> Published:
    """What is known of a topic. Raises ValueError if `release` is given and lacks the notebook."""
    handed_out = _handed_out(stem, release)
    data = b"" if handed_out is None else handed_out.read_bytes()
    released = notebook.parse(data) if data else Notebook((), "")
    solved = _solved(stem, release)
    texts = _code(released)
    given = _fragments(texts)
    shown = _code(solved) + _course_texts(topic, stem)
    checks = [c.grade_id for c in released.cells or solved.cells if c.grade and c.grade_id]
    ids = [check.removesuffix("-check") for check in checks]
    answers = {c.grade_id: c.source for c in solved.cells if c.grade_id in ids}
    stubs = {c.grade_id: c.source for c in released.cells if c.grade_id in ids}
    headings = {c.grade_id: h for a, c in pairwise(released.cells) if (h := _heading(a))}
    marks = [m for t in (*texts, *shown) for m in words(t)]
    everything = [*(c.source for c in (*released.cells, *solved.cells)), *shown]
    return Published(
        topic=topic,
        titles={i: headings.get(i, i) for i in ids},
        stubs=stubs,
        entries={i: frozenset(BEGUN.findall(source)) for i, source in stubs.items()},
        given=given,
        published=given | _fragments(shown),
        solutions={i: _fragments([source]) - given for i, source in answers.items()},
        names=frozenset(m for m in marks if m.kind in ("name", "spacing")),
        text=" ".join(" ".join(everything).split()),
        sources=frozenset(c.source.strip() for c in released.cells if c.is_code),
        traces=traces_of(notebook.tree(data)) if data else FileTraces(),
    )


def _handed_out(stem: str, release: Path | None) -> Path | None:
    """The released notebook's file. Raises ValueError if `release` has none of this name."""
    if release is None:
        path = course_root() / "exercises" / f"{stem}.ipynb"
        return path if path.is_file() else None
    if not release.is_dir():
        raise ValueError(f"{release} is no folder; give the one that `twophase release` wrote")
    name = f"{stem}.ipynb"
    near = [p for p in (release / "exercises" / name, release / name) if p.is_file()]
    found = near or sorted(p for p in release.rglob(name) if "solutions" not in p.parts)
    if not found:
        raise ValueError(
            f"{release} has no {name}; give the folder that was handed out, as `twophase release`"
            " wrote it"
        )
    return found[0]


def _solved(stem: str, release: Path | None) -> Notebook:
    """The notebook with the model solutions, or an empty one."""
    for root in (*([release] if release else []), course_root()):
        try:
            return notebook.read_notebook(root / "solutions" / f"{stem}.ipynb")
        except Unreadable:
            continue
    return Notebook((), "")


def _course_texts(topic: str, stem: str) -> list[str]:
    """What students can read: the chapter's code and the topic's modules, wrong answers too."""
    package = Path(twophase.__path__[0])
    chapter = course_root() / "book" / f"{stem}.md"
    modules = [package / "kernels" / f"{topic}.py", package / "theory" / f"{topic}.py"]
    modules += sorted((package / "checks" / topic).glob("*.py"))
    texts = [p.read_text(encoding="utf-8") for p in modules if p.is_file()]
    if chapter.is_file():
        texts += FENCED.findall(chapter.read_text(encoding="utf-8"))
    return texts


def _code(book: Notebook) -> list[str]:
    """The code cells, and the code in the text."""
    text = [c.source + "\n" for c in book.cells if c.kind == "markdown"]
    cells = [c.source for c in book.cells if c.is_code]
    return cells + [code for t in text for code in FENCED.findall(t)]


def _fragments(texts: list[str]) -> frozenset[Fragment]:
    return frozenset(f for t in texts for f in fragments.fragments_of(t).fragments)


def _heading(cell: Cell) -> str:
    found = HEADING.search(cell.source) if cell.kind == "markdown" else None
    return found[1].strip() if found else ""
