"""What a submission's process may take of the machine: the limits that the kernel counts. Where a
limit is not known, it is left out."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

from twophase.grading.sandbox.limits import MAX_FILES, Limits

# processors are shared out by threads: hundreds that spin would starve whoever is graded beside
MAX_THREADS = 32
STACK_BYTES = 8 * 2**20


def apply(limits: Limits, threads: int | None, file_bytes: int = 0) -> None:
    """Limit this process, for good. `threads` is the number that its user may have in all, None for
    no such limit."""
    wanted = {
        "CORE": 0,
        "CPU": int(limits.submission_s) + 10,
        "FSIZE": file_bytes,
        "NOFILE": MAX_FILES,
        # all memory, shared mappings too, which RLIMIT_DATA is blind to
        "AS": address_space_bytes() + limits.memory_bytes,
        "STACK": STACK_BYTES,
        "MEMLOCK": 0,
        "MSGQUEUE": 0,
        "SIGPENDING": 64,
        "NICE": 0,
        "RTPRIO": 0,
        **({} if threads is None else {"NPROC": threads}),
    }
    for name, value in wanted.items():
        with contextlib.suppress(AttributeError, ValueError):  # macOS lacks or refuses some
            lower(getattr(resource, f"RLIMIT_{name}"), value)


def lower(which: int, value: int) -> None:
    """A limit of this process, for good; one that is lower already stays. Raises ValueError."""
    hard = resource.getrlimit(which)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


def address_space_bytes() -> int:
    """What this process has mapped already; 0 where there is no /proc."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def threads_of_all() -> int:
    """How many threads there are on this machine: no user has more."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
