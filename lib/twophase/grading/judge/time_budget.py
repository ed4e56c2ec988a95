"""What one submission has used of its time, and what a part of the work on it may take.

A clock on the wall would charge a submission for what a neighbor, or the grader itself, does. So
nothing counts but the time in which its cells run or its answers are asked, less the time in which
it, or the judge, waited for a processor (protocol/waited.py): deadlines are put off by the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class Usage:
    """The seconds that a submission has used. Of waiting at most `waiting_s` are forgiven in all:
    its own threads can keep it waiting too."""

    def __init__(self, waiting_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = 0.0
        self._forgivable_s = waiting_s
        self._clock = clock

    @contextmanager
    def running(self, waited_s: Callable[[], float]) -> Iterator[None]:
        """Inside, the submission is at work. `waited_s` is asked at the end how long it waited."""
        began = self._clock()
        try:
            yield
        finally:
            self.add(self._clock() - began, waited_s())

    def add(self, elapsed_s: float, waited_s: float) -> None:
        """`elapsed_s` have passed, of which `waited_s` were waiting."""
        forgiven = min(waited_s, self._forgivable_s, elapsed_s)
        self._forgivable_s -= forgiven
        self.seconds += elapsed_s - forgiven


@dataclass
class Allowance:
    """What a part of the work may take: until how many seconds are used, and how many processes."""

    usage: Usage
    until: float
    forks: int

    @property
    def left_s(self) -> float:
        """Seconds that are left, 0 or more."""
        return max(0.0, self.until - self.usage.seconds)

    def share(self, of: float, forks: int) -> Allowance:
        """A part of what is left: one of `of` equal ones."""
        return Allowance(self.usage, self.usage.seconds + self.left_s / of, forks)
