"""What shuts a submission in on this machine, and whether that is enough for an official grade.

`jail.py` shuts in; this module only asks what works, and runs everywhere. What confined a
submission is recorded with its result.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path

import twophase

PROBE_S = 60.0
# what an official grade needs, its label, and what a submission could do without it
NEEDED = (
    ("a process without capabilities (capset)", "no-capabilities", "read other processes' memory"),
    ("Landlock (Linux 5.13 or later)", "landlock", "read the checks"),
    ("a filter for system calls (seccomp)", "seccomp", "start programs and reach the network"),
)


def supported() -> str:
    """An empty string where submissions can be run at all, else a sentence that says why not."""
    if platform.system() != "Windows":
        return ""
    return (
        "The grader needs Linux, or macOS for practice (on Windows: WSL2). "
        "On this system, run the check cells in the notebook: they judge with the same checks."
    )


def practice() -> bool:
    """Whether this system can only practice: a process of its own and limits confine a submission,
    and nothing else."""
    return platform.system() != "Linux"


def missing() -> str:
    """An empty string where submissions are shut in, or where results are marked as practice; else
    a sentence that says what is missing."""
    if practice():
        return ""
    labels = confined_by()
    absent = [
        (name, then) for name, label, then in NEEDED if not any(label in has for has in labels)
    ]
    if not absent:
        return ""
    names, dangers = zip(*absent, strict=True)
    return (
        f"This kernel or container does not give submissions {' or '.join(names)}, so they could"
        f" {' and '.join(dangers)}; allow it, or grade with --unsafe, and every result will say"
        " what did not confine it."
    )


def confined_by() -> tuple[str, ...]:
    """What shuts submissions in on this machine: recorded with every result. Tried, since a
    container may refuse what the kernel has."""
    if practice():
        return ("processes", "rlimits", "practice")
    return _told[-1] if _told else ("processes", "rlimits", *_tried())


def tell(labels: tuple[str, ...]) -> None:
    """Take what another process found `confined_by` to be on this machine, and try nothing."""
    _told.append(labels)


_told: list[tuple[str, ...]] = []


@cache
def _tried() -> tuple[str, ...]:
    """The labels of what works, as a process of its own finds them: this one may have threads, and
    cannot shut itself in to see."""
    program = (
        f"import sys; sys.path.insert(0, {str(Path(twophase.__path__[0]).parent)!r}); from"
        " twophase.grading.sandbox import jail; jail.main()"
    )
    try:
        ran = subprocess.run(
            [sys.executable, "-P", "-c", program], capture_output=True, timeout=PROBE_S, check=False
        )
        return tuple(str(label) for label in json.loads(ran.stdout))
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ()
