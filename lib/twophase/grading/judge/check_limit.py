"""A limit on the check's own work, which an answer can make endless by what it returns or calls
back with.

The time that counts is processor time of this process, so that neither waiting for a worker nor a
loaded machine uses it up, and other clocks of the process (pytest's limit, for one) stay as they
are. A signal interrupts Python code only: what a check hands to a function written in C must be of
modest size, and the codec sees to that.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

AGAIN_S = 0.05  # ring on, should what was interrupted have gone on all the same


class Overdue(BaseException):
    """The check has computed for too long. No Exception, so that no check takes it for its own
    trouble."""


class Alarm:
    """Raises Overdue in the check's code, and never in ours: a message is sent and read whole, or
    the process is given up."""

    def __init__(self) -> None:
        self._open = False  # the check's code is running
        self._rang = False

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Raises Overdue once the block has computed for `seconds`. Without limit outside the main
        thread, which alone gets signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._rang = False
        before = signal.signal(signal.SIGPROF, self._ring)
        clock = signal.setitimer(signal.ITIMER_PROF, seconds, AGAIN_S)
        try:
            with self._opened():
                yield
        finally:
            self._open = False
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)
            if clock[0]:
                signal.setitimer(signal.ITIMER_PROF, *clock)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside, our own code runs and is not interrupted. What rings meanwhile is raised at the
        end."""
        before, self._open = self._open, False
        try:
            yield
        finally:
            self._open = before
        if before and self._rang:
            raise Overdue

    @contextmanager
    def released(self) -> Iterator[None]:
        """Inside `held`, code of the check's runs again."""
        if self._rang:
            raise Overdue
        try:
            with self._opened():
                yield
        finally:
            self._open = False

    @contextmanager
    def _opened(self) -> Iterator[None]:
        self._open = True
        try:
            yield
        finally:
            # it may ring just before this line: then whoever calls this shuts it again
            self._open = False

    def _ring(self, number: int, frame: Any) -> None:
        self._rang = True
        if self._open:
            raise Overdue
