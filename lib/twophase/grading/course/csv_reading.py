"""A CSV file that an instructor wrote, read strictly: a mistake is a sentence with its line."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from twophase.grading.course.fields import nearest

T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """A line of a CSV file."""

    where: str
    cells: Mapping[str, str]

    def need(self, column: str, convert: Callable[[str], T]) -> T:
        """The converted cell. Raises ValueError with the line and the column."""
        try:
            return convert(self.cells[column])
        except ValueError as e:
            raise ValueError(f"{self.where}: {column}: {e}") from None


def read_csv(path: Path) -> tuple[list[str], list[Row]]:
    """Header and rows of a CSV file, comma, semicolon or tab separated. Raises ValueError."""
    try:
        data = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text; save it as CSV UTF-8") from None
    first = data.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(data, newline=""), delimiter=delimiter, strict=True)
    try:
        lines = [(reader.line_num, [c.strip() for c in line]) for line in reader]
    except csv.Error as e:
        raise ValueError(f"{path}, line {reader.line_num}: {e}") from None
    lines = [(n, cells) for n, cells in lines if any(cells)]
    if not lines:
        raise ValueError(f"{path} is empty")
    (_, header), *rest = lines
    for n, cells in rest:
        if len(cells) > len(header):
            raise ValueError(f"{path}, line {n}: {len(cells)} cells under {len(header)} columns")
    if len(set(header)) < len([h for h in header if h]) + ("" in header):
        raise ValueError(f"{path}: two columns have the same name")
    return header, [
        Row(f"{path}, line {n}", dict(zip_longest(header, cells, fillvalue="")))
        for n, cells in rest
    ]


def require_columns(
    path: Path, header: list[str], needed: tuple[str, ...], more: tuple[str, ...]
) -> None:
    """Raises ValueError unless the header has all of `needed`, and at most these and `more`."""
    for column in needed:
        if column not in header:
            raise ValueError(f"{path}: there is no column {column}; it needs {', '.join(needed)}")
    known = (*needed, *more)
    for column in header:
        if column not in known:
            meant = nearest(column, known)
            raise ValueError(f"{path}: there is no use for a column {column!r}{meant}")
