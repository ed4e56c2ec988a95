"""Which cells of a submission are run, in which order, and what about the submission is worth a
flag."""

from __future__ import annotations

import re
from dataclasses import dataclass

from twophase.grading.files.notebook import Cell, Notebook
from twophase.grading.release.release import Release
from twophase.grading.results.grade import NOT_ASKED, Flag

CHECK_DEFINED = re.compile(r"^[ \t]*(?:def[ \t]+check\b|check[ \t]*=(?!=))", re.M)
GRADER_NAMES = (
    "twophase.checks",
    "twophase.grading",
    "twophase.cli",
    "twophase import checks",
    "twophase import grading",
)
# an assignment to something's attribute (but its own), or a word that is used to change what
# belongs to others
REACHES = re.compile(
    r"^[ \t]*(?!self\.)\w+(?:\.\w+)+["
    r" \t]*=(?!=)|\b(?:setattr|builtins|vars|gc|get_ipython)\b|__dict__|__code__",
    re.M,
)


@dataclass(frozen=True)
class Step:
    """A cell to run: of the release (`setup`; `given` if it could have been changed and was not),
    an answer, or the submission's `own`."""

    number: int
    role: str
    source: str
    exercise_id: str = ""


@dataclass(frozen=True)
class Plan:
    """All steps in order, the exercises without an answer cell, and the flags."""

    steps: tuple[Step, ...]
    missing: frozenset[str]
    flags: tuple[Flag, ...]

    def alone(self, exercise_id: str, with_own: bool) -> tuple[Step, ...]:
        """The steps for one exercise by itself: the release's cells, its answer, and the
        submission's own cells if wanted."""
        roles = ("setup", "given", "own") if with_own else ("setup", "given")
        return tuple(s for s in self.steps if s.role in roles or s.exercise_id == exercise_id)

    def is_stub(self, exercise_id: str) -> bool:
        """Whether the exercise's own cell is a stub still."""
        return any("NotYet" in s.source for s in self.steps if s.exercise_id == exercise_id)

    def reached_into(self, exercise_id: str) -> bool:
        """Whether another cell looks as if it changed something that is not its own, so that this
        answer may suffer."""
        others = (
            s
            for s in self.steps
            if s.role not in ("setup", "given") and s.exercise_id != exercise_id
        )
        return any(REACHES.search(s.source) for s in others)


def make_plan(notebook: Notebook, release: Release) -> Plan:
    """The release's cells first, then the submission's in its own order; of several cells with one
    id, the last."""
    flags: list[Flag] = []
    last = {
        c.grade_id: n
        for n, c in enumerate(notebook.cells)
        if c.grade_id in release.exercises and c.is_code
    }
    steps = [
        (-len(release.first) + n, "setup", release.locked[i], "")
        for n, i in enumerate(release.first)
    ]
    ran = set(release.first)
    for n, cell in enumerate(notebook.cells):
        flags += _cell_flags(n, cell, release, last)
        graded = (
            cell.grade and cell.grade_id not in release.exercises
        )  # an answer is one, however it is marked
        if not cell.is_code or graded or _is_check(cell, release):
            continue
        if cell.grade_id in release.locked:
            if cell.grade_id not in ran:
                steps.append((n, "setup", release.locked[cell.grade_id], ""))
            ran.add(cell.grade_id)
        elif cell.grade_id in release.exercises:
            if last[cell.grade_id] == n:
                steps.append((n, "answer", cell.source, cell.grade_id))
        elif cell.source.strip():
            steps.append(
                (n, "given" if cell.source.strip() in release.given else "own", cell.source, "")
            )
    for grade_id in release.locked:
        if grade_id not in ran:  # deleted from the submission: run it before the answers
            steps.insert(len(release.first), (-1, "setup", release.locked[grade_id], ""))
    missing = frozenset(release.exercises) - frozenset(last)
    flags += [
        Flag("missing_cell", i, "The answer's cell is not in the notebook.")
        for i in sorted(missing)
    ]
    return Plan(tuple(Step(*s) for s in steps), missing, tuple(dict.fromkeys(flags)))


def _is_check(cell: Cell, release: Release) -> bool:
    return (
        cell.grade_id.endswith("-check")
        and cell.grade_id.removesuffix("-check") in release.exercises
    )


def _cell_flags(n: int, cell: Cell, release: Release, last: dict[str, int]) -> list[Flag]:
    where = cell.grade_id[:80] or f"cell {n + 1}"
    found: list[Flag] = []
    if cell.grade_id in release.exercises and cell.is_code and last[cell.grade_id] != n:
        found.append(
            Flag("duplicate_cell", where, "Several cells have this id: the last one counts.")
        )
    asked = cell.grade_id[:80].removesuffix("-check")
    if (
        cell.grade
        and asked.startswith(f"{release.topic}-")
        and asked not in (*release.exercises, *release.held_back)
    ):
        found.append(
            Flag(
                NOT_ASKED,
                asked,
                "The notebook asks this exercise, and what it is graded against does not.",
            )
        )
    if (
        cell.grade_id in release.locked
        and cell.source.strip() != release.locked[cell.grade_id].strip()
    ):
        found.append(
            Flag(
                "locked_cell_changed", where, "A locked cell was changed: the released one was run."
            )
        )
    if (
        _is_check(cell, release)
        and cell.source.strip() != f'check("{cell.grade_id.removesuffix("-check")}")'
    ):
        found.append(
            Flag(
                "check_cell_changed",
                where,
                "A check cell was changed: it was not run, and has no say.",
            )
        )
    if cell.is_code and CHECK_DEFINED.search(cell.source):
        found.append(
            Flag("defines_check", where, "It defines a `check` of its own, which has no say.")
        )
    if cell.is_code and any(name in cell.source for name in GRADER_NAMES):
        found.append(
            Flag("names_grader", where, "It names the checks or the grader, which are not there.")
        )
    return found
