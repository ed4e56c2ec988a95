"""The judge's side of one submission's process: start it, run its cells, call its answers, kill it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import twophase
from twophase.grading.confine import Limits
from twophase.protocol import AnswerError, ProtocolError, decode, encode
from twophase.protocol import wire as w
from twophase.protocol.errors import JudgeFault

START_S = 120.0
CONTROL_S = 20.0


class GraderFault(JudgeFault):
    """The grader itself cannot go on: no fault of the submission."""


class Zygote:
    """A process to fork submissions from, started when it is first needed and again if it has been killed."""

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="twophase-", ignore_cleanup_errors=True)
        self._work = Path(self._home.name) / "work"
        self._work.mkdir()
        self._control: socket.socket | None = None
        self._ready = False
        self.stopped = False  # no process is started any more
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def launch(self) -> None:
        """Start the process and do not wait: it loads its libraries while we load ours."""
        if self._process is not None:
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, self._log().open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "twophase.grading.zygote", str(theirs.fileno()), str(self._work)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=[theirs.fileno()],
                cwd=self._home.name,
                env=self._environment(),
                start_new_session=True,
            )
        self._control = ours
        self._ready = False

    def _log(self) -> Path:
        return Path(self._home.name) / "zygote.log"

    def start(self) -> None:
        """Start the process unless it has been, and wait until it has loaded everything. Raises GraderFault."""
        self.launch()
        if self._ready:
            return
        try:
            self._receive(START_S)
            self._ready = True
        except (OSError, ValueError):
            self._stop()
            said = self._log().read_text(errors="replace").strip().splitlines()
            raise GraderFault(f"the worker did not start: {said[-1] if said else 'it said nothing'}") from None

    def _environment(self) -> dict[str, str]:
        """Nothing of ours but what finds the interpreter and the package: no tokens, no proxies, no paths of the course."""
        keep = ("PATH", "LD_LIBRARY_PATH", "TZ", "SYSTEMROOT")
        return (
            {k: os.environ[k] for k in keep if k in os.environ}
            | {
                "HOME": self._home.name,
                "IPYTHONDIR": f"{self._home.name}/ipython",
                "MPLCONFIGDIR": f"{self._home.name}/matplotlib",
                "TMPDIR": self._home.name,
                "PYTHONPATH": str(Path(twophase.__path__[0]).parent),
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONHASHSEED": "0",
                "LC_ALL": "C.UTF-8",
                "MPLBACKEND": "Agg",
                "TWOPHASE_WORKER": "1",
            }
            | {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "NUMBA")}
        )

    def fork(self, withholds: Sequence[str], limits: Limits) -> Session:
        """A fresh process for a submission. Raises GraderFault if there is none to be had."""
        cwd = tempfile.TemporaryDirectory(dir=self._work, ignore_cleanup_errors=True)
        request = {"do": "fork", "cwd": cwd.name, "withholds": list(withholds), "limits": asdict(limits)}
        for _ in (
            () if self.stopped else range(2)
        ):  # a submission may have killed the zygote: then the next one starts it again
            self.start()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            with theirs:
                try:
                    assert self._control is not None
                    socket.send_fds(self._control, [json.dumps(request).encode()], [theirs.fileno()])
                    self._receive(CONTROL_S)
                    session = Session(self, w.Channel(ours), cwd, limits)
                    session.run_cell("", CONTROL_S)  # what fails before a submission's first cell is our own fault
                    return session
                except (OSError, ValueError, AnswerError):
                    ours.close()
                    self._stop()
        cwd.cleanup()
        raise GraderFault("the worker cannot be started again")

    def end(self, died: bool) -> int:
        """Kill the submission's process and all it left behind. Returns the signal that ended it, if one did."""
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
                self._process.wait(0.5) if self._gone() else os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _gone(self) -> bool:
        """Whether the zygote ends by itself when its control socket closes, which kills what it forked."""
        assert self._process is not None
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self) -> None:
        """Let whoever uses this find it dead: for another thread, when the run is interrupted."""
        self.stopped = True
        if self._process is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        self.stopped = True
        self._stop()
        self._home.cleanup()


