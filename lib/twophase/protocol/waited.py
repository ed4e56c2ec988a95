"""How long an answer's process, and its judge, had to wait for a processor: time that neither a
deadline nor what a submission has used may charge to it.

A neighbor with many threads, or anything else on the machine, can keep an answer from running at
all. The kernel counts it, in nanoseconds, as the second number of /proc/<pid>/schedstat. Where it
does not, nobody gets more time.
"""

from __future__ import annotations

import os

MOST_S = 60.0  # in one exercise or one cell: an answer's own threads can keep it waiting too


class Waited:
    """Time in which processes wanted to run and could not: those of numbers `others`, their main
    threads, and this one."""

    def __init__(self, *others: int) -> None:
        paths = (f"/proc/{of}/schedstat" for of in (*others, "self"))
        self._files = [fd for path in paths if (fd := _open(path)) is not None]
        self._last_ns = dict.fromkeys(self._files, 0)
        self._began_s = self._total_s()

    def begin(self) -> None:
        """Count from now on."""
        self._began_s = self._total_s()

    def grace_s(self) -> float:
        """Seconds to be added to a deadline that was set at the beginning, at most MOST_S."""
        return min(MOST_S, max(0.0, self._total_s() - self._began_s))

    def close(self) -> None:
        """Count no more; what was counted stays."""
        self._total_s()
        while self._files:
            os.close(self._files.pop())

    def _total_s(self) -> float:
        for fd in self._files:
            self._last_ns[fd] = max(self._last_ns[fd], _waited_ns(fd))
        return sum(self._last_ns.values()) / 1e9


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # no Linux, a kernel that does not count, a process that has gone
        return None


def _waited_ns(fd: int) -> int:
    try:
        return int(os.pread(fd, 200, 0).split()[1])
    except (OSError, IndexError, ValueError):
        return 0
