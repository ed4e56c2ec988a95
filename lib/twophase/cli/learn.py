"""`twophase lab`, `update`, `next` and `progress`: a learner's own folder, and the way through the
course."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

import twophase.lab
from twophase.cli import my_folder
from twophase.lab import record
from twophase.lab.course import COURSE

JUPYTER_SETTINGS = Path(twophase.lab.__file__).parent / "jupyter"

Course = Annotated[
    Path, typer.Option("--course", hidden=True, help="The folder that holds exercises/ and my/.")
]


def lab(
    open_lab: Annotated[
        bool, typer.Option("--open/--no-open", help="Open JupyterLab there.")
    ] = True,
    course: Course = COURSE,
) -> None:
    """Copy the notebooks that are missing from exercises/ to my/, the chapters to my/chapters/, and
    open JupyterLab there. Nothing is ever overwritten.

    Example: twophase lab
    """
    copied = my_folder.fill(course)
    mine = my_folder.folder(course)
    typer.echo(
        f"{my_folder.shown(mine)}:"
        f" {'copied ' + ', '.join(copied) if copied else 'every notebook is there'}"
    )
    if open_lab:
        sys.stdout.flush()
        root = (
            ["--allow-root"] if os.geteuid() == 0 else []
        )  # in a container there is often nobody else
        os.chdir(mine)  # JupyterLab's extensions look for their files where it starts
        os.execve(
            sys.executable,
            [sys.executable, "-m", "jupyterlab", "--ServerApp.root_dir=.", *root],
            learners_environment(os.environ),
        )


def learners_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which JupyterLab leaves out what is for instructors (nbgrader's menus and
    buttons) and asks about no news. The learner's own Jupyter settings stay."""
    paths = [str(JUPYTER_SETTINGS), environment.get("JUPYTER_CONFIG_PATH", "")]
    return {**environment, "JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, paths))}


def update(course: Course = COURSE) -> None:
    """Bring a new release of exercises/ into my/. Every answer of yours stays, and so does every
    cell that you added.

    Save and close the notebooks in JupyterLab first. Each notebook that changes is kept in
    my/.twophase/backup/.

    Example: twophase update
    """
    failed = False
    for report in my_folder.update(course):
        failed = failed or report.failed
        typer.echo(f"{report.name}: {report.lines[0]}", err=report.failed)
        for line in report.lines[1:]:
            typer.echo(f"  {line}")
    if failed:
        raise typer.Exit(2)


def next_(course: Course = COURSE) -> None:
    """Say where you stopped and what the next sitting is, and ask two recall questions about what
    you have done.

    Example: twophase next
    """
    from twophase.cli import sittings

    file = my_folder.progress_file(course)
    events = record.read(file)
    for line in sittings.where_stopped(events, course):
        typer.echo(line)
    sittings.ask(sittings.recall_questions(events), file)


def progress(
    topic: Annotated[
        str | None,
        typer.Argument(help="A topic, such as kv_cache. Default: the one you were last in."),
    ] = None,
    course: Course = COURSE,
) -> None:
    """Print which exercises are done, tried and open, with points and minutes.

    Example: twophase progress kv_cache
    """
    from rich.console import Console
    from rich.table import Table

    from twophase.cli import sittings
    from twophase.lab.tables import COURSE_HEAD, TOPIC_HEAD, course_rows, topic_rows

    events = record.read(my_folder.progress_file(course))
    standings = record.standings(events)
    chosen = sittings.known_topic(topic) if topic else sittings.last_topic(events)
    tables = [(TOPIC_HEAD, topic_rows(chosen, standings))] if chosen else []
    for head, rows in [*tables, (COURSE_HEAD, course_rows(standings))]:
        table = Table(*head)
        for row in rows:
            table.add_row(*row)
        Console().print(table)
