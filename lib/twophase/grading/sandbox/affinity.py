"""One processor for those who take turns.

A judge asks, an answer's process answers, and one of them always waits: a second processor gains
nothing. It costs: to wake a process there takes an interrupt from one processor to the other, on a
virtual machine 0.2 ms instead of 0.015, and a notebook is asked hundreds of times.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def one_processor() -> Iterator[None]:
    """Inside, this thread stays on the processor on which it is, and whoever is started with
    `processors()` stays there, too. Afterwards the system may move it again, as it may where this
    cannot be had (no Linux)."""
    before = processors()
    if before:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {_current()} & set(before))
    try:
        yield
    finally:
        stay_on(before)


def processors() -> list[int]:
    """The processors on which this thread may run; none where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def stay_on(processors: list[int]) -> None:
    """Run on these from now on, if the system lets us."""
    if processors:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, processors)


def _current() -> int:
    """The processor on which this thread is. Raises OSError."""
    with open("/proc/thread-self/stat", encoding="ascii", errors="replace") as f:
        return int(f.read().rpartition(")")[2].split()[36])
