"""What of a submission's cells is worth a flag, whatever they do when they are run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from twophase.grading.files.notebook import Cell, Notebook
from twophase.grading.release.release import Release
from twophase.grading.results.grade import NOT_ASKED, Flag

CHECK_DEFINED = re.compile(
    r"^(?:[ \t]*def[ \t]+check\b|check[ \t]*=(?!=|.*\blab\.check[ \t]*$))", re.M
)
GRADER_NAMED = re.compile(
    r"twophase\.(?:checks|grading|cli|protocol)|twophase import (?:checks|grading)"
)


def flagged(notebook: Notebook, release: Release) -> Iterator[Flag]:
    """What is noticed about each cell, then the ids that several cells have."""
    for n, cell in enumerate(notebook.cells):
        yield from _of_a_cell(n, cell, release)
    ids = [cell.grade_id for cell in notebook.cells if cell.is_code]
    says = "Several cells have this id: all were run, each where it stands."
    for i in dict.fromkeys(ids):
        if ids.count(i) > 1 and i in release.exercises:
            yield Flag("duplicate_cell", i, says)


def is_check(cell: Cell, release: Release) -> bool:
    """Whether a cell has the id of an exercise's check."""
    exercise_id = cell.grade_id.removesuffix("-check")
    return exercise_id != cell.grade_id and exercise_id in release.exercises


def _of_a_cell(n: int, cell: Cell, release: Release) -> Iterator[Flag]:
    where, source = cell.grade_id[:80] or f"cell {n + 1}", cell.source.strip()
    exercise_id = cell.grade_id.removesuffix("-check")
    asked = cell.grade_id[:80].removesuffix("-check")
    known = (*release.exercises, *release.held_back)
    if cell.grade and asked.startswith(f"{release.topic}-") and asked not in known:
        says = "The notebook asks this exercise, and what it is graded against does not."
        yield Flag(NOT_ASKED, asked, says)
    if cell.grade_id in release.locked and source != release.locked[cell.grade_id].strip():
        says = "A locked cell was changed: the released one was run, and then this one."
        yield Flag("locked_cell_changed", where, says)
    if is_check(cell, release) and source != f'check("{exercise_id}")':
        says = "A check cell was changed: it was run as a cell of the submission's own."
        yield Flag("check_cell_changed", where, says)
    if cell.is_code and CHECK_DEFINED.search(source):
        says = "It defines a `check` of its own, which has no say."
        yield Flag("defines_check", where, says)
    if cell.is_code and GRADER_NAMED.search(source):
        says = "It names the checks or the grader: no answer needs them."
        yield Flag("names_grader", where, says)
