"""`twophase gradescope`: the zip that makes Gradescope grade this course's notebooks, and a
rehearsal of it on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from twophase.cli import grading_options as opts
from twophase.cli.interrupt_while_loading import loading
from twophase.cli.progress_bars import patience
from twophase.grading.course.secret import SETS
from twophase.grading.gradescope import bundle, rehearsal
from twophase.grading.gradescope.config import Config
from twophase.grading.gradescope.results import ResultsJson, text
from twophase.grading.judge.judge import DEFAULT_SEED
from twophase.grading.release.release import Source

GRADED, NOT_GRADED = 0, 3
AUTOGRADER = Path("autograder.zip")


ABOUT = """An autograder for Gradescope: build it, try it.

Example: twophase gradescope build --out autograder.zip
"""
app = typer.Typer(no_args_is_help=True, help=ABOUT)


@app.command()
def build(
    out: Annotated[Path, typer.Option(help="The zip to write.")] = AUTOGRADER,
    topic: Annotated[
        str, typer.Option(help="The one topic of the assignment, such as kv_cache.")
    ] = "",
    secret: opts.Secret = None,
    case_sets: opts.CaseSets = SETS,
    release: opts.Release = None,
    checks: opts.Checks = None,
    variants: opts.Variants = None,
    seed: opts.Seed = DEFAULT_SEED,
    time_limit: opts.TimeLimit = opts.USUAL.submission_s,
    cell_time_limit: opts.CellTimeLimit = opts.USUAL.cell_s,
    memory_limit: Annotated[
        str,
        typer.Option(
            help=(
                f"Memory for one submission {opts.BEYOND}: 512MB; without it, what the container"
                " leaves."
            )
        ),
    ] = "",
    unsafe: Annotated[
        bool,
        typer.Option(
            "--unsafe", help="Grade also where nothing keeps a submission from reading the checks."
        ),
    ] = False,
) -> None:
    """Make the zip to upload as the autograder of a programming assignment.

    It has the grader, the released notebooks, the checks and your secret, and no model solution:
    keep it as you keep the secret.

    What takes longer than Gradescope's own limit (600 s unless you raise it) gets a zero there, so
    the zip ends itself before, without one.

    Exit code: 0 done; 2 bad usage; 3 it cannot be written.

    Example: twophase gradescope build --topic kv_cache --secret course.secret --out autograder.zip
    """
    config = Config(
        topic=topic,
        seed=seed,
        sets=case_sets,
        cell_s=cell_time_limit,
        submission_s=time_limit,
        memory_bytes=opts.memory_bytes(memory_limit) if memory_limit else 0,
        unsafe=unsafe,
    )
    with patience("loading the exercises and their checks"), loading():
        data = bundle.build(config, Source(release, tuple(checks or ()), variants), secret)
    written = bundle.save(out, data)
    print(f"{out}: {len(data) / 1e6:.1f} MB{'' if written else ', the same as before'}")
    print("Upload it as the autograder of a programming assignment; 768 MB of memory are enough.")
    if secret is None:
        print(opts.NO_SECRET)


@app.command("try")
def rehearse(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="What a student hands in, then the zip (autograder.zip if none is given)."
        ),
    ],
    student: Annotated[
        str, typer.Option(help="The email that Gradescope would name.")
    ] = "student@example.edu",
) -> None:
    """Rehearse the zip on a submission here, in a tree laid out as Gradescope's.

    Exit code: 0 graded, whatever the score; 2 bad usage; 3 the autograder gave no score.

    Example: twophase gradescope try solved.ipynb autograder.zip
    """
    raise typer.Exit(_try(files, student))


def _try(files: list[Path], student: str) -> int:
    """Rehearse, print what Gradescope would show, and return the exit code."""
    zips = [f for f in files[1:] if f.suffix == ".zip"]
    archive = zips[-1] if zips else AUTOGRADER
    handed_in = [f for f in files if f not in zips]
    console = Console()
    with console.status("running the autograder"):
        done = rehearsal.rehearse(archive, handed_in, student)
    console.print(Text(text(done.results["output"])))
    if "score" in done.results:
        console.print(_table(done.results))
        return GRADED
    console.print("No score: Gradescope reports a failed autograder. It printed, for you only:")
    console.print(Text(text(done.output).strip()), style="yellow")
    return NOT_GRADED


def _table(results: ResultsJson) -> Table:
    """What Gradescope would show, and to whom."""
    table = Table("", "what", "points", "shown", "output", title=f"{results['score']:g} points")
    for test in results.get("tests", []):
        points = f"{test['score']:g} of {test.get('max_score', 0):g}" if "score" in test else ""
        table.add_row(
            test["number"], Text(test["name"]), points, test["visibility"], Text(test["output"])
        )
    return table
