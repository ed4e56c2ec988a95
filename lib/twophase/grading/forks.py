"""The judge's side of a zygote: start it, have it fork a process for a submission, have it kill
what is left."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import site
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import twophase
from twophase.grading.confine import Limits, practice
from twophase.grading.session import GraderFault, Session
from twophase.protocol import AnswerError
from twophase.protocol import wire as w

START_S = 120.0
CONTROL_S = 20.0


def make_zygote(hidden: Sequence[Path] = ()) -> Zygote:
    """What runs submissions on this system; see Zygote for `hidden`. Where there is no Linux, it is
    for practice."""
    if practice():
        from twophase.grading.practice import Practice

        return Practice(hidden)
    return Zygote(hidden)


class Zygote:
    """A process to fork submissions from, started when it is first needed and again if it has been
    killed."""

    def __init__(self, hidden: Sequence[Path] = ()) -> None:
        """`hidden` are paths that no submission may read, wherever they lie: submissions, results,
        other checks, the secret."""
        self._hidden = [str(p.resolve()) for p in hidden]
        self._home = tempfile.TemporaryDirectory(prefix="twophase-", ignore_cleanup_errors=True)
        self._work = Path(self._home.name) / "work"
        self._work.mkdir(
            mode=0o555
        )  # where submissions stand: nothing is in it, and nothing can be written
        os.chmod(self._home.name, 0o711)  # they may be another user's
        self._control: socket.socket | None = None
        self._ready = False
        self._starting = threading.Lock()
        self.stopped = False  # no process is started any more
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Zygote:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def launch(self) -> None:
        """Start the process and do not wait: it loads its libraries while we load ours. Raises
        GraderFault once stopped."""
        with self._starting:
            if self.stopped:
                raise GraderFault("the run was interrupted")
            if self._process is None:
                self._launch()

    def _launch(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = self._started("twophase.grading.zygote", theirs, subprocess.DEVNULL)
        ours.send(json.dumps(self._hidden).encode())
        self._control = ours
        self._ready = False

    def _started(self, module: str, end: socket.socket, stdin: int) -> subprocess.Popen[bytes]:
        """A process that runs `module`, with this end of a socket and nothing else of ours; the end
        is closed here."""
        with end, self._log().open("wb") as errors:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(end.fileno()), str(self._work)],
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=[end.fileno()],
                cwd=self._home.name,
                env=self._environment(),
                start_new_session=True,
            )

    def _log(self) -> Path:
        return Path(self._home.name) / "zygote.log"

    def start(self) -> None:
        """Start the process unless it has been, and wait until it has loaded everything. Raises
        GraderFault."""
        self.launch()
        if self._ready:
            return
        for library in (
            "numpy",
            "torch",
        ):  # what answers may hold is loaded now, not while the clock of one runs
            importlib.import_module(library)
        try:
            self._receive(START_S)
            self._ready = True
        except (OSError, ValueError):
            self._stop()
            said = self._log().read_text(errors="replace").strip().splitlines()
            raise GraderFault(
                f"the worker did not start: {said[-1] if said else 'it said nothing'}"
            ) from None

    def _environment(self) -> dict[str, str]:
        """Nothing of ours but what finds the interpreter and the package: no tokens, no proxies, no
        paths of the course."""
        keep = ("PATH", "LD_LIBRARY_PATH", "TZ", "SYSTEMROOT")
        return (
            {k: os.environ[k] for k in keep if k in os.environ}
            | {
                "HOME": self._home.name,
                "IPYTHONDIR": f"{self._home.name}/ipython",
                "MPLCONFIGDIR": f"{self._home.name}/matplotlib",
                "TMPDIR": self._home.name,
                "PYTHONPATH": str(Path(twophase.__path__[0]).parent),
                "PYTHONUSERBASE": site.getuserbase(),
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONHASHSEED": "0",
                "LC_ALL": "C.UTF-8",
                "MPLBACKEND": "Agg",
                "TWOPHASE_WORKER": "1",
                "USER": "student",
                "LOGNAME": "student",
                "MALLOC_ARENA_MAX": "2",  # each thread's own would count 64 MiB of address space
            }
            | {
                f"{name}_NUM_THREADS": "1"
                for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "NUMBA")
            }
        )

    def fork(self, withholds: Sequence[str], limits: Limits) -> Session:
        """A fresh process for a submission. Raises GraderFault if there is none to be had."""
        request = {"do": "fork", "withholds": list(withholds), "limits": asdict(limits)}
        for _ in range(
            2
        ):  # a submission may have killed the zygote: then the next one starts it again
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
                session.run_cell(
                    "", CONTROL_S
                )  # what fails before a submission's first cell is our own fault
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
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            with contextlib.suppress(OSError):
                (
                    self._process.wait(0.5)
                    if self._gone()
                    else os.killpg(self._process.pid, signal.SIGKILL)
                )
            self._process.wait()
            self._process = None

    def _gone(self) -> bool:
        """Whether the zygote ends by itself when its control socket closes, which kills what it
        forked."""
        assert self._process is not None
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> None:
        """Let whoever uses this find it dead: for another thread, when the run is interrupted."""
        with self._starting:
            self.stopped = True
            process = self._process
        if process is not None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)

    def close(self) -> None:
        self.stopped = True
        self._stop()
        self._home.cleanup()
