"""What a submission's process may use: memory, time, open files, the size of a file. Called in the child, after the fork.

`confine` is the place for a jail (file system, system calls, another user). Until it has one, the process can read what the
person who runs the grader can read. The README of this room says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import random
import resource
import signal
import socket
from dataclasses import dataclass
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
MAX_FILES = 256
CONFINED_BY = ("processes", "rlimits")  # recorded with every result


@dataclass(frozen=True)
class Limits:
    """What one submission may take."""

    cell_s: float = 30.0
    submission_s: float = 300.0
    memory_bytes: int = 2 * 10**9
    file_bytes: int = 2**20
    forks: int = 40


def prctl(option: int, value: int) -> None:
    """Linux's prctl with one argument. Raises OSError if the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def supported() -> str:
    """An empty string where the official grader works, else a sentence that says why it does not."""
    if platform.system() == "Linux":
        return ""
    return (
        "The official grader needs Linux (on Windows: WSL2). "
        "On this system, run the check cells in the notebook: they judge with the same checks."
    )


def confine(limits: Limits, cwd: str, end: socket.socket) -> socket.socket:
    """Shut this process in. Returns the channel's end under a new, random number; no other descriptor stays open."""
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    number = random.SystemRandom().randrange(64, MAX_FILES - 1)
    os.dup2(end.fileno(), number, inheritable=False)
    end.detach()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.closerange(3, number)
    os.closerange(number + 1, 2**16)
    os.chdir(cwd)
    os.umask(0o077)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _rlimits(limits)
    return socket.socket(fileno=number)


def _rlimits(limits: Limits) -> None:
    used = _address_space_bytes()
    cpu = int(limits.submission_s) + 10
    for which, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, MAX_FILES),
        (resource.RLIMIT_AS, used + limits.memory_bytes),
    ):
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))


def _address_space_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[0]) * resource.getpagesize()


def kill_descendants() -> int:
    """Kill and reap every process below this one, however deep: orphans come to us, since we are a subreaper. Returns how many."""
    reaped = 0
    while children := _children():
        for pid in children:
            _kill(os.killpg, pid)
            _kill(os.kill, pid)
        for _ in children:
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                break
            reaped += 1
    return reaped


def _kill(how: Any, pid: int) -> None:
    with contextlib.suppress(OSError):  # gone, or not the leader of a group
        how(pid, signal.SIGKILL)


def _children() -> list[int]:
    me = os.getpid()
    with open(f"/proc/self/task/{me}/children", encoding="ascii") as f:
        return [int(pid) for pid in f.read().split()]
