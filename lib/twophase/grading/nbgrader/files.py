"""What nbgrader's own tools read beside the gradebook: autograded notebooks, and feedback that
`release_feedback` hands out."""

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
from twophase.grading.nbgrader.works import GradedNotebook, NotebookPath, Notices, submitted_path
from twophase.grading.reports import feedback
from twophase.grading.reports.plain import printable
from twophase.grading.results.records import Record

STAMP, SECRET = "timestamp.txt", "submission_secret.txt"
LONGEST = 1000  # characters of either


def timestamp(folder: Path) -> datetime | None:
    """When the submission in a folder was handed in, as nbgrader reads it: UTC, without a zone.
    None if it is not known."""
    from nbgrader.utils import parse_utc

    try:
        found = parse_utc(_small(folder / STAMP).strip())
    except Exception:  # a student may have written anything there
        return None
    return found if isinstance(found, datetime) else None


def _small(path: Path) -> str:
    """A short text file of a submission's; empty if it is none. Links are not followed: a student
    may have made it."""
    try:
        return notebook.read_bytes(path)[:LONGEST].decode("utf-8", "replace")
    except Unreadable:
        return ""


def write_feedback(course: NbCourse, works: Iterable[GradedNotebook], told: Notices) -> int:
    """Our page of each work as `feedback/<student>/<assignment>/<notebook>.html`. Returns how many.
    Raises OSError.

    `release_feedback` stops for everybody at a folder without the secret that `nbgrader submit`
    made, so none is written there.
    """
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
    """What formgrader shows and `generate_feedback` reads: the work with the verdicts in its check
    cells.

    `masters` has its notebook, by assignment and name. Raises OSError, and Unreadable if a file is
    not what it was.
    """
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
    """A notebook of an assignment as the gradebook has it: what nbgrader must find in a copy of a
    submission."""

    def __init__(self, row: Any) -> None:
        graded = {c.name: float(c.max_score) for c in [*row.grade_cells, *row.task_cells]}
        answers, tasks = {c.name for c in row.solution_cells}, {c.name for c in row.task_cells}
        self._kernel = json.loads(row.kernelspec) if row.kernelspec else {}
        self._source = {
            c.name: (c.cell_type, c.source or "", bool(c.locked)) for c in row.source_cells
        }
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
        """The student's cells, the locked ones as they were handed out, and what was judged, as the
        text of a notebook.

        Of the submission only kind and text of its cells are kept: no output, no metadata, no
        attachment.
        """
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
            kind, master, locked = self._source[grade_id]
            source = master if locked else source
        kind = kind if kind in ("code", "markdown") else "raw"
        cell: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": source}
        if grade_id:
            cell["metadata"]["nbgrader"] = self._marks[grade_id]
        if kind == "code":
            shown = said.get(grade_id, "") if grade_id else ""
            output = {"output_type": "stream", "name": "stdout", "text": shown}
            cell |= {"execution_count": None, "outputs": [output] if shown else []}
        return cell


def _verdict(question: Record) -> str:
    """What stands below a check cell: a stream, which every one of nbgrader's pages shows as text
    and not as HTML."""
    head = (
        f"{feedback.WORDS[question['status']]}: {question['points']:g} of {question['out_of']:g}"
        " points"
    )
    more = [question["message"], f"A hint: {question['hint']}" if question["hint"] else ""]
    lines = [head, *(m for m in more if m and question["status"] != "right")]
    return printable("\n".join(lines)) + "\n"
