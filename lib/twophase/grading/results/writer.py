"""`results.jsonl` while a run writes to it. It survives a crash and a full disk."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path

from twophase.grading.errors import writing
from twophase.grading.results.reader import Index
from twophase.grading.results.records import Record, line_of


class Results(contextlib.AbstractContextManager["Results"]):
    """The results in a folder. One process at a time, and no more in memory than an index."""

    def __init__(self, folder: Path) -> None:
        """Raises ValueError if another run writes there, or it is no file; CannotWrite."""
        self.path = folder / "results.jsonl"
        how = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC
        with writing(self.path):
            folder.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, how, 0o666)
        try:
            self._lock()
            self.index = Index(self.path)
            if os.fstat(self._fd).st_size > self.index.end:  # a last line that a crash cut short
                os.ftruncate(self._fd, self.index.end)
        except BaseException:
            os.close(self._fd)
            raise

    def __exit__(self, *error: object) -> None:
        os.close(self._fd)

    def _lock(self) -> None:
        """Held as long as the file is open."""
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise ValueError(f"{self.path} is no file; give another --out")
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                f"another run is writing to {self.path}; wait for it, or give another --out"
            ) from None

    def append(self, record: Record) -> None:
        """Add a record, to the disk. Raises CannotWrite; then nothing of it is in the file."""
        line = line_of(record)
        try:
            with writing(self.path):
                left = memoryview(line)
                while left:
                    left = left[os.write(self._fd, left) :]
                os.fsync(self._fd)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self.index.end)
            raise
        self.index.note(record, self.index.end + len(line))
