"""Processor time of a graded class, and what its checks take without a grader around them.

Wall time says little on a machine that others use, too; processor time moves far less.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from twophase.checks import registry
from twophase.checks.answer import LocalAnswer
from twophase.checks.judge import Bench

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SEED = 1  # of the grader's cases, unless a course has a secret


def processes() -> list[int]:
    """This process and everything below it."""
    parents: dict[int, int] = {}
    for pid in (int(p) for p in os.listdir("/proc") if p.isdigit()):
        with contextlib.suppress(OSError, IndexError):
            parents[pid] = int(_stat(pid)[1])
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def processor_s() -> float:
    """Seconds of processor time that this process and all below it have used, those that ended and
    were waited for too. Steps of 10 ms."""
    ticks = 0
    for pid in processes():
        with contextlib.suppress(OSError, IndexError):
            ticks += sum(map(int, _stat(pid)[11:15]))
    return ticks / TICKS_PER_S


def _stat(pid: int) -> list[str]:
    """What the kernel says of a process, from its state on."""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()


def checks_alone(topic: str, notebooks: Iterable[bytes]) -> list[float]:
    """Seconds of processor time for each notebook: the set-up and the answers run and judged in
    this process, on cases and references that were made before."""
    torch.set_num_threads(1)  # as in the grader's processes
    benches = {i: Bench(registry.load(i), SEED) for i in registry.ids(topic)}
    for bench in benches.values():  # what the first wrong answer would have to wait for
        for misconception in bench.exercise.misconceptions:
            bench.wrong_answer(misconception)
    taken = []
    for data in notebooks:
        began = time.process_time()
        _judged(json.loads(data)["cells"], benches)
        taken.append(time.process_time() - began)
    return taken


def _judged(cells: list[dict[str, Any]], benches: dict[str, Bench]) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells:
        grade_id = str(cell["metadata"].get("nbgrader", {}).get("grade_id", ""))
        if cell["cell_type"] == "code" and grade_id and not grade_id.endswith("-check"):
            with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
                exec("".join(cell["source"]), names)  # a cell that breaks is none of the others'
        if grade_id in benches:
            benches[grade_id].judge(LocalAnswer(names))
