"""Grades as files: a table for people, one for Canvas, one per assignment for Moodle.

What a spreadsheet would run as a formula gets an apostrophe. A pending score has no number.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from twophase.grading.files.atomic import PRIVATE, replace_text
from twophase.grading.reports.printable import one_line
from twophase.grading.scores.gradebook import Gradebook, Total
from twophase.grading.scores.outcome import Outcome, lateness_text
from twophase.grading.scores.rounding import points_text
from twophase.grading.scores.rubric import Rubric

# the last four: their full-width forms
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
WHO = ("student", "name", "section")
WHOLE = ("total", "out of", "percent", "status", "remarks")
CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
MOODLE = (("Username", "username"), ("ID number", "id_number"), ("Email address", "email"))


def safe(value: str) -> str:
    """Text for a cell: no control characters, and no spreadsheet takes it for a formula."""
    plain = one_line(value)
    return f"'{plain}" if plain.lstrip(" \N{NO-BREAK SPACE}").startswith(FORMULA) else plain


def score(outcome: Outcome) -> str:
    """The points, or a word in their place."""
    return outcome.status if outcome.points is None else points_text(outcome.points)


def remarks(outcome: Outcome) -> str:
    """Everything about a score that its number does not say: pending for what, late and what it
    cost, excused, dropped, whose decision."""
    said = [f"pending: {w}" for w in outcome.waiting]
    late = lateness_text(outcome)
    said += [late] if late else []
    said += outcome.notes
    said += [
        f"{c.item.id}: {c.note}"
        for c in outcome.exercises
        if c.note and c.points is not None and c.status in ("by hand", "override")
    ]
    return "; ".join(dict.fromkeys(said))


def write(folder: Path, book: Gradebook) -> list[Path]:
    """Write grades.csv, and for the platforms that the roster knows, grades-canvas.csv and moodle/;
    remove what no longer holds. Returns the paths."""
    rows = canvas(book)
    made = {folder / "grades-canvas.csv": rows if len(rows) > 2 else []}
    for topic in book.scheme.assignments:
        rows = moodle(book, book.rubrics[topic]) if topic in book.rubrics else []
        made[folder / "moodle" / f"{topic}.csv"] = rows if len(rows) > 1 else []
    # spreadsheets need the mark to read UTF-8
    written = [_write(folder / "grades.csv", table(book), "utf-8-sig")]
    for path, content in made.items():
        if content:
            written.append(_write(path, content, "utf-8"))
        else:
            path.unlink(missing_ok=True)
    return written


def table(book: Gradebook) -> list[list[str]]:
    """One line a student: every assignment, the total, its percentage, and remarks."""
    rubrics = book.rubrics
    rows = [[*WHO, *rubrics, *WHOLE]]
    for t in book.totals:
        told = [f"{topic}: {said}" for topic in rubrics if (said := remarks(t.outcomes[topic]))]
        scores = [score(t.outcomes[topic]) for topic in rubrics]
        whole = ["", "", ""]
        if t.percent is not None:
            whole = [points_text(points) for points in (t.points, t.out_of, t.percent)]
        s = t.student
        rows.append([s.key, s.name, s.section, *scores, *whole, t.status, " | ".join(told)])
    return rows


def canvas(book: Gradebook) -> list[list[str]]:
    """Canvas's import of grades. Excused is EX; a pending score stays what Canvas's export had."""
    columns = {topic: _canvas_column(rubric, book.totals) for topic, rubric in book.rubrics.items()}
    worths = [points_text(s.worth) for s in book.rubrics.values()]
    rows = [[*CANVAS, *columns.values()], ["    Points Possible", "", "", "", "", *worths]]
    for t in book.totals:
        s = t.student
        if not (s.canvas_id or s.sis_user_id or s.sis_login_id):
            continue
        cells = [
            _canvas_cell(t.outcomes[topic], s.raw.get(column, ""))
            for topic, column in columns.items()
        ]
        rows.append([s.shown, s.canvas_id, s.sis_user_id, s.sis_login_id, s.section, *cells])
    return rows


def _canvas_column(rubric: Rubric, totals: Iterable[Total]) -> str:
    """`Title (4711)`, as in Canvas's own export; there a title alone makes a new assignment."""
    assignment = rubric.assignment
    if not assignment.canvas:
        return assignment.title
    ending = f"({assignment.canvas})"
    theirs = next((c for t in totals for c in t.student.raw if c.endswith(ending)), None)
    return theirs or f"{assignment.title} {ending}"


def _canvas_cell(outcome: Outcome, before: str) -> str:
    if outcome.free and (outcome.points is None or not outcome.counted):
        return "EX"
    if outcome.points is not None:
        return points_text(outcome.points)
    return "" if before == "-" else before


def moodle(book: Gradebook, rubric: Rubric) -> list[list[str]]:
    """Moodle's import of one assignment: who, grade, feedback. Only final grades, since Moodle
    would take an empty cell for "no grade"."""
    title, topic = rubric.assignment.title, rubric.assignment.topic
    students = [t.student for t in book.totals]
    known = {head: name for head, name in MOODLE if any(getattr(s, name) for s in students)}
    rows = [[*known, title, f"{title} (feedback)"]]
    for t in book.totals:
        who, outcome = [getattr(t.student, name) for name in known.values()], t.outcomes[topic]
        out = outcome.free and not outcome.counted
        if all(who) and who and outcome.points is not None and not out:
            rows.append([*who, points_text(outcome.points), remarks(outcome)])
    return rows


def _write(path: Path, rows: Sequence[Sequence[str]], encoding: str) -> Path:
    made = io.StringIO(newline="")
    csv.writer(made, lineterminator="\r\n").writerows([safe(c) for c in row] for row in rows)
    return replace_text(path, made.getvalue(), encoding, PRIVATE)
