"""What is said where something was not there: a module (`from utils import double`), a file beside
the notebook, another process, the network, a GPU, somebody who types. Only the notebook is run,
shut in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from twophase.checks.judge import Verdict
from twophase.grading.files.cell_names import defined
from twophase.grading.judge.which_cells_run import Step
from twophase.grading.sandbox.session import CellRun

UNKNOWN_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
UNKNOWN_NAME = re.compile(r"\b(\w+)'? is not defined")
# what is refused, or was never there; also Numba's folder for machine code, and what the resolver
# says without a network
REFUSED = re.compile(
    r"PermissionError|Permission denied|\[Errno (?:1|13)\]|name resolution|numba_cache"
    r"|NameResolutionError|Name or service not known|FileNotFoundError|File `'[^`]*'` not found"
)
UNANSWERED = re.compile(r"EOFError: (?:EOF when reading a line|\s|$)|\bBdbQuit\b")
NO_GPU = re.compile(r"compiled with CUDA|NVIDIA driver|No CUDA GPUs|'?MPS'? backend")
WHY = (
    "Only the notebook is run, with the course's libraries and no file beside it: put what you need"
    " of {} into a cell."
)
WHY_REFUSED = (
    "Where answers are graded there is no file beside the notebook, to read or to write, no network"
    " and no other process; multiprocessing's locks and thread pools, and @njit(cache=True), need"
    " one of these. Leave that out of the answer's cell and of those above it."
)

WHY_UNANSWERED = (
    "Nobody types where answers are graded, at input() or in a debugger: write the value into the"
    " cell, and take breakpoints out."
)
WHY_NO_GPU = "Where answers are graded there is no GPU: compute on the CPU."


def explained(verdict: Verdict, own: CellRun, above: Iterable[tuple[Step, CellRun]]) -> Verdict:
    """`verdict`. If it is not right and something was not there, in its `own` cells or in one
    `above` that would have defined a name which it lacks, its message says so, and what to do."""
    if verdict.right or verdict.status == "not_yet":
        return verdict
    said = [verdict.message.removesuffix(".")]
    why = reason(f"{own.error} {verdict.message}")
    lacks = set(UNKNOWN_NAME.findall(verdict.message))
    for step, run in above if lacks and not why else ():
        if run.error and defined(step.source) & {*lacks, "*"}:
            why = reason(run.error)
            said.append(f"Cell {step.number + 1} stopped with {run.error[:200]}")
            break
    if not why and len(said) == 1:
        return verdict
    return replace(verdict, message=". ".join([*said, why] if why else said))


def reason(error: str) -> str:
    """What is not there, if an error says that something was not, and what to do; else an empty
    string."""
    if modules := UNKNOWN_MODULE.findall(error):
        return WHY.format(modules[0][:100])
    if UNANSWERED.search(error):
        return WHY_UNANSWERED
    if NO_GPU.search(error):
        return WHY_NO_GPU
    return WHY_REFUSED if REFUSED.search(error) else ""
