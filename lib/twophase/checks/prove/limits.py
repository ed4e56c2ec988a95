"""Limits on a program that may loop for ever or want all of the memory."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ROOM = 4 * 2**30  # bytes of address space beyond what the process has
AGAIN_S = 0.2  # a finalizer swallows whatever is raised in it, so the limit comes again


class TooLong(BaseException):
    """Computed longer than allowed. No Exception, so that nobody takes it for a program's own
    error."""


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Stop the block with TooLong after this much processor time. In the main thread only."""

    def stop(signum: int, frame: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def memory_limit() -> Iterator[None]:
    """Let the block take no more than ROOM beyond what the process has: more is a MemoryError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    try:
        with open("/proc/self/statm") as statm:
            now = int(statm.read().split()[0]) * resource.getpagesize()
    except OSError:  # not on Linux
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (now + ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
