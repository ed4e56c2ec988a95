"""What a submission's process may use: memory, time, files, the network. Called in the child, after the fork.

`confine` is the place where a process is shut in; a filter for system calls and another user would be called here too. What
confined a submission is recorded with its result, and what does not is in the README of this room.
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

from twophase.grading import landlock

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CAPABILITY_VERSION_3 = 0x20080522
MAX_FILES = 256


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


def confined_by() -> tuple[str, ...]:
    """What shuts submissions in on this machine: recorded with every result."""
    version = landlock.abi()
    return ("processes", "rlimits", "no-capabilities", *([f"landlock-{version}"] if version else []))


def confine(limits: Limits, cwd: str, end: socket.socket, ruleset: int | None, zygote: int) -> socket.socket:
    """Shut this process in, by `ruleset` (of landlock.ruleset) if there is one.

    Returns the channel's end under a new, random number; no other descriptor stays open.
    """
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != zygote:  # it died before we asked to die with it
        os._exit(0)
    number = random.SystemRandom().randrange(64, MAX_FILES - 1)
    os.dup2(end.fileno(), number, inheritable=False)
    end.detach()
    if ruleset is not None:
        landlock.restrict(ruleset)
    _drop_capabilities()
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


def _drop_capabilities() -> None:
    """What makes root more than a user: without these it reads no other process's memory and owns only its own files."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    if libc.capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "capset")


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
    try:
        with open(f"/proc/self/task/{me}/children", encoding="ascii") as f:
            return [int(pid) for pid in f.read().split()]
    except FileNotFoundError:  # a kernel without it: ask every process for its parent
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _parent(pid) == me]


def _parent(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return int(f.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0
