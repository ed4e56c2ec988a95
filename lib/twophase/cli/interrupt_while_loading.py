"""Ctrl-C while a command loads its libraries."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def loading() -> Iterator[None]:
    """A Ctrl-C in here always ends in KeyboardInterrupt: torch, while it is imported, may swallow
    it, make another error of it or abort the process. So a first one waits for an import to end."""
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        if len(seen) > 1 or not _importing(frame):
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if seen:
            raise KeyboardInterrupt


def _importing(frame: FrameType | None) -> bool:
    """Whether what runs there is part of an import."""
    while frame and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None
