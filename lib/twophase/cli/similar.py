"""`twophase similar`: groups of near-identical answers, as evidence for a person. Nothing is run,
and no score changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from twophase.cli import grading_options as options
from twophase.cli.progress_bars import PatientBar
from twophase.grading.errors import writing
from twophase.grading.files.atomic import PRIVATE, replace_text
from twophase.grading.intake import submissions
from twophase.grading.release.release import Source
from twophase.grading.reports.printable import one_line
from twophase.grading.scores import gradebook
from twophase.grading.similar import page
from twophase.grading.similar.class_comparison import LEAST, Report, compare_class
from twophase.grading.similar.groups import SimilarGroup

NOTHING, LOOK = 0, 1
MOST_GROUPS, MOST_NAMES = 20, 6


def similar(
    folder: Annotated[
        Path,
        typer.Argument(help="The folder or zip with the submissions, as for `twophase grade`."),
    ],
    out: Annotated[Path, typer.Option(help="Where similar.html and similar.json go.")] = Path(
        "grades"
    ),
    release: Annotated[
        Path | None,
        typer.Option(
            help=(
                "What was handed out, as `twophase release` wrote it; without it, the course's own."
            )
        ),
    ] = None,
    checks: options.Checks = None,
    variants: options.Variants = None,
    layout: Annotated[
        str, typer.Option(help="How the submissions lie there; auto finds out.")
    ] = "auto",
    least: Annotated[
        float,
        typer.Option(
            help="Share of the rarer fragments that must be the same, above 0, at most 1."
        ),
    ] = LEAST,
    exercise: Annotated[str, typer.Option(help="Only this exercise, by its id.")] = "",
    course: Annotated[
        Path | None, typer.Option(help="The course file: whose a file is, and who works together.")
    ] = None,
) -> None:
    """Groups of near-identical answers, with the code side by side: evidence for a person, never a
    score. Nothing is run.

    What the course gives out or publishes does not count, nor what many of the class wrote. Teams
    are not compared with themselves.

    Exit code: 0 nothing to look at; 1 something to look at; 2 bad usage; 3 it cannot be written.

    Example: twophase similar submissions/ --out grades/ --course course.yml
    """
    if not 0 < least <= 1:
        raise ValueError(
            f"--least {least:g} is no share; give a number above 0 and at most 1, such as {LEAST}"
        )
    options.require_folder(out)
    scheme, beside = (None, None) if course is None else gradebook.load_course(course)
    students = beside.roster if beside else ()
    found = submissions.find(folder, layout)
    console, source = Console(), Source(None, tuple(checks or ()), variants)
    with _Bar(console) as bar:
        compared = compare_class(found, least, exercise, scheme, release, bar, source, students)
    data = json.dumps(page.as_json(compared), indent=1) + "\n"
    with writing(out):
        written = replace_text(out / "similar.html", page.page(compared), mode=PRIVATE)
        replace_text(out / "similar.json", data, mode=PRIVATE)
    _tell(compared, console)
    console.print(Text(f"Written: {written}, {out / 'similar.json'}"))
    raise typer.Exit(LOOK if compared.groups else NOTHING)


class _Bar(PatientBar):
    """Called with what is being done, how much of it is done, of how much."""

    def __init__(self, console: Console) -> None:
        what, bar = TextColumn("{task.description}"), BarColumn()
        super().__init__(what, bar, MofNCompleteColumn(), TimeRemainingColumn(), console=console)

    def __call__(self, what: str, done: int, of: int) -> None:
        self.show(done, of, description=what)


def _tell(found: Report, console: Console) -> None:
    if found.groups:
        console.print(_table(found))
        left = len(found.groups) + found.groups_left_out - MOST_GROUPS
        if left > 0:
            console.print(Text(f"... and {left} more groups, weaker than these"))
    for one in found.exercises:
        if said := page.follows_sentence(one):
            console.print(Text(one_line(f"{one.title}: {said}"), style="cyan"))
    for file, why in found.unreadable[:MOST_GROUPS]:
        console.print(Text(one_line(f"not read, {file}: {why}"), style="yellow"))
    console.print(Text(page.summary(found)))
    if found.groups:
        console.print(Text(page.CAVEAT, style="bold"))


def _table(found: Report) -> Table:
    table = Table("group", "topic", "exercises", "strongest pair", "also the same")
    for g in found.groups[:MOST_GROUPS]:
        names = ", ".join(g.names[:MOST_NAMES])
        names += f" and {len(g.names) - MOST_NAMES} more" if len(g.names) > MOST_NAMES else ""
        shown = (names, g.topic, _exercises(g), _strongest(g), _traces(g))
        table.add_row(*(Text(one_line(x)) for x in shown))
    return table


def _exercises(g: SimilarGroup) -> str:
    return ", ".join(a.exercise.id.partition("-")[2] or a.exercise.id for a in g.agreements)


def _strongest(g: SimilarGroup) -> str:
    best = max((p for a in g.agreements for p in a.pairs), key=lambda p: p.weight, default=None)
    return f"{best.same} of {best.rarer} rarer fragments" if best else ""


def _traces(g: SimilarGroup) -> str:
    strong = [t.mark.kind for t in g.traces if t.mark.strong]
    return ", ".join(
        f"{kind} ({strong.count(kind)})" if strong.count(kind) > 1 else kind
        for kind in dict.fromkeys(strong)
    )
