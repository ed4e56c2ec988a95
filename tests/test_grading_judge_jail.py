"""A judge reads what submissions send: it can start nothing, reach nothing, read no other process,
and takes no more memory than it may."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from twophase.grading.sandbox import linux, user, what_confines

if sys.platform != "linux":
    pytest.skip("a judge is shut in on Linux only", allow_module_level=True)

from twophase.grading.sandbox import judge_jail

needs_seccomp = pytest.mark.skipif(
    "seccomp" not in what_confines.confined_by(), reason="this kernel or container has no filter"
)


def in_a_judge(works: Callable[[], object]) -> bool:
    """Whether this returns something true in a process that is shut in as a judge is."""

    def shut_in() -> object:
        judge_jail.enter()
        return works()

    return user.in_a_fork(shut_in)


def refused(attempt: Callable[[], object]) -> Callable[[], bool]:
    def tried() -> bool:
        try:
            attempt()
        except PermissionError:
            return True
        return False

    return tried


@needs_seccomp
@pytest.mark.parametrize(
    "attempt",
    [
        os.fork,
        lambda: os.execv("/bin/true", ["true"]),
        lambda: subprocess.run(["/bin/true"], check=False),
        lambda: socket.socket(socket.AF_INET),
        lambda: linux.call("unshare", 1 << 28),
        lambda: linux.call("ptrace", 16, os.getppid(), None, None),
        lambda: linux.call("mount", b"none", b"/mnt", b"tmpfs", 0, None),
        lambda: os.open(f"/proc/{os.getppid()}/mem", os.O_RDONLY),
    ],
    ids=["fork", "exec", "program", "connection", "namespace", "ptrace", "mount", "memory"],
)
def test_this_is_refused(attempt: Callable[[], object]) -> None:
    assert in_a_judge(refused(attempt))


def test_memory_has_an_end() -> None:
    def too_much() -> bool:
        try:
            bytearray(3 * 10**9)
        except MemoryError:
            return True
        return False

    assert in_a_judge(too_much)


def test_of_what_makes_root_it_keeps_the_reading_of_files_and_nothing_else() -> None:
    def left() -> bool:
        with open("/proc/self/status", encoding="ascii") as f:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
        return int(status["CapEff"], 16) in (0, linux.READ_ALL_FILES)

    assert in_a_judge(left)


def test_a_judge_can_do_its_work() -> None:
    """Threads, socket pairs, descriptors passed on, files of its own."""

    def work() -> bool:
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        socket.send_fds(one, [b"x"], [other.fileno()])
        return socket.recv_fds(other, 10, 1)[0] == b"x"

    assert in_a_judge(work)
