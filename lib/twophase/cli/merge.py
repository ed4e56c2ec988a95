"""`twophase merge`: the results of the parts of a class, graded by several machines, as one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from twophase.cli import grading_options as options
from twophase.cli.grade import finish
from twophase.cli.grading_shown import listed
from twophase.grading.errors import writing
from twophase.grading.reports.printable import one_line
from twophase.grading.results import reader, run_summary
from twophase.grading.run import merging

MERGED, DO_NOT_FIT = 0, 1
MOST_LINES = 40


def merge(
    parts: Annotated[
        list[Path],
        typer.Argument(help="The folders that `twophase grade --shard` wrote, all of them."),
    ],
    out: options.Out = options.GRADES,
) -> None:
    """Put the results of shards together, if they are all there, each submission once, graded under
    the same conditions.

    Exit code: 0 merged; 1 something is missing, there twice, or graded otherwise: each is named,
    and nothing is written; 2 bad usage; 3 merged, and the grader had failed on some, or cannot
    write.

    Example: twophase merge grades-*/ --out grades/
    """
    options.require_folder(out)
    raise typer.Exit(_merge(parts, out, Console()))


def _merge(parts: list[Path], out: Path, console: Console) -> int:
    plan = merging.plan_merge(parts)
    for line in plan.remarks:
        console.print(Text(one_line(f"note: {line}"), style="cyan"), soft_wrap=True)
    if plan.problems:
        for problem in listed(plan.problems, MOST_LINES, "red", "and {:,} more such lines"):
            console.print(problem, soft_wrap=True)
        console.print(Text("Nothing was written."))
        return DO_NOT_FIT
    with writing(out):
        path = merging.write_merged(plan, out)
    index = reader.Index(path)
    counted = run_summary.count(index.latest())
    code = finish(console, out, index, counted)
    return code if counted.statuses["internal"] else MERGED
