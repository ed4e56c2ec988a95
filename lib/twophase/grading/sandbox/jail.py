"""Shutting a submission's process in, after the fork and before its first cell. Linux.

A `Jail` is made once by the zygote, which tries what this machine allows; `enter` shuts in one
process: a session of its own, another user, no capabilities, death with its parent, no files
(Landlock), no descriptors, its limits, no system calls (seccomp). The order is no matter of taste:
each step needs what a later one takes away.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import twophase
from twophase.grading.sandbox import (
    allowed_syscalls,
    hidden_paths,
    landlock,
    linux,
    rlimits,
    seccomp,
    temporary,
    user,
)
from twophase.grading.sandbox.limits import MAX_FILES, Limits
from twophase.grading.sandbox.user import User

CHANNEL = MAX_FILES - 1  # the only descriptor that leads anywhere
FIRST_TO_GO = 1000  # oom_score_adj: if memory runs out, this process is killed and not the grader


class Jail:
    """What confines submissions on this machine. `labels` says what of it works. In `own` each has
    a folder of its own to write to, where it can be had."""

    def __init__(self, folder: Path, hidden: Sequence[Path] = (), own: Path | None = None) -> None:
        self._folder = folder
        needed = [folder, *landlock.libraries(), Path(twophase.__path__[0])]
        hidden_paths.hide(hidden, needed, folder.parent / "empty")
        rules = landlock.Rules(folder, hidden) if landlock.abi() else None
        self._rules = rules if rules and user.in_a_fork(lambda: _no_files(rules)) else None
        self._filtered = user.in_a_fork(_no_calls)
        self._user: User | None = user.choose()
        self._powerless = user.in_a_fork(lambda: _no_powers(self._user))
        may_write = self._rules is not None and self._filtered
        works = may_write and own and user.in_a_fork(lambda: temporary.works(own))
        self._own = own if works else None
        if self._filtered:
            calls = allowed_syscalls.WITH_A_FOLDER if self._own else allowed_syscalls.SUBMISSION
            self._calls = seccomp.prepared(calls)
        linux.forgo_capabilities()

    @property
    def labels(self) -> tuple[str, ...]:
        """As they are recorded with results."""
        who = () if self._user is None else ("own-user",) if self._user.whole else ("own-limits",)
        return (
            *(("no-capabilities",) if self._powerless else ()),
            *((f"landlock-{landlock.abi()}",) if self._rules else ()),
            *(("seccomp",) if self._filtered else ()),
            *who,
        )

    def enter(self, limits: Limits, end: socket.socket, zygote: int) -> socket.socket:
        """Shut this process in. Returns the channel's end, under the number CHANNEL. Raises
        OSError."""
        os.setsid()
        os.umask(0o077)
        os.chdir(self._folder)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(str(FIRST_TO_GO), "ascii")
        if self._own is not None:
            self._make_own(self._own)
        if self._user is not None:
            self._user.become()
        if self._powerless:  # else it is refused, or goes on as unsafe, before anything is graded
            linux.drop_capabilities()
        linux.prctl(linux.PR_SET_DUMPABLE, 0)
        # forgotten by the kernel when the user changes: so not before
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != zygote:  # it died before we asked to die with it
            os._exit(0)
        if self._rules is not None:
            self._rules.restrict(writable=self._own)
        # now: the rules' descriptors were needed until here
        os.dup2(end.detach(), CHANNEL, inheritable=False)
        os.closerange(3, CHANNEL)
        os.closerange(CHANNEL + 1, 2**16)
        counted = rlimits.MAX_THREADS + (0 if self._user else rlimits.threads_of_all())
        rlimits.apply(limits, counted, temporary.MAX_BYTES if self._own else 0)
        if self._filtered:
            seccomp.restrict(self._calls)
        return socket.socket(fileno=CHANNEL)

    def _make_own(self, own: Path) -> None:
        number = self._user.number if self._user is not None else 0
        whole = self._user is not None and self._user.whole
        temporary.mount(own, number if whole else 0, number)
        tempfile.tempdir = os.environ["TMPDIR"] = str(own)


def _no_files(rules: landlock.Rules) -> bool:
    rules.restrict()
    try:
        os.listdir("/")
    except PermissionError:
        return bool(os.listdir("/proc/self/fd"))
    return False


def _no_powers(to_be: User | None) -> bool:
    if to_be is not None:
        to_be.become()
    linux.drop_capabilities()
    return True


def _no_calls() -> bool:
    seccomp.restrict(seccomp.prepared())
    try:
        os.close(socket.socket(socket.AF_UNIX).detach())
    except PermissionError:
        return os.getpid() > 0
    return False


def main() -> None:
    """Print the labels of what works here, as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(Jail(Path(folder)).labels))
        sys.stdout.flush()
