"""Another user for submissions, where the grader runs as root: one for each zygote, that owns
nothing and is nobody's.

A user's number is taken by binding a name in the kernel's list of local sockets, which no two
zygotes can and which the kernel frees when the zygote ends. If that user cannot read the
interpreter and the libraries (they are in root's home), the process stays root without
capabilities, and is the other user only for what counts processes: RLIMIT_NPROC does not bind root.
"""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from twophase.grading.sandbox import landlock

# numbers that systemd gives to nobody; those that a container usually has
HIGH, LOW = 1_900_000_000, 64_000
SLOTS = 1_000
NEEDED = ("os", "encodings", "numpy", "torch", "IPython", "matplotlib")


@dataclass(frozen=True)
class User:
    """A user and group number for submissions. `whole`: for everything; else root reads and this
    user is counted."""

    number: int
    whole: bool
    held: socket.socket

    def become(self) -> None:
        """Be this user, without a way back where it is whole. Raises OSError."""
        os.setgroups([])
        os.setresgid(self.number, self.number, self.number)
        if self.whole:
            os.setresuid(self.number, self.number, self.number)
        else:
            os.setresuid(self.number, 0, 0)

    def works(self) -> bool:
        """Whether this process, which becomes the user, can still read what a submission needs:
        True, or OSError."""
        self.become()
        found = [importlib.util.find_spec(name) for name in NEEDED]
        files = [Path(s.origin) for s in found if s and s.origin and s.origin != "frozen"]
        for file in (*files, Path(os.__file__), *landlock.data_files()):
            os.close(os.open(file, os.O_RDONLY))  # not os.access, which asks for the real user
        return True


def choose() -> User | None:
    """A user that no other zygote has, held until this process ends; None if we are not root, or
    may not be others."""
    if os.geteuid() != 0:
        return None
    base = HIGH if _mapped(HIGH) else LOW
    for number in range(base, base + SLOTS):
        held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            held.bind(f"\0twophase-grader-user-{number}")
        except OSError:
            held.close()
            continue
        for whole in (True, False):
            user = User(number, whole, held)
            if in_a_fork(user.works):
                return user
        held.close()
        return None
    return None


def in_a_fork(works: Callable[[], object]) -> bool:
    """Whether `works` returns something true in a process of its own, which ends there. For
    processes with one thread."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if works() else 1)
        except BaseException:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def _mapped(number: int) -> bool:
    try:
        with open("/proc/self/uid_map", encoding="ascii") as f:
            return any(int(a) <= number < int(a) + int(n) - SLOTS for a, _, n in map(str.split, f))
    except OSError:
        return False
