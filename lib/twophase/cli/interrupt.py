"""Ctrl-C while a command loads its libraries."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


@contextmanager
def loading() -> Iterator[None]:
    """A Ctrl-C in here always ends in KeyboardInterrupt: importing torch may swallow it or make
    another error of it."""
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> NoReturn:
        seen.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if seen:
            raise KeyboardInterrupt
