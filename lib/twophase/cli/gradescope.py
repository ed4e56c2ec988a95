"""`twophase gradescope`: the zip that makes Gradescope grade this course's notebooks, and a rehearsal of it on this machine."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from twophase.cli.interrupt import loading
from twophase.grading import gradescope_try, gradescope_zip
from twophase.grading.gradescope_config import Config
from twophase.grading.gradescope_results import Results, text
from twophase.grading.judging import DEFAULT_SEED
from twophase.grading.release import Source
from twophase.grading.secret import SETS

GRADED, NOT_GRADED = 0, 3


class Action(StrEnum):
    """What to do."""

    build = "build"
    try_ = "try"


def gradescope(
    action: Annotated[Action, typer.Argument(help="`build` the zip, or `try` one on a submission.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="For `try`: what a student hands in, then the zip (autograder.zip if none is given)."),
    ] = None,
    out: Annotated[Path, typer.Option(help="build: the zip to write.")] = Path("autograder.zip"),
    topic: Annotated[str, typer.Option(help="build: the one topic of the assignment, such as kv_cache.")] = "",
    secret: Annotated[
        Path | None, typer.Option(help="build: the course's secret; each student's cases are drawn with it.")
    ] = None,
    release: Annotated[Path | None, typer.Option(help="build: the release that students got.")] = None,
    checks: Annotated[list[Path] | None, typer.Option(help="build: a folder with exercises of your own.")] = None,
    variants: Annotated[Path | None, typer.Option(help="build: the folder with held-back exercises.")] = None,
    seed: Annotated[int, typer.Option(help="build: seed of everybody's cases, without a secret.")] = DEFAULT_SEED,
    sets: Annotated[int, typer.Option(min=0, help="build: sets of cases that students share; 0: one for each.")] = SETS,
    cell_seconds: Annotated[float, typer.Option(min=0.1, help="build: longest time for one cell, in seconds.")] = 30.0,
    time_limit: Annotated[
        float, typer.Option(min=1, help="build: longest time for a submission, in seconds; Gradescope ends all at 600.")
    ] = 300.0,
    memory_limit: Annotated[
        float,
        typer.Option(min=0, help="build: memory for a submission beyond the libraries', in GB; 0: what there is."),
    ] = 0.0,
    unsafe: Annotated[
        bool,
        typer.Option("--unsafe", help="build: grade also where nothing keeps a submission from reading the checks."),
    ] = False,
    student: Annotated[str, typer.Option(help="try: the email that Gradescope would name.")] = "student@example.edu",
) -> None:
    """An autograder for Gradescope: `build` makes the zip to upload, `try` rehearses it here in a tree laid out as theirs.

    The zip has the grader, the released notebooks, the checks and your secret: keep it as you keep the secret. The course's model
    solutions are not in it.

    Exit code: 0 done (try: graded, whatever the score); 2 bad usage; 3 (try) the autograder gave no score.

    Example: twophase gradescope build --topic kv_cache --secret course.secret --out autograder.zip

    Example: twophase gradescope try solved.ipynb autograder.zip
    """
    if action is Action.try_:
        raise typer.Exit(_try(list(files or ()), student))
    if files:
        raise ValueError(f"build takes no files, and {files[0]} is one; name the zip with --out")
    config = Config(
        topic=topic,
        seed=seed,
        sets=sets,
        cell_s=cell_seconds,
        submission_s=time_limit,
        memory_bytes=int(memory_limit * 1e9),
        unsafe=unsafe,
    )
    with loading():
        data = gradescope_zip.build(config, Source(release, tuple(checks or ()), variants), secret)
    written = gradescope_zip.save(out, data)
    print(f"{out}: {len(data) / 1e6:.1f} MB{'' if written else ', the same as before'}")
    print("Upload it as the autograder of a programming assignment; 768 MB of memory and half a processor are enough.")
    if secret is None:
        print("Without --secret everybody has the same cases, and whoever has the course can draw them too.")


def _try(files: list[Path], student: str) -> int:
    """Rehearse, print what Gradescope would show, and return the exit code."""
    zips = [f for f in files[1:] if f.suffix == ".zip"]
    archive = zips[-1] if zips else Path("autograder.zip")
    handed_in = [f for f in files if f not in zips]
    if not handed_in:
        raise ValueError("give what a student would hand in: twophase gradescope try solved.ipynb autograder.zip")
    console = Console()
    with console.status("running the autograder"):
        done = gradescope_try.rehearse(archive, handed_in, student)
    console.print(_table(done.results))
    if "score" in done.results:
        return GRADED
    console.print(Text(text(done.output).strip()), style="yellow")
    return NOT_GRADED


def _table(results: Results) -> Table:
    """What Gradescope would show, and to whom."""
    score = f"{results['score']:g} points" if "score" in results else "no score: Gradescope reports a failed autograder"
    table = Table("", "what", "points", "shown", "output", title=score, caption=Text(text(results["output"])))
    for test in results.get("tests", []):
        points = f"{test['score']:g} of {test.get('max_score', 0):g}" if "score" in test else ""
        table.add_row(test["number"], Text(test["name"]), points, test["visibility"], Text(test["output"]))
    return table
