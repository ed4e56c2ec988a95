"""The process that is forked for every submission: everything imported, nothing run, no check
anywhere in its memory.

Forked by the fork server for one judge. It reads from its control socket, SOCK_SEQPACKET, one JSON
value each: first {"work": …, "own": …, "hidden": […]}, the empty folder in which submissions stand,
another over which each gets one of its own, and paths below which nothing is readable for them,
then requests. No request has a word of a submission in it.

    {"do": "fork", "limits": {…}, "beside": …, "more": …, "processors": […]} with one descriptor:
    the child's end of the channel; with more, what torch loads late is loaded before the fork;
    the child runs on these processors, where its judge is
    {"do": "end", "died": …}: kill the child and everything that it left behind

and answers each with one JSON object. It serves one child at a time, or two of one submission
where the second is to be beside the first, and ends when the socket closes.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from twophase.grading.sandbox import linux
from twophase.grading.sandbox.affinity import stay_on
from twophase.grading.sandbox.descendants import kill_descendants
from twophase.grading.sandbox.jail import Jail
from twophase.grading.sandbox.limits import Limits
from twophase.grading.sandbox.preload import load_more
from twophase.grading.sandbox.withheld import leave_out
from twophase.grading.sandbox.worker import Worker, to_the_end
from twophase.protocol.wire import Channel


class ZygoteLoop:
    """The loop of requests."""

    def __init__(self, control: socket.socket, shell: Any, jail: Jail) -> None:
        self._control = control
        self._shell = shell
        self._jail = jail
        self._pid = 0

    def serve(self) -> None:
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self._control, 2**20, 1)
            except OSError:  # the judge died without having read everything
                data = b""
            if not data:
                kill_descendants()
                return
            request = json.loads(data)
            is_fork = request["do"] == "fork"
            reply = self._fork(request, fds[0]) if is_fork else self._end(request["died"])
            self._control.send(json.dumps(reply).encode())

    def _fork(self, request: dict[str, Any], fd: int) -> dict[str, Any]:
        if not request["beside"]:
            kill_descendants()
        if request["more"]:
            load_more()
        end = socket.socket(fileno=fd)
        me = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            with to_the_end():  # everything that happens in a submission's process
                stay_on(request["processors"])
                end = self._jail.enter(Limits(**request["limits"]), end, me)
                random.seed(0)  # this generator, alone of them, takes another seed after a fork
                Worker(Channel(end, patient=True), self._shell).serve()
        end.close()
        return {"pid": self._pid}

    def _end(self, died: bool) -> dict[str, Any]:
        """Kill what is left of the submission. `signal` is what ended it, if something did before
        us."""
        ended = _signal_that_ended(self._pid) if died and self._pid else 0
        self._pid = 0
        kill_descendants()
        return {"signal": ended}


def _signal_that_ended(pid: int, within_s: float = 0.5) -> int:
    """What ended this child; 0 if it ended by itself, or has not ended. Its end of the channel
    closes a moment before it can be waited for. By asking again: not every Python has pidfds, nor
    every container."""
    until = time.monotonic() + within_s
    with contextlib.suppress(OSError):
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended or time.monotonic() > until:
                return os.WTERMSIG(status) if ended and os.WIFSIGNALED(status) else 0
            time.sleep(0.002)
    return 0


def serve(control: socket.socket, shell: Any) -> None:
    """Everything that happens in a zygote's process, but for loading."""
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    start = json.loads(control.recv(2**20))
    # where libraries look for a folder when they are loaded: nothing can be written there, unless
    # a submission gets one of its own
    tempfile.tempdir = start["work"]
    hidden = [Path(p) for p in start["hidden"]]
    jail = Jail(Path(start["work"]), hidden, Path(start["own"]))
    control.send(json.dumps({"ready": os.getpid()}).encode())
    leave_out()
    ZygoteLoop(control, shell, jail).serve()
