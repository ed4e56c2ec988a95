"""Ending all that a submission started. The zygote is the subreaper of its orphans, so nothing
below it gets away."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path


def kill_descendants() -> None:
    """Kill and reap every process below this one, however deep: orphans come to us, since we are a
    subreaper."""
    while children := _children():
        for pid in children:
            _kill(os.killpg, pid)
            _kill(os.kill, pid)
        for _ in children:
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                break


def _kill(how: Callable[[int, int], None], pid: int) -> None:
    with contextlib.suppress(OSError):  # gone, or not the leader of a group
        how(pid, signal.SIGKILL)


def _children() -> list[int]:
    me = os.getpid()
    try:
        return [*map(int, Path(f"/proc/self/task/{me}/children").read_text().split())]
    except FileNotFoundError:  # a kernel without it: ask every process for its parent
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _parent(pid) == me]


def _parent(pid: str) -> int:
    try:
        said = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        return int(said.rpartition(")")[2].split()[1])
    except OSError:
        return 0
