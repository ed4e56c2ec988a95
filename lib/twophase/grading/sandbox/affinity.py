"""One processor for those who take turns.

A judge asks, an answer's process answers, and one of them always waits: a second processor gains
nothing. It costs: to wake a process there takes an interrupt from one processor to the other, on a
virtual machine 0.2 ms instead of 0.015, and a notebook is asked hundreds of times.

An answer that starts threads has one processor for all of them; so they must not wait for each
other by spinning (`GOMP_SPINCOUNT` in `launch.ENVIRONMENT`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_outside: list[list[int]] = []  # where the thread might run before it was kept on one processor


@contextlib.contextmanager
def one_processor() -> Iterator[None]:
    """Inside, this thread stays on the processor on which it is, and whoever is started with
    `processors()` stays there, too. Afterwards the system may move it again, as it may where this
    cannot be had (no Linux, a filter that refuses)."""
    before = processors()
    _outside.append(before)
    try:
        stay_on([p for p in _current() if p in before])
        yield
    finally:
        _outside.pop()
        stay_on(before)


def processors() -> list[int]:
    """The processors on which this thread may run; none where the system does not say."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    with contextlib.suppress(OSError):
        return sorted(os.sched_getaffinity(0))
    return []


def stay_on(processors: list[int], pid: int = 0) -> None:
    """Run on these from now on, this thread or the first one of process `pid`, if the system lets
    us."""
    if processors and hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(pid, processors)


def let_go(pid: int) -> None:
    """A process that was just started outlives this submission: it may run wherever this thread
    may outside of `one_processor`."""
    if _outside:
        stay_on(_outside[0], pid)


def _current() -> list[int]:
    """The processor on which this thread is, alone in a list; an empty one where the system does
    not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        said = Path("/proc/thread-self/stat").read_text("ascii", "replace")
        return [int(said.rpartition(")")[2].split()[36])]
    return []
