"""What is said where something was not there: a name, a module (`from utils import double`), a file
beside the notebook, another process, the network, a GPU, somebody who types. Only the notebook is
run, from top to bottom, shut in."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from twophase.checks.judge import Verdict
from twophase.grading.files.cell_names import LONGEST, defined
from twophase.grading.judge.which_cells_run import ExecutionPlan, Step
from twophase.grading.sandbox.limits import Limits
from twophase.grading.sandbox.rlimits import MAX_THREADS
from twophase.grading.sandbox.session import CellRun

UNKNOWN_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
UNKNOWN_NAME = re.compile(r"\b(\w+)'? is not defined")
# what is refused, or was never there; also Numba's folder for machine code, and what the resolver
# says without a network
REFUSED = re.compile(
    r"\[Errno (?:1|13)\]|name resolution|numba_cache|NameResolutionError"
    r"|Name or service not known|FileNotFoundError|File `'[^`]*'` not found"
)
REFUSED_IN_WORDS = re.compile(r"PermissionError|Permission denied")
# no system raises these: what such an error says are the words of whoever wrote it
OWN_WORDS = re.compile(
    r"\b(?:Exception|(?:Value|Type|Key|Index|Assertion|Attribute|ZeroDivision)Error): "
)
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
WHY_NO_MEMORY = (
    f"A submission may take {Limits().memory_bytes / 1e9:g} GB beyond what the libraries take,"
    " unless your course says otherwise; what is mapped counts, written to or not."
)
WHY_NO_LOOP = (
    "Where answers are graded they are called outside of an event loop: do without it in the answer"
    " itself."
)
WHY_NO_GPU = "Where answers are graded there is no GPU: compute on the CPU."
WHY_NO_THREAD = (
    f"A submission may run {MAX_THREADS} threads at a time, the libraries' among them: start fewer."
)
# in a cell: programs, what is left of earlier cells, what is caught of this one
OF_A_KERNEL = re.compile(
    r"(?:^|=)[ \t]*!|^[ \t]*%(?:macro|rerun|recall|store|sx|hist)|^%%capture|os\.system"
    r"|\b(?:In|Out)\[|\b_i?\d+\b|\b_ii?\b",
    re.M,
)
WHY_OF_A_KERNEL = (
    "If it is right in a fresh kernel: where answers are graded no program is started (`x = !cmd`"
    " is empty), no history of cells is kept (In, Out, _2, %macro, %store), and %%capture keeps"
    " what the last part of its cell shows. Do without these in what an answer needs."
)
# what an error says of these, the first that does
SIGNS = (
    (re.compile(r"EOFError: (?:EOF when reading a line|\s|$)|\bBdbQuit\b"), WHY_UNANSWERED),
    (re.compile(r"MemoryError|can't allocate memory|Unable to allocate|bad_alloc"), WHY_NO_MEMORY),
    (re.compile(r"no running event loop"), WHY_NO_LOOP),
    (re.compile(r"can't start new thread"), WHY_NO_THREAD),
    (re.compile(r"compiled with CUDA|NVIDIA driver|No CUDA GPUs|'?MPS'? backend"), WHY_NO_GPU),
)


def explained(
    verdict: Verdict, own: CellRun, plan: ExecutionPlan, stopped: Callable[[Step], str]
) -> Verdict:
    """`verdict`. If it is not right and something was not there, in its `own` cells or in one above
    that would have defined a name which it lacks, its message says so, and what to do. `stopped`
    says how a step did."""
    if verdict.right or verdict.status == "not_yet":
        return verdict
    said = [verdict.message.removesuffix(".")]
    why = reason(f"{own.error} {verdict.message}")
    lacks = [] if why else [*dict.fromkeys(UNKNOWN_NAME.findall(verdict.message))]
    if own.error and not why and not lacks:
        why = _of_a_kernel(plan, verdict.exercise_id)
    for step in plan.above(verdict.exercise_id) if lacks else ():
        if step.exercise_id == verdict.exercise_id or not _gives(step, *lacks, "*"):
            continue
        if how := stopped(step):
            why = reason(how) or _of_a_kernel(plan, verdict.exercise_id)
            said.append(f"Cell {step.cell} {how[:220].removesuffix('.')}")
            break
    if lacks and len(said) == 1:
        why = " ".join(_whereabouts(name, plan, verdict.exercise_id) for name in lacks)
    if not why and len(said) == 1:
        return verdict
    return replace(verdict, message=". ".join([*said, why] if why else said))


def _of_a_kernel(plan: ExecutionPlan, exercise_id: str) -> str:
    """What a kernel has and a graded notebook has not, if a cell above seems to use it."""
    above = (s for s in plan.above(exercise_id) if s.role in ("answer", "own"))
    return WHY_OF_A_KERNEL if any(OF_A_KERNEL.search(s.source) for s in above) else ""


def _gives(step: Step, *names: str) -> bool:
    return not defined(step.source).isdisjoint(names)


def _whereabouts(name: str, plan: ExecutionPlan, exercise_id: str) -> str:
    """Where a name is defined that was not there when the exercise was asked, and what to do."""
    if above := [s for s in plan.above(exercise_id) if _gives(s, name)]:
        if all(s.source.lstrip().startswith("%%timeit") for s in above):
            return f"{name} is defined under %%timeit, which keeps names to itself: take it out."
        return f"{name} is defined above the check, and was not there when it was used" + (
            "."
            if plan.changes(exercise_id, [name])
            else ": restart the kernel and run all cells. If it is there then, it rests on what a"
            " graded notebook has not: a check that fails, a history of cells (%macro), or lines"
            f" behind the check of a cell that is longer than {LONGEST:,} characters."
        )
    below = plan.steps[plan.asked[exercise_id] :]
    if found := next((s for s in below if _gives(s, name)), None):
        return (
            f"Cell {found.cell} defines {name}, below the check: move it above, since a fresh"
            " kernel that runs the cells from top to bottom does not know it yet."
        )
    return (
        f"No cell defines {name}: it is misspelt, or it was only in your kernel's memory, and then"
        " its cell must be written again."
    )


def reason(error: str) -> str:
    """What is not there, if an error says that something was not, and what to do; else an empty
    string."""
    if modules := UNKNOWN_MODULE.findall(error):
        return WHY.format(modules[0][:100])
    for sign, why in SIGNS:
        if sign.search(error):
            return why
    not_its_own = OWN_WORDS.split(error)[0]
    refused = REFUSED.search(error) or REFUSED_IN_WORDS.search(not_its_own)
    return WHY_REFUSED if refused else ""
