"""How long a submission's process, and the judge, had to wait for a processor: time that no
deadline may charge to an answer.

A neighbor with many threads, or anything else on the machine, can keep an answer from running at
all. The kernel counts it, in nanoseconds, as the second number of /proc/<pid>/schedstat. Where it
does not, nobody gets more time.
"""

from __future__ import annotations

import os

MOST_S = 60.0  # in one exercise or one cell: an answer's own threads can keep it waiting too


class Waited:
    """Time in which two processes wanted to run and could not: the one of number `pid`, its main
    thread, and this one."""

    def __init__(self, pid: int) -> None:
        self._files = [
            fd for of in (str(pid), "self") if (fd := _open(f"/proc/{of}/schedstat")) is not None
        ]
        self._began_s = self._total_s()

    def begin(self) -> None:
        """Count from now on."""
        self._began_s = self._total_s()

    def grace_s(self) -> float:
        """Seconds to be added to a deadline that was set at the beginning, at most MOST_S."""
        return min(MOST_S, max(0.0, self._total_s() - self._began_s))

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop())

    def _total_s(self) -> float:
        return sum(_waited_ns(fd) for fd in self._files) / 1e9


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
