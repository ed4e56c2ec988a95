"""The notebook's own answer with a limit on its time, so that a loop that never ends does not hang
the check cell.

A timer of the system (SIGALRM) interrupts Python code between two of its steps, and what waits in
the system. It cannot interrupt one call of a library in C that does not return, and an answer whose
bare `except:` catches everything catches this too: then only the kernel's restart helps, and for
the second that is said. Signals reach the main thread alone, where Jupyter runs its cells: in
another thread there is no limit. The official grader ends a process of its own and has none of
these gaps.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, TypeVar

from twophase.checks.answer import Across, LocalAnswer
from twophase.protocol import AnswerError
from twophase.protocol.waited import Waited

AGAIN_S = 0.1  # rings again, should the answer have caught it
PATIENCE = 20  # times, before it is said that it does

NOTICED_S = 10  # more than the limit, and a person wonders why

T = TypeVar("T")


class Overtime(BaseException):
    """The time is over. No Exception, so that an answer's `except Exception` lets it pass."""


class LimitedAnswer(LocalAnswer):
    """The answer in this process, with the judge's limits on a case and on all cases together."""

    def __init__(self, namespace: Mapping[str, Any], across: Across = nullcontext) -> None:
        super().__init__(namespace, across)
        self._case_s = self._left_s = self._whole_s = 0.0

    def start_exercise(self, limit_s: float) -> None:
        """All cases together have `limit_s` from now on."""
        self._left_s = self._whole_s = limit_s

    def start_case(self, limit_s: float) -> None:
        """The case that begins has `limit_s`."""
        self._case_s = limit_s

    def within(self, check: Callable[[], T]) -> T:
        """check(). Raises AnswerError (timeout) when the case's time is over, or that of all."""
        limit_s = min(self._case_s, self._left_s)
        began = time.monotonic()
        try:
            return limited(limit_s, check)
        except Overtime:
            took_s = time.monotonic() - began
            given = f"{self._case_s:g} s that a case has"
            if limit_s < self._case_s:
                given = f"{self._whole_s:g} s that all cases together have"
            raise AnswerError("timeout", overtime_says(given, took_s, limit_s)) from None
        finally:
            self._left_s = max(0.1, self._left_s - (time.monotonic() - began))


def overtime_says(given: str, took_s: float, limit_s: float) -> str:
    """What somebody reads whose answer was stopped: also why they waited longer, if they did."""
    waited = ""
    if took_s > limit_s + NOTICED_S:
        waited = (
            f" (after {took_s:.0f} s on the clock: what other programs take of the processor does"
            " not count)"
        )
    return (
        f"your answer did not end within the {given}, and was stopped{waited}. Is there a loop that"
        " never ends?"
    )


def limited(seconds: float, run: Callable[[], T]) -> T:
    """run(). Raises Overtime once it has taken `seconds`, waiting for a processor aside.

    Whoever used the timer before has it back afterwards. Without limit outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return run()
    waited = Waited()
    began = time.monotonic()
    open_, rings = True, 0

    def ring(number: int, frame: Any) -> None:
        nonlocal rings
        left_s = seconds + waited.grace_s() - (time.monotonic() - began)
        if not open_:
            return
        if left_s > 0:
            signal.setitimer(signal.ITIMER_REAL, left_s, AGAIN_S)
            return
        rings += 1
        if rings == PATIENCE:
            print(
                "The time is over, and the answer catches what should stop it (an `except:` without"
                " a name?). Restart the kernel, and write `except ValueError:` or the like."
            )
        raise Overtime

    handler = signal.signal(signal.SIGALRM, ring)
    before_s, interval_s = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_S)
    try:
        try:
            return run()
        finally:
            open_ = False
    finally:
        open_ = False  # it may ring just before the line above
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if handler is None else handler)
        waited.close()
        if before_s:
            rest_s = max(0.001, before_s - (time.monotonic() - began))
            signal.setitimer(signal.ITIMER_REAL, rest_s, interval_s)
