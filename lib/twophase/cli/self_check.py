"""`twophase self-check`: a saved notebook in the grader's jail, on the public cases, for a student
before handing in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from twophase.cli import grading_options as options
from twophase.cli.progress_bars import patience
from twophase.grading.errors import GraderFault
from twophase.grading.reports.printable import one_line
from twophase.grading.results import run_summary
from twophase.grading.results.records import Record
from twophase.grading.run import self_check as check

ALL_RIGHT, NOT_ALL_RIGHT = 0, 1
WORDS = {
    "right": ("✓ right on the public cases", "green"),
    "wrong": ("✗ not right", "red"),
    "not_yet": ("· not written yet", "yellow"),
    "missing": ("– its cell or its name is missing", "red"),
    "failed": ("! breaks in a fresh run", "red"),
}


def self_check(
    notebook: Annotated[
        Path, typer.Argument(help="Your saved notebook, such as my/03_kv_cache.ipynb.")
    ],
    time_limit: options.TimeLimit = options.USUAL.submission_s,
    cell_time_limit: options.CellTimeLimit = options.USUAL.cell_s,
    memory_limit: options.MemoryLimit = options.USUAL_MEMORY,
) -> None:
    """Before handing in: run your saved notebook as the official grader does, from top to bottom in
    a fresh, confined process.

    It says for each exercise what would be handed in, on the cases that your check cells use. The
    official grade uses more cases.

    Exit code: 0 all right on the public cases; 1 something is not; 2 there is no such notebook, or
    it cannot be read; 3 the grader failed.

    Example: twophase self-check my/03_kv_cache.ipynb
    """
    limits = options.limits(time_limit, cell_time_limit, memory_limit)
    options.require_notebook(notebook)
    data = check.read_saved(notebook)
    console = Console()
    with patience("running your notebook in a fresh process"):
        record = check.check(notebook, limits)
    if record["status"] == "unreadable":
        raise ValueError(f"{notebook}: {run_summary.why(record)}")
    if record["status"] == "internal":
        raise GraderFault(record["message"])
    console.print(_table(record))
    for line in [*_flags(record), *check.remarks(data, record)]:
        console.print(Text(f"Noticed: {one_line(line)}", style="yellow"))
    if later := check.judged_later(record):
        console.print(Text(f"Judged after handing in, so not here: {', '.join(later)}."))
    console.print(Text(_summary(record)))
    right = all(q["status"] == "right" for q in record["questions"])
    raise typer.Exit(ALL_RIGHT if right else NOT_ALL_RIGHT)


def _table(record: Record) -> Table:
    """An exercise a line: what would be handed in, and what to do about it."""
    title = Text(one_line(record["file"]))
    table = Table("exercise", "handed in would be", "what it says", title=title)
    for q in record["questions"]:
        words, color = WORDS[q["status"]]
        says = "\n".join(_says(q))
        table.add_row(Text(one_line(q["title"])), Text(words, style=color), Text(says))
    return table


def _says(q: Record) -> list[str]:
    if q["status"] == "right":
        return ["by itself: another cell of yours breaks it"] if q["alone"] else []
    if q["status"] == "not_yet":
        return [f"Worth {q['out_of']:g} points."]
    lines = [one_line(q["message"])]
    if q["cell"]["error"] not in q["message"]:  # "" is in each
        lines.append(f"Its cell stopped with {one_line(q['cell']['error'])}")
    if q["hint"]:
        lines.append(f"A hint: {q['hint']}")
    return lines


def _flags(record: Record) -> list[str]:
    """What the official grader would note; a missing cell stands in the table."""
    return [
        f"{f['where']}: {f['says']}"
        for f in record["flags"]
        if f["name"] not in ("missing_cell", "right_alone")
    ]


def _summary(record: Record) -> str:
    questions = record["questions"]
    right = sum(q["status"] == "right" for q in questions)
    return (
        f"{right} of {len(questions)} exercises are right on the public cases. "
        "The official grade uses more cases than these.\n"
        f"Confined by {', '.join(record['confined_by'])}."
    )
