"""What is said where a module was not there (`from utils import double`): only the notebook is run,
and what lies beside it, or what a cell would write, is not there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from twophase.checks.judge import Verdict
from twophase.grading.files.names import defined
from twophase.grading.judge.which_cells_run import Step
from twophase.grading.sandbox.session import CellRun

UNKNOWN_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
UNKNOWN_NAME = re.compile(r"\b(\w+)'? is not defined")
WHY = (
    "Only the notebook is run, with the course's libraries and no file beside it: put what you need"
    " of {} into a cell."
)


def explained(verdict: Verdict, own: CellRun, above: Iterable[tuple[Step, CellRun]]) -> Verdict:
    """`verdict`. If it is not right and a module was not there, in its `own` cells or in one
    `above` that would have defined a name which it lacks, its message says so, and what to do."""
    if verdict.right or verdict.status == "not_yet":
        return verdict
    said = [verdict.message.removesuffix(".")]
    modules = UNKNOWN_MODULE.findall(f"{own.error} {verdict.message}")
    lacks = set(UNKNOWN_NAME.findall(verdict.message))
    for step, run in above if lacks and not modules else ():
        missing = UNKNOWN_MODULE.findall(run.error)
        if missing and defined(step.source) & {*lacks, "*"}:
            modules = missing
            said.append(f"Cell {step.number + 1} stopped with {run.error[:200]}")
            break
    if not modules:
        return verdict
    return replace(verdict, message=". ".join([*said, WHY.format(modules[0][:100])]))
