"""The judge's side of a zygote: start it, have it fork a process for a submission, have it kill
what is left."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from twophase.grading.errors import GraderFault
from twophase.grading.sandbox.affinity import processors
from twophase.grading.sandbox.launch import ForkServer
from twophase.grading.sandbox.limits import Limits
from twophase.grading.sandbox.session import Session
from twophase.grading.sandbox.what_confines import practice
from twophase.protocol import AnswerError
from twophase.protocol import wire as w

START_S = 120.0
CONTROL_S = 20.0
END_S = 2.0


def make_zygote(hidden: Sequence[Path] = (), server: ForkServer | None = None) -> Zygote:
    """What runs submissions on this system; see Zygote for `hidden`. Where there is no Linux, it is
    for practice."""
    if practice():
        from twophase.grading.sandbox.practice import PracticeZygote

        return PracticeZygote(hidden)
    return Zygote(hidden, server)


class Zygote(contextlib.AbstractContextManager["Zygote"]):
    """A process to fork submissions from, started when it is first needed and again if it has been
    killed."""

    def __init__(self, hidden: Sequence[Path] = (), server: ForkServer | None = None) -> None:
        """`hidden` are paths that no submission may read, wherever they lie: submissions, results,
        other checks, the secret. It is forked from `server`; without one, from one of its own."""
        self._hidden = [p.resolve() for p in hidden]
        self._home = tempfile.TemporaryDirectory(prefix="twophase-", ignore_cleanup_errors=True)
        self._work = Path(self._home.name) / "work"
        # where submissions stand: nothing is in it, and nothing can be written
        self._work.mkdir(mode=0o555)
        self._own = Path(self._home.name) / "own"
        self._own.mkdir(mode=0o555)  # what is written there is in memory: see temporary.py
        os.chmod(self._home.name, 0o711)  # they may be another user's
        self._server = server or ForkServer()
        self._own_server = server is None
        self._control: socket.socket | None = None
        self._closed = False  # no process is started any more
        self.pid = 0  # of the process, once it has loaded everything

    def __exit__(self, *error: object) -> None:
        self.close()

    def launch(self) -> None:
        """Start the process and do not wait: it loads its libraries while we load ours. Raises
        GraderFault once closed."""
        if self._closed:
            raise GraderFault("the run was interrupted")
        if self._control is None:
            self._launch()

    def _launch(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        places = {
            "work": str(self._work),
            "own": str(self._own),
            "hidden": [str(p) for p in self._hidden],
        }
        ours.send(json.dumps(places).encode())
        with theirs:
            self._server.zygote(theirs)
        self._control = ours

    def start(self) -> None:
        """Start the process unless it has been, and wait until it has loaded everything. Raises
        GraderFault."""
        self.launch()
        if self.pid:
            return
        # what answers may hold is loaded now, not while the clock of one runs
        for library in "numpy", "torch":
            importlib.import_module(library)
        # as in every judge of a run: several threads would spin while they wait for an answer
        importlib.import_module("torch").set_num_threads(1)
        try:
            self.pid = int(self._receive(START_S)["ready"])
        except (OSError, ValueError):
            self._stop()
            said = self._server.said()
            raise GraderFault(f"the worker did not start: {said or 'it said nothing'}") from None

    def fork(self, limits: Limits, beside: bool = False, more: bool = False) -> Session:
        """A fresh process for a submission: in place of the last one, or `beside` it; both end
        when one is ended. With `more` it has loaded what torch loads late. Raises GraderFault if
        there is none to be had."""
        request = {
            "do": "fork",
            "limits": asdict(limits),
            "beside": beside,
            "more": more,
            "processors": processors(),
        }
        # a submission may have killed the zygote: then the next one starts it again
        for _ in range(2):
            self.start()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                assert self._control is not None
                with theirs:  # closed here at once, so that the child's death closes the channel
                    socket.send_fds(
                        self._control, [json.dumps(request).encode()], [theirs.fileno()]
                    )
                pid = int(self._receive(CONTROL_S)["pid"])
                session = Session(self.end, w.Channel(ours), limits, pid)
                # what fails before a submission's first cell is our own fault
                session.run_cell("", CONTROL_S)
                return session
            except (OSError, ValueError, KeyError, AnswerError):
                ours.close()
                self._stop()
        raise GraderFault("the worker cannot be started again")

    def end(self, died: bool) -> int:
        """Kill the submission's process and all it left behind. Returns the signal that ended it,
        if one did."""
        if self._control is None:
            return 0
        try:
            self._control.send(json.dumps({"do": "end", "died": died}).encode())
            return int(self._receive(CONTROL_S)["signal"])
        except (OSError, ValueError):
            self._stop()
            return 0

    def _receive(self, seconds: float) -> dict[str, Any]:
        assert self._control is not None
        self._control.settimeout(seconds)
        data = self._control.recv(2**20)
        if not data:
            raise OSError("the worker has gone")
        reply: dict[str, Any] = json.loads(data)
        return reply

    def _stop(self) -> None:
        """Let the process end, and wait until it has: it kills what it forked."""
        control, self._control, pid, self.pid = self._control, None, self.pid, 0
        if control is None:
            return
        with control, contextlib.suppress(OSError):
            control.shutdown(socket.SHUT_WR)
            if pid and not _gone(control):
                os.kill(pid, signal.SIGKILL)  # it has not ended: the number is still its own
                _gone(control)

    def close(self) -> None:
        self._closed = True
        self._stop()
        if self._own_server:
            self._server.close()
        self._home.cleanup()


def _gone(control: socket.socket) -> bool:
    """Whether the process at the other end closes it, as it does when it ends."""
    control.settimeout(END_S)
    try:
        while control.recv(2**20):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True
