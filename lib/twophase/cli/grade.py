"""`twophase check` and `twophase grade`: one saved notebook, or a folder of them, scored by the official grader."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from twophase.cli.interrupt import loading
from twophase.cli.score import write_grades
from twophase.grading import gradebook, release, report, stored
from twophase.grading.confine import Limits, supported
from twophase.grading.forks import Zygote
from twophase.grading.records import Record
from twophase.grading.release import Release
from twophase.grading.results import Results
from twophase.grading.run import DEFAULT_SEED, Course, Submission, find, grade_folder, grade_one

ALL_RIGHT, NOT_ALL_RIGHT, OUR_FAULT = 0, 1, 3
GRADED, SOME_UNREADABLE = 0, 1
MARKS = {
    "right": ("✓", "green"),
    "wrong": ("✗", "red"),
    "not_yet": ("·", "yellow"),
    "missing": ("–", "red"),
    "failed": ("!", "red"),
}

Seed = Annotated[int, typer.Option(help="Seed of the cases. The check cells in a notebook use 0.")]
CellSeconds = Annotated[float, typer.Option(min=0.1, help="Longest time for one cell, in seconds.")]
TotalSeconds = Annotated[float, typer.Option(min=1, help="Longest time for one submission, in seconds.")]
MemoryGB = Annotated[float, typer.Option(min=0.2, help="Memory for one submission beyond the libraries', in GB.")]


def check(
    notebook: Annotated[Path, typer.Argument(help="A saved notebook, such as my/03_kv_cache.ipynb.")],
    seed: Seed = DEFAULT_SEED,
    cell_seconds: CellSeconds = 30.0,
    seconds: TotalSeconds = 300.0,
    memory_gb: MemoryGB = 2.0,
) -> None:
    """Score one saved notebook as the official grader does: run from top to bottom, in a process without the checks.

    Exit code: 0 everything is right; 1 something is not; 2 there is no such notebook, or it cannot be read; 3 the grader failed.
    """
    _supported()
    if not notebook.exists() and not notebook.is_symlink():
        raise ValueError(f"there is no file {notebook}; give a saved notebook, such as my/03_kv_cache.ipynb")
    course = Course(seed, _limits(cell_seconds, seconds, memory_gb))
    with Zygote() as zygote:
        record = grade_one(Submission(notebook, str(notebook)), course, zygote)
    if record["status"] == "unreadable":
        raise ValueError(f"{notebook}: {record['message'].removeprefix('This file could not be graded: ')}")
    console = Console()
    if record["status"] == "internal":
        Console(stderr=True).print(Text(f"twophase: {record['message']}"))
        raise typer.Exit(OUR_FAULT)
    console.print(_verdicts(record))
    for flag in (f for f in record["flags"] if f["name"] != "missing_cell"):  # the table says that one
        console.print(Text(f"noticed, {_plain(flag['where'])}: {_plain(flag['says'])}", style="yellow"))
    raise typer.Exit(ALL_RIGHT if record["points"] == record["out_of"] else NOT_ALL_RIGHT)


def grade(
    folder: Annotated[Path, typer.Argument(help="The folder with the submissions; every .ipynb below it is one.")],
    out: Annotated[Path, typer.Option(help="Where results.jsonl and feedback/ go.")] = Path("grades"),
    seed: Seed = DEFAULT_SEED,
    workers: Annotated[int, typer.Option(min=0, help="Submissions graded at a time; 0: one per processor.")] = 0,
    cell_seconds: CellSeconds = 30.0,
    seconds: TotalSeconds = 300.0,
    memory_gb: MemoryGB = 2.0,
    scheme: Annotated[
        Path | None, typer.Option("--course", help="A course file: its grades are written too, as by `twophase score`.")
    ] = None,
) -> None:
    """Score every notebook in a folder. What was graded before, unchanged, is skipped: an interrupted run goes on where it was.

    Exit code: 0 all graded; 1 some files cannot be read, or (with --course) a grade waits for a person; 2 bad usage; 3 the grader failed on
    some, which were not graded.
    """
    _supported()
    submissions = find(folder)
    course = Course(seed, _limits(cell_seconds, seconds, memory_gb))
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; give a folder to --out")
    if scheme is not None:
        gradebook.load(scheme)  # a mistake in it is told before the hours of grading, not after
    console = Console()
    with Results(out) as results:
        skipped = _graded(submissions, course, results, workers, console)
        names = {s.name for s in submissions}
        records = [r for r in results.latest() if r["file"] in names]
        index = report.write(out, results.latest())
        console.print(_summary(records))
        console.print(Text(f"{len(records)} submissions, {skipped} of them graded before. Results: {results.path}"))
        console.print(Text(f"Feedback: {index}"))
        scored = GRADED if scheme is None else write_grades(scheme, stored.read(results.path), out, console)
    statuses = {r["status"] for r in records}
    graded = OUR_FAULT if "internal" in statuses else SOME_UNREADABLE if "unreadable" in statuses else GRADED
    raise typer.Exit(max(graded, scored))


def _graded(submissions: list[Submission], course: Course, results: Results, workers: int, console: Console) -> int:
    """Grade with a progress bar. Returns how many were skipped."""
    skipped = 0
    columns = (TextColumn("grading"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("grading", total=len(submissions))

        def told(record: Record | None) -> None:
            nonlocal skipped
            skipped += record is None
            progress.advance(task)

        grade_folder(submissions, course, results, workers or os.cpu_count() or 1, told)
    return skipped


def _supported() -> None:
    if reason := supported():
        raise ValueError(reason)


def _release(topic: str) -> Release:
    with loading():  # it imports the topic's checks, and they import torch
        return release.load(topic)


def _limits(cell_seconds: float, seconds: float, memory_gb: float) -> Limits:
    return Limits(cell_s=cell_seconds, submission_s=seconds, memory_bytes=int(memory_gb * 1e9))


def _plain(value: object) -> str:
    """Somebody else's text for the terminal: without control characters, which could move the cursor or repaint the screen."""
    return report.CONTROL.sub("�", str(value)).replace("\n", " ")


def _verdicts(record: Record) -> Table:
    table = Table(
        "exercise", "points", "verdict", title=Text(_plain(record["file"])), caption=f"{report.points(record)} points"
    )
    for q in record["questions"]:
        mark, color = MARKS[q["status"]]
        says = "right" if q["status"] == "right" else _plain(q["message"])
        table.add_row(_plain(q["title"]), f"{q['points']:g} of {q['out_of']:g}", Text(f"{mark} {says}", style=color))
    return table


def _summary(records: list[Record]) -> Table:
    table = Table("submission", "points", "questions", "status", "flags")
    for r in records:
        marks = Text()
        for q in r["questions"]:
            mark, color = MARKS[q["status"]]
            marks.append(mark, style=color)
        table.add_row(Text(_plain(r["file"])), report.points(r), marks, r["status"], str(len(r["flags"]) or ""))
    return table
