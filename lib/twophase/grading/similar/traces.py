"""What a copied file carries besides its code: ids and metadata, a comment, a name of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from twophase.grading.files.notebook import value_at
from twophase.grading.similar.fragments import FIXED, MAX_TEXT
from twophase.grading.similar.lines import LEXER

MAX_LEAVES = 20_000
LONG_TEXT, LONG_WORDS = 25, 4  # characters and words of a comment that two people do not both write
SHORT_TEXT, SHORT_NAME = 8, 5

HEX_ID = re.compile(r"[0-9a-f]{8}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
COLAB_ID = re.compile(r"(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9_-]{12}")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*")
PERSON = re.compile(r"(?i)(?:display_?name|user_?id|users?|e?mail|authors?|student|owner)$")
# in a line of code, what no tool writes
SPACING = re.compile(r"\S {2,}[^#\s]|\w ,|[(\[] \S|[ \t]+$")
PROGRAMS = {"kernelspec", "language_info", "nbgrader", "twophase", "vscode"}


@dataclass(frozen=True, order=True)
class Mark:
    """Something that two files may share. `kind`: file, cell, metadata, person, comment, text, name
    or spacing. `strong`: so long, or so random, that it seldom comes up twice by itself."""

    kind: str
    text: str
    strong: bool = False


@dataclass(frozen=True)
class FileTraces:
    """Ids of cells that look random, and metadata that is a person's, a moment, or random."""

    ids: frozenset[str] = frozenset()
    metadata: frozenset[str] = frozenset()

    def marks(self, known: FileTraces) -> Iterator[Mark]:
        yield from (Mark("cell", i, True) for i in self.ids - known.ids)
        yield from (Mark("metadata", m, True) for m in self.metadata - known.metadata)


def traces_of(tree: Any) -> FileTraces:
    """The traces in a notebook's JSON, whatever it is. Raises nothing."""
    cells = value_at(tree, "cells", list)
    ids = frozenset(i for c in cells if is_random(i := value_at(c, "id", str)))
    leaves = _leaves([value_at(c, "metadata", dict) for c in (tree, *cells)])
    metadata = frozenset(f"{path} = {value}" for path, value in leaves if _personal(path, value))
    return FileTraces(ids, metadata)


def is_random(cell_id: str) -> bool:
    """Whether a program drew this id (Jupyter, VS Code, Colab do); cell-12 is everybody's."""
    return bool(HEX_ID.fullmatch(cell_id) or COLAB_ID.fullmatch(cell_id))


def _leaves(places: list[Any]) -> Iterator[tuple[str, str | int]]:
    waiting: list[tuple[str, Any]] = [("", p) for p in places]
    seen = 0
    while waiting and seen < MAX_LEAVES:
        path, value = waiting.pop()
        seen += 1
        if isinstance(value, Mapping):
            inside = [(k, v) for k, v in list(value.items())[:500] if k not in PROGRAMS]
            if path.count(".") < 8:
                waiting += [(f"{path}.{k[:60]}".strip("."), v) for k, v in inside]
        elif isinstance(value, list):
            waiting += [(path, v) for v in value[:500]]
        elif isinstance(value, str | int) and not isinstance(value, bool):
            yield path, value


def _personal(path: str, value: str | int) -> bool:
    if isinstance(value, int):
        return 10**12 <= value < 10**17  # milliseconds since 1970, or an account's number
    if not 3 <= len(value) <= 200:
        return False
    if any(PERSON.search(part) for part in path.split(".")):
        return True
    return bool(MOMENT.fullmatch(value) or (is_random(value) and len(value) > 8))


def words(source: str) -> frozenset[Mark]:
    """The comments, texts, names and odd spacing of a piece of code."""
    found: set[Mark] = set()
    text = source[:MAX_TEXT]
    for piece in re.finditer(LEXER, text):
        token = piece.group()
        if token.startswith("#"):
            found.update(_said("comment", token.lstrip("# \t")))
        elif token[0] in "\"'":
            found.update(_said("text", token.strip("\"'")))
        elif _chosen(token, text, piece.start()):
            found.add(Mark("name", token[:80]))
    for line in text.split("\n"):
        is_code = len(line.strip()) >= 10 and not line.lstrip().startswith("#")
        if is_code and SPACING.search(line.lstrip()[:400]):
            found.add(Mark("spacing", line[:120]))
    return frozenset(found)


def _chosen(token: str, text: str, at: int) -> bool:
    """Whether it is a name of the person's own choice: no attribute of a library's object."""
    is_own = text[at - 1 : at] != "." or text[max(0, at - 5) : at] == "self."
    return is_own and len(token) >= SHORT_NAME and token.isidentifier() and token not in FIXED


def _said(kind: str, text: str) -> Iterator[Mark]:
    plain = " ".join(text.split())
    if len(plain) >= SHORT_TEXT and any(c.isalpha() for c in plain):
        strong = len(plain) >= LONG_TEXT and plain.count(" ") >= LONG_WORDS - 1
        yield Mark(kind, plain[:200], strong)


def named(metadata: Iterable[str], people: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Entries that are somebody's name, and whose. `people`: names by their lower case."""
    for entry in metadata:
        value = entry.partition(" = ")[2].casefold()
        if value in people:
            yield entry, people[value]
