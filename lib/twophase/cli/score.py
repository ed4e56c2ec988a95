"""`twophase score`: grades from stored results and course.yml. Nothing is run."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from twophase.cli import grading_options as options
from twophase.cli.grading_shown import listed
from twophase.grading.course.deadlines import read_time
from twophase.grading.errors import writing
from twophase.grading.files.atomic import PRIVATE, replace_text
from twophase.grading.reports import class_report, exports
from twophase.grading.reports.printable import one_line
from twophase.grading.results import reader
from twophase.grading.results.records import Record
from twophase.grading.scores import gradebook
from twophase.grading.scores.gradebook import Gradebook, Total
from twophase.grading.scores.outcome import Outcome, lateness_text
from twophase.grading.scores.rounding import points_text

COMPLETE, WAITING, OUR_FAULT = 0, 1, 3
COLORS = {
    "graded": "",
    "missing": "red",
    "open": "dim",
    "excused": "cyan",
    "pending": "yellow",
    "none": "dim",
}
MOST_LINES, MOST_ROWS = 40, 100


def score(
    results: Annotated[
        Path, typer.Argument(help="The folder that `twophase grade` wrote, or its results.jsonl.")
    ],
    course: Annotated[
        Path, typer.Option(help="The course file: points, due dates, late rule, extensions.")
    ] = Path("course.yml"),
    out: Annotated[
        Path | None, typer.Option(help="Where the grades go; without it, beside the results.")
    ] = None,
    at: Annotated[
        str,
        typer.Option(
            help="Score as of this time; without it, now. What is not due yet does not count."
        ),
    ] = "",
) -> None:
    """Compute all grades again from stored results. Nothing is run, so edit course.yml and call
    this as often as you like.

    Writes grades.csv, files for Canvas and Moodle if the roster has their columns, and report.html
    about the class.

    Exit code: 0 all that is due is graded; 1 something waits for a person: pending, unreadable, or
    of an unknown student; 2 bad usage; 3 the grader had failed on a submission, which must be
    graded again, or the grades cannot be written.

    Example: twophase score grades/ --course course.yml
    """
    path = reader.results_path(results)
    raise typer.Exit(
        write_grades(course, reader.latest_records(path), out or path.parent, Console(), at)
    )


def write_grades(
    course: Path, records: list[Record], out: Path, console: Console, at: str = ""
) -> int:
    """Score, write everything, print the table. Returns the exit code. Raises ValueError for a bad
    course file, CannotWrite."""
    options.require_folder(out)
    scheme, beside = gradebook.load_course(course)
    now: datetime | None = read_time(at, scheme.time_zone) if at else None
    book = gradebook.make_gradebook(scheme, beside, records, now)
    with writing(out):
        written = exports.write(out, book)
        written.append(replace_text(out / "report.html", class_report.page(book), mode=PRIVATE))
    console.print(_table(book))
    for line in _lines(book):
        console.print(line)
    console.print(Text(f"Written: {', '.join(str(w) for w in written)}"))
    return OUR_FAULT if book.faults else COMPLETE if book.complete else WAITING


def _table(book: Gradebook) -> Table:
    table = Table("student", title=Text(one_line(book.scheme.course)))
    for s in book.rubrics.values():
        said = one_line(f"{s.assignment.title}, of {points_text(s.worth)}")
        table.add_column(Text(said), justify="right")
    table.add_column("total", justify="right")
    table.add_column("percent", justify="right")
    if len(book.totals) > MOST_ROWS:
        first = f"the first {MOST_ROWS} of {len(book.totals):,} students"
        table.caption = f"{first}; all are in grades.csv"
    for t in book.totals[:MOST_ROWS]:
        cells = [_cell(t.outcomes[topic]) for topic in book.rubrics]
        table.add_row(Text(one_line(t.student.shown)), *cells, *_total(t))
    return table


def _cell(o: Outcome) -> Text:
    """The points, with marks: * late, ( ) left out of the total."""
    said = exports.score(o) + ("*" if lateness_text(o) else "")
    return Text(f"({said})" if not o.counted else said, style=COLORS[o.status])


def _total(t: Total) -> tuple[Text, str]:
    if t.percent is None:
        return Text("pending" if t.status == "pending" else "–", style=COLORS[t.status]), ""
    return Text(f"{points_text(t.points)} of {points_text(t.out_of)}"), f"{points_text(t.percent)}%"


def _lines(book: Gradebook) -> list[Text]:
    """What needs a person, then what explains a score, so much as one reads; grades.csv has all."""
    troubles = [f"pending, {t.student.shown}: {w}" for t in book.totals for w in t.waiting]
    troubles += [f"nobody in the course: {name}" for name in book.strangers]
    told = [
        f"{t.student.shown}, {topic}: {said}"
        for t in book.totals
        for topic, o in t.outcomes.items()
        if o.status != "pending" and (said := exports.remarks(o))
    ]
    more = "... and {} more such lines, all in grades.csv"
    return [
        *listed(troubles, MOST_LINES, "yellow", more),
        *listed(told, MOST_LINES, "", more),
        *(Text(one_line(f"note: {n}"), style="cyan") for n in book.notes),
    ]
