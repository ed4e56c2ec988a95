"""Submissions on a system without Landlock and seccomp (macOS): each in a process started for it,
for practice and not for grades.

The process has the same cells, libraries and time limits, and what rlimits there are; it is ended
with its process group. Nothing keeps it from reading files or the network. Forking a
process that has loaded its libraries is not safe there, so each one loads them anew; the next one
does so while this one works.

`python -m twophase.grading.sandbox.practice FD FOLDER` waits for one line of JSON at standard
input, the limits.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import twophase
from twophase.grading.errors import GraderFault
from twophase.grading.sandbox import rlimits
from twophase.grading.sandbox.launch import ENVIRONMENT, LOG, ForkServer, last_line, start_process
from twophase.grading.sandbox.limits import Limits
from twophase.grading.sandbox.session import Session
from twophase.grading.sandbox.zygote_handle import START_S, Zygote
from twophase.protocol import AnswerError
from twophase.protocol import wire as w

WATCH_S = 0.1
JUDGE = """
import importlib, socket, sys
from twophase.grading.sandbox.launch import ForkServer
judge = importlib.import_module(sys.argv[1])
judge.serve(socket.socket(fileno=int(sys.argv[2])), ForkServer())
"""
RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes


class PracticeZygote(Zygote):
    """Starts a process per submission. As a Zygote to whoever uses it."""

    def __init__(self, hidden: Sequence[Path] = ()) -> None:
        super().__init__(hidden)  # nothing can be hidden here
        self._ours: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._working: list[subprocess.Popen[bytes]] = []

    def _launch(self) -> None:
        if self._process is not None:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        module, home = "twophase.grading.sandbox.practice", Path(self._home.name)
        self._process = start_process(module, theirs, self._work, home, subprocess.PIPE)
        self._ours = ours

    def start(self) -> None:
        """Start the process of the next submission, unless it has been. Raises GraderFault once
        closed."""
        self.launch()

    def fork(self, limits: Limits, beside: bool = False, more: bool = False) -> Session:
        """A fresh process for a submission, `beside` the last one or in its place; it loads late
        what torch loads late. Raises GraderFault if there is none to be had."""
        self.start()
        process, ours = self._process, self._ours
        assert process is not None
        assert process.stdin is not None
        assert ours is not None
        self._process, self._ours = None, None
        self._working = [*self._working, process] if beside else [process]
        session = Session(self.end, w.Channel(ours), limits, process.pid)
        try:
            with process.stdin as line:
                line.write(json.dumps(asdict(limits)).encode() + b"\n")
            session.run_cell("", START_S)
        except (OSError, AnswerError):
            session.close()
            said = last_line(Path(self._home.name, LOG))
            raise GraderFault(f"the worker did not start: {said or 'it said nothing'}") from None
        self.launch()
        return session

    def end(self, died: bool) -> int:
        """Kill the submission's processes and their groups. Returns the signal that ended the last
        one, if one did before us."""
        working, self._working = self._working, []
        ended = None
        for process in working:
            if died:  # its end of the channel closes a moment before it can be waited for
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.5)
            ended = process.poll() if died else None
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return -ended if ended is not None and ended < 0 else 0

    def _stop(self) -> None:
        self.end(False)
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            assert self._ours is not None
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.stdin.close()
            process.wait()
            self._ours.close()


class PracticeServer(ForkServer):
    """Starts each judge as a process of its own. As a ForkServer to whoever uses it."""

    def __init__(self) -> None:
        super().__init__()
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def judge(self, module: str, pipe: socket.socket) -> str:
        """Start a judge: `serve` of this module, with this end of its pipe. Returns its name."""
        package, name = str(Path(twophase.__path__[0]).parent), secrets.token_hex(8)
        self._started[name] = subprocess.Popen(
            [sys.executable, "-P", "-c", JUDGE, module, str(pipe.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[pipe.fileno()],
            env=os.environ | ENVIRONMENT | {"PYTHONPATH": package},
            start_new_session=True,
        )
        return name

    def ended(self, name: str, within_s: float) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._started[name].wait(within_s)
        return None

    def kill(self, name: str) -> None:
        self._started[name].kill()


def watch_memory(most_bytes: int) -> None:
    """End this process once it has used more memory than this: macOS enforces no limit on it."""

    def watch() -> None:
        pause = threading.Event()
        while resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT <= most_bytes:
            pause.wait(WATCH_S)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    from twophase.grading.sandbox.preload import preload, seed
    from twophase.grading.sandbox.shell import make_shell
    from twophase.grading.sandbox.withheld import leave_out
    from twophase.grading.sandbox.worker import Worker, to_the_end

    end = socket.socket(fileno=int(sys.argv[1]))
    print(*preload(), sep="\n", file=sys.stderr)  # into the log
    shell = make_shell()
    seed()
    line = sys.stdin.readline()
    if not line:
        return
    limits = Limits(**json.loads(line))
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.chdir(sys.argv[2])
    os.umask(0o077)
    rlimits.apply(limits, None, limits.file_bytes)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT
    watch_memory(used + limits.memory_bytes)
    leave_out()
    with to_the_end():
        Worker(w.Channel(end, patient=True), shell).serve()


if __name__ == "__main__":
    # by its own name, not as __main__: that name belongs to the notebook
    from twophase.grading.sandbox import practice

    practice.main()
