"""A bar for whoever waits for weights."""

import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

PATIENCE_S = 2.0


class LoadingBar:
    """Called with bytes read and bytes in all; shows a bar on stderr once that has taken more than
    two seconds."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, console: Console | None = None
    ) -> None:
        columns = (
            TextColumn("loading weights"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=console or Console(stderr=True), transient=True)
        self._clock, self._started = clock, clock()
        self._task = self._bar.add_task("", start=True)

    def __call__(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)
        if not self._bar.live.is_started and self._clock() - self._started > PATIENCE_S:
            self._bar.start()

    def __enter__(self) -> "LoadingBar":
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar.live.is_started:
            self._bar.stop()
