"""Starting the processes of a run: the fork server, and through it judges and zygotes."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import site
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import twophase
from twophase.grading.errors import GraderFault, ServerGone
from twophase.grading.files.removal import remove
from twophase.grading.sandbox.affinity import let_go
from twophase.grading.sandbox.what_confines import practice

LOG = "log"
# one thread each, and sets in the same order everywhere: the same numbers, however many processes
# there are; threads that an answer starts all the same do not spin, since they share a processor
ENVIRONMENT = {
    f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "NUMBA")
} | {"PYTHONHASHSEED": "0", "GOMP_SPINCOUNT": "0"}


class ForkServer:
    """The process that has loaded everything, started when something is first forked from it, and
    again if it has gone.

    Judges are handed a `connection` to the one that they were forked from: their zygotes come from
    it, too.
    """

    def __init__(self, connection: socket.socket | None = None, log: Path | None = None) -> None:
        self._connection = connection
        self._given = connection is not None
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._codes: dict[str, int | None] = {}  # of judges; None: it has not ended

    def zygote(self, control: socket.socket) -> None:
        """Have a zygote forked, with this end of its control socket. Raises GraderFault."""
        self._send({"do": "zygote"}, [control])

    def judge(self, module: str, pipe: socket.socket) -> str:
        """Have a judge forked: `serve` of this module, with this end of its pipe. Returns its name,
        for `ended` and `kill`. Raises GraderFault."""
        name = secrets.token_hex(8)
        self._send({"do": "judge", "child": name, "module": module}, [pipe])
        self._codes[name] = None
        return name

    def said(self) -> str:
        """The last line that the fork server, or a child of it, has written to its log."""
        return last_line(self._log) if self._log is not None else ""

    def _send(self, request: dict[str, str], ends: list[socket.socket]) -> None:
        said = ""
        for _ in range(2):
            if self._connection is None:
                if self._given:
                    raise ServerGone(f"the fork server has gone: {said or 'it said nothing'}")
                self._start()
            assert self._connection is not None
            more = [self._connection] if request["do"] == "judge" else []
            try:
                fds = [end.fileno() for end in (*ends, *more)]
                socket.send_fds(self._connection, [json.dumps(request).encode()], fds)
                return
            except OSError:  # it has gone
                said = self.said()
                self._drop()
        raise GraderFault(f"the fork server does not start: {said or 'it said nothing'}")

    def _start(self) -> None:
        home = Path(tempfile.mkdtemp(prefix="twophase-"))
        home.chmod(0o711)  # a submission may be another user's
        self._log = home / LOG
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = start_process("twophase.grading.sandbox.fork_server", theirs, home, home)
        self._codes = {}

    def ended(self, name: str, within_s: float) -> int | None:
        """The exit code of this judge (negative: the signal that ended it), once it has ended; None
        if that takes longer, or if nobody knows how it ended."""
        until = time.monotonic() + within_s
        with contextlib.suppress(OSError):  # it has gone itself
            while self._codes.get(name, 0) is None and (notice := self._notice(until)):
                self._codes[notice["child"]] = notice["code"]
        return self._codes.get(name)

    def _notice(self, until: float) -> dict[str, Any] | None:
        if self._connection is None:
            return None
        left_s = max(0.0, until - time.monotonic())
        # by select: a timeout of the socket would be one of the judges' copies, too
        heard, _, _ = select.select([self._connection], [], [], left_s)
        data = self._connection.recv(2**16) if heard else b""
        return dict(json.loads(data)) if data else None

    def kill(self, name: str) -> None:
        """Kill this judge, unless it has ended."""
        with contextlib.suppress(OSError):
            if self._connection is not None and self._codes.get(name, 0) is None:
                self._connection.send(json.dumps({"do": "kill", "child": name}).encode())

    def close(self) -> None:
        """Hang up, and end the process if it is ours."""
        self._drop()

    def _drop(self) -> None:
        """Hang up. The process ends when nobody is connected to it any more, and at once if it is
        ours: its children end when those hang up who asked for them."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            assert self._log is not None
            remove(self._log.parent)


def make_server() -> ForkServer:
    """What judges come from on this system."""
    if practice():
        from twophase.grading.sandbox.practice import PracticeServer

        return PracticeServer()
    return ForkServer()


def last_line(log: Path) -> str:
    """The last line of a log; an empty string if there is none."""
    with contextlib.suppress(OSError):
        lines = log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""
    return ""


def start_process(
    module: str, end: socket.socket, folder: Path, home: Path, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """A process that runs `module`, with this end of a socket, `folder` and nothing else of ours;
    the end is closed here, and what it says is in the log in `home`."""
    with end, (home / LOG).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(end.fileno()), str(folder)],
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=log,
            pass_fds=[end.fileno()],
            cwd=home,
            env=_environment(str(home)),
            start_new_session=True,
        )
    let_go(process.pid)
    return process


def _environment(home: str) -> dict[str, str]:
    """Nothing of ours but what finds the interpreter, the package and its caches, and the time
    zone: no tokens, no proxies, no paths of the course."""
    keep = ("PATH", "LD_LIBRARY_PATH", "TZ", "SYSTEMROOT", "PYTHONDONTWRITEBYTECODE")
    return (
        {k: os.environ[k] for k in keep if k in os.environ}
        | {
            "HOME": home,
            # matplotlib keeps its list of fonts there; preload takes it out again
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
            "IPYTHONDIR": f"{home}/ipython",
            "TMPDIR": home,
            "PYTHONPATH": str(Path(twophase.__path__[0]).parent),
            "PYTHONUSERBASE": site.getuserbase(),
            "LC_ALL": "C.UTF-8",
            "MPLBACKEND": "Agg",
            "TWOPHASE_WORKER": "1",
            "USER": "student",
            "LOGNAME": "student",
            "MALLOC_ARENA_MAX": "2",  # each thread's own would count 64 MiB of address space
            "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # large pages: fewer to copy in a fork
        }
        | ENVIRONMENT
    )
