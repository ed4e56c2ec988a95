"""Bars for whoever waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

PATIENCE_S = 2.0


class PatientBar:
    """A bar on stderr, or on `console`, that comes once the work has taken more than two
    seconds."""

    def __init__(
        self,
        *columns: ProgressColumn,
        clock: Callable[[], float] = time.monotonic,
        console: Console | None = None,
    ) -> None:
        self._bar = Progress(*columns, console=console or Console(stderr=True), transient=True)
        self._clock, self._started = clock, clock()
        self._task = self._bar.add_task("")

    def show(self, done: int, total: int, **said: Any) -> None:
        """So much is done, of so much; `said` as of rich's `update`."""
        self._bar.update(self._task, completed=done, total=total, **said)
        if not self._bar.live.is_started and self._clock() - self._started > PATIENCE_S:
            self._bar.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar.live.is_started:
            self._bar.stop()


class LoadingBar(PatientBar):
    """Called with bytes of weights: read, and in all."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, console: Console | None = None
    ) -> None:
        columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
        super().__init__(TextColumn("loading weights"), *columns, clock=clock, console=console)

    def __call__(self, done: int, total: int) -> None:
        self.show(done, total)


@contextmanager
def patience(says: str) -> Iterator[None]:
    """A line on stderr, with a clock, once it takes more than two seconds."""
    waiting = Console(stderr=True).status(says)
    timer = threading.Timer(PATIENCE_S, waiting.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        waiting.stop()
