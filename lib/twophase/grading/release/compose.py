"""A topic's notebook from its parts: the course's own cells, those of an instructor's folders,
held-back siblings in their places.

Cells are as in the file: dicts. So it works on model solutions and on released notebooks alike, and
the grader needs no nbformat.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twophase.checks.extra import Extra
from twophase.checks.registry import CHAPTERS, Catalog
from twophase.grading.errors import Unreadable
from twophase.grading.files import notebook
from twophase.grading.files.notebook import grade_id

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
RawCell = dict[str, Any]


def cells_of(path: Path) -> list[RawCell]:
    """The cells of a notebook of our own, the source of each in one string. Raises ValueError, with
    the path, if it cannot be read."""
    if not path.is_file():
        raise ValueError(f"the notebook {path} is missing")
    try:
        cells = notebook.raw_cells(path.read_bytes())
    except (OSError, Unreadable) as e:
        why = f"is no notebook of format 4 ({e}); save it in JupyterLab"
        raise ValueError(f"{path} {why}") from None
    if not all(isinstance(c, dict) and isinstance(c.get("source"), str | list) for c in cells):
        raise ValueError(f"{path} is no notebook of format 4; save it in JupyterLab")
    return [c | {"source": notebook.source_of(c)} for c in cells]


def compose(topic: str, catalog: Catalog, room: Path | None) -> list[RawCell]:
    """The cells of a topic's notebook. `room` has the course's own: its solutions/ or exercises/.

    An instructor's cells follow the course's, in the order of the folders; a cell that is there
    already (the setup cell) is not repeated. The three cells of a held-back sibling stand where
    those of the public exercise stood.
    """
    stem = catalog.stem(topic)
    own = room / f"{stem}.ipynb" if room is not None and topic in CHAPTERS else None
    cells = cells_of(own) if own is not None and own.is_file() else []
    for extra in catalog.checks:
        if topic in extra.topics:
            there = {grade_id(c) for c in cells} - {""}
            cells = [*cells, *(c for c in _added(extra, topic, stem) if grade_id(c) not in there)]
    if catalog.variants is not None and topic in catalog.variants.topics:
        held, path = _added(catalog.variants, topic, stem), catalog.variants.notebook(stem)
        for sibling, public in catalog.replaced().items():
            if sibling.partition("-")[0] == topic:
                cells = _exchange(cells, public, three_cells(held, sibling, path))
    return cells


def _added(extra: Extra, topic: str, stem: str) -> list[RawCell]:
    """The cells of a folder's notebook, in which every exercise of it has its three cells."""
    path = extra.notebook(stem)
    cells = cells_of(path)
    for slug in extra.topics[topic].order:
        exercise_id = f"{topic}-{slug}"
        check = three_cells(cells, exercise_id, path)[2]
        points, worth = notebook.marks_of(check).get("points"), extra.load(exercise_id).points
        if points != worth:
            says = f"says {points} points, and its module {worth}"
            raise ValueError(f"{path}: the check cell of {exercise_id} {says}")
    return cells


def three_cells(cells: list[RawCell], exercise_id: str, path: Path) -> list[RawCell]:
    """Task, answer and check of an exercise. Raises ValueError, with the path, if one is absent."""
    places = [i for i, c in enumerate(cells) if grade_id(c) == exercise_id]
    if len(places) != 1:
        many = "has no answer cell" if not places else "has several answer cells"
        raise ValueError(
            f"{path} {many} for {exercise_id}: one code cell must have that nbgrader grade_id"
        )
    at = places[0]
    if at == 0 or cells[at - 1].get("cell_type") != "markdown":
        raise ValueError(
            f"{path}: above the answer cell {exercise_id} must stand its task, a markdown cell"
        )
    check = cells[at + 1] if at + 1 < len(cells) else {}
    graded = notebook.marks_of(check).get("grade") is True
    if grade_id(check) != f"{exercise_id}-check" or not graded:
        marks = f'the grade_id "{exercise_id}-check" and "grade": true'
        cell = f'its check cell, check("{exercise_id}"), with {marks}'
        raise ValueError(f"{path}: below the answer cell {exercise_id} must stand {cell}")
    return cells[at - 1 : at + 2]


def _exchange(cells: list[RawCell], public: str, three: list[RawCell]) -> list[RawCell]:
    at = [i for i, c in enumerate(cells) if grade_id(c) == public]
    if len(at) != 1:
        absent = f"no answer cell for {public}, whose place a held-back one takes"
        raise ValueError(f"the topic's notebook has {absent}")
    return [*cells[: at[0] - 1], *three, *cells[at[0] + 2 :]]
