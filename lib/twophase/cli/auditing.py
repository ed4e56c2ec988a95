"""`twophase grade --audit`: grade again what was graded, and show what differs."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from twophase.cli.grading_shown import Watch
from twophase.grading.errors import writing
from twophase.grading.files.atomic import replacing
from twophase.grading.intake.submissions import Submission
from twophase.grading.judge.judge import Course
from twophase.grading.reports.printable import one_line
from twophase.grading.results import reader
from twophase.grading.run.audit import Audited, choose
from twophase.grading.run.audit import audit as grade_again

ALL_EQUAL, DIFFERENT = 0, 1
MOST_ROWS = 40


def audit(
    submissions: list[Submission],
    course: Course,
    out: Path,
    workers: int,
    share: float,
    console: Console,
) -> int:
    """Audit, show, write audit.jsonl. Returns the exit code. Raises CannotWrite, and ValueError if
    there is nothing to audit."""
    index = reader.Index(reader.results_path(out))
    chosen = choose(submissions, course, index, share)
    said = f"Auditing {len(chosen):,} of {len(submissions):,} submissions"
    console.print(Text(f"{said}, with the same seed and with another."))
    path = out / "audit.jsonl"
    different: list[Audited] = []
    with (
        writing(path),
        replacing(path) as file,
        Watch(console, 2 * len(chosen), says="auditing") as watch,
    ):
        for one in grade_again(chosen, course, index, workers):
            file.write(json.dumps(one.line()).encode("ascii") + b"\n")
            different += [one] if one.differences else []
            watch.step()
    if different:
        console.print(_table(different))
    same = sum(d.same_seed for d in different)
    said = "All are equal."
    if different:
        said = f"{same:,} differ with the same seed, {len(different) - same:,} get other verdicts"
        said += " with another seed."
    console.print(Text(said))
    console.print(Text(f"Written: {path}"))
    return DIFFERENT if different else ALL_EQUAL


def _table(different: list[Audited]) -> Table:
    table = Table("submission", "seed", "where", "before", "now", title="Differences")
    rows = [(one, d) for one in different for d in one.differences]
    for one, d in rows[:MOST_ROWS]:
        seed = "same" if one.same_seed else "another"
        row = (one.file, seed, d.where, d.before[:60], d.after[:60])
        table.add_row(*(Text(one_line(x)) for x in row))
    if len(rows) > MOST_ROWS:
        table.caption = f"and {len(rows) - MOST_ROWS:,} more, all in audit.jsonl"
    return table