@dataclass(frozen=True)
class CellRun:
    """What running a cell gave: the exception that ended it, if any, and what it printed."""

    error: str = ""
    types: tuple[str, ...] = ()
    output: str = ""


class Session:
    """One process of one submission. `broken` is why it can no longer be used, once it cannot."""

    def __init__(
        self, zygote: Zygote, channel: w.Channel, cwd: tempfile.TemporaryDirectory[str], limits: Limits
    ) -> None:
        self._zygote = zygote
        self._channel = channel
        self._cwd = cwd
        self.limits = limits
        self.broken: AnswerError | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def run_cell(self, source: str, limit_s: float) -> CellRun:
        """Run one cell. Raises AnswerError (timeout, died, protocol), and the session is broken then."""
        body = encode(("cell", source))
        _, reply = self.converse(
            w.RUN, body, time.monotonic() + limit_s, f"The cell did not finish within {limit_s:g} s"
        )
        if self._channel.pending():
            raise self.fail("protocol", "The cell wrote into the grader's own channel")
        try:
            ran = decode(reply, plain=True)
            error, types, output = ran["error"], ran["types"], ran["output"]
            if not all(type(s) is str for s in (error, output, *types)) or type(types) is not tuple:
                raise ProtocolError("a cell's report has another shape than it should")
            return CellRun(error[:2000], types[:20], output[:20_000])
        except (ProtocolError, KeyError, TypeError) as e:
            raise self.fail("protocol", f"The cell's process sent nonsense: {e}") from None

    def converse(
        self,
        kind: bytes,
        body: bytes,
        deadline: float,
        late: str,
        serve: Any = None,
        turn: threading.Lock | None = None,
    ) -> tuple[bytes, bytes]:
        """Ask, serve callbacks with `serve(body)` until the answer comes. Raises AnswerError if none does.

        `turn` is a lock that the caller holds: another thread may have it while we wait.
        """
        if self.broken is not None:
            raise self.broken
        conversation = secrets.randbits(63)
        try:
            if self._channel.pending():
                self._channel.receive(deadline)  # Closed, if that is why
                raise ProtocolError("it spoke without being asked")
            self._channel.send(kind, conversation, body, deadline)
            while True:
                with _lent(turn):
                    got, about, reply = self._channel.receive(deadline)
                if about != conversation:
                    raise ProtocolError("it answered a question that nobody asked")
                if got != w.CALLBACK or serve is None:
                    return got, reply
                answer, sent = serve(reply)
                self._channel.send(answer, conversation, sent, deadline)
        except TimeoutError:
            raise self.fail("timeout", late) from None
        except w.Closed:
            raise self.fail("died", "") from None
        except ProtocolError as e:
            raise self.fail("protocol", f"Its process sent nonsense: {e}") from None

    def fail(self, kind: str, message: str) -> AnswerError:
        """Kill the process and remember why."""
        if self.broken is None:
            ended = self._zygote.end(died=kind == "died")
            if kind == "died":
                message = f"Its process ended{_why(ended)}"
            self.broken = AnswerError(kind, message + ".")
            self._clean()
        return self.broken

    def close(self) -> None:
        if self.broken is None:
            self.broken = AnswerError("died", "The session is over.")
            self._zygote.end(died=False)
            self._clean()

    def _clean(self) -> None:
        self._channel.close()
        self._cwd.cleanup()


@contextlib.contextmanager
def _lent(turn: threading.Lock | None) -> Iterator[None]:
    if turn is None:
        yield
        return
    turn.release()
    try:
        yield
    finally:
        turn.acquire()


def _why(number: int) -> str:
    if not number:
        return " (os._exit, or its end of the channel was closed)"
    name = signal.Signals(number).name if number in {s.value for s in signal.Signals} else f"signal {number}"
    meaning = {"SIGSEGV": ", a segmentation fault", "SIGXCPU": ", too much processor time", "SIGABRT": ", an abort"}
    return f" ({name}{meaning.get(name, '')})"
