"""What nbgrader's own tools read beside the gradebook: autograded/ and feedback/."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from twophase.grading.errors import Unreadable
from twophase.grading.files import notebook
from twophase.grading.files.atomic import replace_text
from twophase.grading.files.notebook import Cell
from twophase.grading.nbgrader.course import NbCourse
from twophase.grading.nbgrader.result_of_notebook import (
    GradedNotebook,
    NotebookPath,
    Notices,
    submitted_path,
)
from twophase.grading.reports import feedback
from twophase.grading.reports.printable import printable
from twophase.grading.results.records import Record

STAMP, SECRET = "timestamp.txt", "submission_secret.txt"
LONGEST = 1000  # bytes of either


def timestamp(folder: Path) -> datetime | None:
    """When a folder's submission came, as nbgrader reads it: UTC, without a zone; None: unknown."""
    from nbgrader.utils import parse_utc

    try:
        found = parse_utc(_small(folder / STAMP).strip())
    except Exception:  # a student may have written anything there
        return None
    return found if isinstance(found, datetime) else None


def _small(path: Path) -> str:
    """A short text file that a student may have made, read without following links; else empty."""
    try:
        return notebook.read_bytes(path)[:LONGEST].decode("utf-8", "replace")
    except Unreadable:
        return ""


def write_feedback(course: NbCourse, works: Iterable[GradedNotebook], told: Notices) -> int:
    """Our page of each work as `feedback/<student>/<assignment>/<notebook>.html`, but for those
    without `nbgrader submit`'s secret: `release_feedback` would stop there, for everybody. Returns
    how many. Raises OSError."""
    count = 0
    for work in works:
        place = work.place
        if work.record["status"] == "internal":
            told.waiting.append(f"{place}: no feedback, the grader failed on it: grade it again")
            continue
        secret = _small(course.folder("submitted", place.student, place.assignment) / SECRET)
        if not secret.strip():
            told.waiting.append(
                f"{place}: no feedback; it has no {SECRET}, so it did not come through the exchange"
            )
            continue
        folder = _prepare(course, "feedback", place)
        _write(course, folder / f"{place.notebook}.html", feedback.page(work.record), 0o644)
        count += 1
    return count


def write_autograded(
    course: NbCourse, works: Iterable[GradedNotebook], masters: Mapping[tuple[str, str], Master]
) -> None:
    """What formgrader shows and `generate_feedback` reads: the works with verdicts in their check
    cells. `masters`: by assignment and name. Raises OSError, Unreadable if a file has changed."""
    for work in works:
        place = work.place
        cells = notebook.read_notebook(submitted_path(course, place)).cells
        content = masters[place.assignment, place.notebook].filled(cells, work.record)
        folder = _prepare(course, "autograded", place)
        _write(course, folder / f"{place.notebook}.ipynb", content, 0o444)


def _prepare(course: NbCourse, step: str, place: NotebookPath) -> Path:
    """The folder of a step, with the files that bind it to its submission."""
    folder = course.folder(step, place.student, place.assignment)
    folder.mkdir(parents=True, exist_ok=True)
    submitted = course.folder("submitted", place.student, place.assignment)
    for name in (STAMP, SECRET):
        if content := _small(submitted / name):
            _write(course, folder / name, content, 0o644)
    return folder


def _write(course: NbCourse, path: Path, content: str, mode: int) -> None:
    replace_text(path, content).chmod(0o664 if course.directory.groupshared else mode)


class Master:
    """An assignment's notebook in the gradebook: what nbgrader must find in a submission's copy."""

    def __init__(self, row: Any) -> None:
        graded = {c.name: float(c.max_score) for c in [*row.grade_cells, *row.task_cells]}
        answers, tasks = {c.name for c in row.solution_cells}, {c.name for c in row.task_cells}
        self._kernel = json.loads(row.kernelspec) if row.kernelspec else {}
        self._source = {c.name: c.source or "" for c in row.source_cells}
        self._marks: dict[str, dict[str, Any]] = {}
        for cell in row.source_cells:
            self._marks[cell.name] = {
                "schema_version": 3,
                "grade_id": cell.name,
                "grade": cell.name in graded and cell.name not in tasks,
                "solution": cell.name in answers,
                "task": cell.name in tasks,
                "locked": bool(cell.locked),
                "cell_type": cell.cell_type,
                "checksum": cell.checksum,
            } | ({"points": graded[cell.name]} if cell.name in graded else {})

    def filled(self, submitted: Iterable[Cell], record: Record) -> str:
        """A notebook's text: the student's cells, the locked ones as handed out, and the verdicts.
        Of a submission's cells only kind and text are kept: no output, metadata or attachment."""
        said = {f"{q['id']}-check": _verdict(q) for q in record["questions"]}
        cells = list(submitted)
        last = {c.grade_id: n for n, c in enumerate(cells) if c.grade_id in self._marks}
        made = [
            self._cell(c.kind, c.source, c.grade_id if last.get(c.grade_id) == n else "", said)
            for n, c in enumerate(cells)
        ]
        made += [self._cell("", "", i, said) for i in self._marks if i not in last]
        for n, cell in enumerate(made):
            cell["id"] = f"cell-{n}"
        whole = {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {"kernelspec": self._kernel},
            "cells": made,
        }
        return json.dumps(whole, indent=1) + "\n"

    def _cell(self, kind: str, source: str, grade_id: str, said: dict[str, str]) -> dict[str, Any]:
        if grade_id:
            marks = self._marks[grade_id]
            kind = marks["cell_type"]
            source = self._source[grade_id] if marks["locked"] else source
        kind = kind if kind in ("code", "markdown") else "raw"
        cell: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": source}
        if grade_id:
            cell["metadata"]["nbgrader"] = marks
        if kind == "code":
            shown = said.get(grade_id, "")
            output = {"output_type": "stream", "name": "stdout", "text": shown}
            cell |= {"execution_count": None, "outputs": [output] if shown else []}
        return cell


def _verdict(question: Record) -> str:
    """What stands below a check cell: a stream, which nbgrader's pages show as text, not HTML."""
    words = feedback.WORDS[question["status"]]
    head = f"{words}: {question['points']:g} of {question['out_of']:g} points"
    more = [question["message"], f"A hint: {question['hint']}" if question["hint"] else ""]
    lines = [head, *(m for m in more if m and question["status"] != "right")]
    return printable("\n".join(lines)) + "\n"
