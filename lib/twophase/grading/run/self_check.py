"""What a student wants to know before handing in: does the saved notebook, run from top to bottom
in a fresh process, still work?

The verdicts are the grader's, on the check cells' cases. `remarks` says what no verdict tells: that
an answer stands in another cell, in which order the cells ran, and what the grader ignores.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from twophase.grading.errors import Unreadable
from twophase.grading.files import notebook
from twophase.grading.files.cell_names import defined
from twophase.grading.files.notebook import Cell, value_at
from twophase.grading.intake.submissions import Submission
from twophase.grading.judge.judge import Course, Task
from twophase.grading.judge.what_is_not_there import UNKNOWN_MODULE
from twophase.grading.release.release import Source
from twophase.grading.results.records import Record
from twophase.grading.run.folder import grade_alone
from twophase.grading.sandbox.limits import Limits

SEED = 0  # of the check cells: what is right there should be right here
WRITES = re.compile(r"\s*%%(?:write)?file\b.*?\b(\w+)\.py\s*$", re.M)  # a cell that is a module


def check(path: Path, limits: Limits, source: Source | None = None) -> Record:
    """The record of one saved notebook, judged in the grader's jail, on public cases only."""
    course = Course(seed=SEED, limits=limits, source=source or Source(), public_only=True)
    return grade_alone(Task(Submission(path, str(path)), SEED), course)


def judged_later(record: Record) -> tuple[str, ...]:
    """The ids of the notebook's exercises whose checks only the instructor has."""
    return Source().load(record["topic"]).held_back


def remarks(data: bytes, record: Record) -> list[str]:
    """A sentence for each thing that the student may want to change. Raises Unreadable."""
    cells = notebook.parse(data).cells
    said = {q["id"]: " ".join([q["cell"]["error"], q["message"]]) for q in record["questions"]}
    return [*_files(cells, said), *_elsewhere(cells, record), *_order(data), *_kernel(data)]


def _files(cells: tuple[Cell, ...], said: dict[str, str]) -> Iterator[str]:
    """Modules that a cell would write. (What is said of names, other modules and files is the
    judge's: what_is_not_there.)"""
    written = {m[1]: n for n, c in enumerate(cells, 1) if (m := WRITES.match(c.source))}
    for exercise_id, text in said.items():
        for name in dict.fromkeys(UNKNOWN_MODULE.findall(text)):
            if name in written:
                yield (
                    f"{exercise_id} needs the module {name}, which is not there in a fresh run:"
                    f" cell {written[name]} would write it, and a submission can write no files."
                    " Put what you need of it into a cell."
                )


def _elsewhere(cells: tuple[Cell, ...], record: Record) -> Iterator[str]:
    """Answers in another cell than that of their exercise, which is a stub still."""
    stubs = [q["id"] for q in record["questions"] if q["status"] == "not_yet"]
    exercises = Source().load(record["topic"]).exercises if stubs else {}
    for exercise_id in stubs:
        for name in exercises[exercise_id].entries:
            found = {
                n: c for n, c in enumerate(cells, 1) if c.is_code and name in defined(c.source)
            }
            own = [n for n, c in found.items() if c.grade_id == exercise_id or "NotYet" in c.source]
            for n in sorted(found.keys() - own):
                above = n < max(own, default=0)
                when = "above it, so that the stub takes its place" if above else "too late"
                yield (
                    f"{exercise_id} is a stub still, and cell {n} defines {name} {when}: put"
                    " that into the exercise's own cell."
                )


def _order(data: bytes) -> Iterator[str]:
    """Cells that ran in another order than they stand in."""
    cells = enumerate(notebook.raw_cells(data), 1)
    counts = [(n, at) for n, c in cells if (at := value_at(c, "execution_count", int))]
    back = [(n, m) for (n, before), (m, after) in pairwise(counts) if after < before]
    if back:
        n, m = back[0]
        yield (
            f"When it was saved, cell {n} had been run after cell {m}, which stands below it; here"
            " the cells ran from top to bottom, as when it is graded. Restart the kernel and run"
            " all cells to see the same."
        )


def _kernel(data: bytes) -> Iterator[str]:
    """Another kernel than Python's own."""
    spec = value_at(value_at(notebook.tree(data), "metadata", dict), "kernelspec", dict)
    name = value_at(spec, "name", str)
    if name not in ("", "python3"):
        yield (
            f"It was saved with the kernel {name!r}: graded is with the grader's own Python,"
            " whatever stands there."
        )


def read_saved(path: Path) -> bytes:
    """The file's bytes. Raises ValueError, one sentence, if it is no notebook."""
    try:
        data = notebook.read_bytes(path)
        notebook.parse(data)
    except Unreadable as e:
        raise ValueError(f"{path} cannot be graded: {e}") from None
    return data
