"""The process that all others of a run are forked from: everything imported, nothing run, nothing
read.

`python -m twophase.grading.sandbox.fork_server FD FOLDER` reads from a SOCK_SEQPACKET socket, one
JSON value each:

    {"do": "zygote"} with one descriptor: the zygote's end of its control socket
    {"do": "judge", "child": …, "module": …} with two: the judge's end of its pipe, an end of this
    very socket; the module's `serve` gets both
    {"do": "kill", "child": …}

and says {"child": …, "code": …} when a judge has ended. What is particular to a child, it reads
itself from its own descriptor: no secret, no case, no path of the course is ever in this process,
so that none can be in a zygote. FOLDER holds its log. It ends when nobody has the other end of the
socket any more, and removes that folder.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from twophase.grading.files import scratch
from twophase.grading.sandbox import linux, zygote
from twophase.grading.sandbox.launch import LOG, ForkServer
from twophase.grading.sandbox.preload import preload, seed
from twophase.grading.sandbox.shell import make_shell

# what a child does, given its request and its descriptors
Become = Callable[[dict[str, str], list[int]], None]


class ForkServerLoop:
    """The loop of requests. `become` has what a child does for each of them."""

    def __init__(self, control: socket.socket, become: dict[str, Become]) -> None:
        self._control = control
        self._become = become
        self._children: dict[int, str] = {}

    def serve(self) -> None:
        signal.signal(signal.SIGCHLD, lambda number, frame: self._bury())
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self._control, 2**16, 2)
            except OSError:  # they left without having read everything
                return
            if not data:
                return
            # what a check of ours that has gone mad may write into every socket
            with contextlib.suppress(ValueError, KeyError, TypeError):
                self._answer(json.loads(data), fds)
            for fd in fds:
                os.close(fd)

    def _answer(self, request: dict[str, str], fds: list[int]) -> None:
        if request["do"] == "kill":
            for pid in [p for p, n in list(self._children.items()) if n == request["child"]]:
                os.kill(pid, signal.SIGKILL)  # its number is its own until we have buried it
        else:
            self._fork(self._become[request["do"]], request, fds)

    def _fork(self, become: Become, request: dict[str, str], fds: list[int]) -> None:
        # a child that ends at once is buried when we know its name
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
                self._control.close()
                become(request, fds)
                os._exit(0)
            except BaseException as e:
                print(f"{type(e).__name__}: {e}", file=sys.stderr, flush=True)
                os._exit(1)
        self._children[pid] = request.get("child", "")
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})

    def _bury(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                name = self._children.pop(ended[0], "")
                notice = {"child": name, "code": os.waitstatus_to_exitcode(ended[1])}
                if name:
                    with contextlib.suppress(OSError):  # nobody listens, or nobody has for long
                        self._control.send(json.dumps(notice).encode(), socket.MSG_DONTWAIT)


def main() -> None:
    control, folder = socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # it would look through a million objects again and again, and free nothing
    print(*preload(), sep="\n", file=sys.stderr)  # into the log
    shell = make_shell()
    seed()

    def become_zygote(request: dict[str, str], fds: list[int]) -> None:
        zygote.serve(socket.socket(fileno=fds[0]), shell)

    def become_judge(request: dict[str, str], fds: list[int]) -> None:
        # of the checks, for the next run
        sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
        judge = importlib.import_module(request["module"])  # after the fork: no zygote may have it
        server = ForkServer(socket.socket(fileno=fds[1]), folder / LOG)
        judge.serve(socket.socket(fileno=fds[0]), server)

    gc.freeze()  # garbage and all: to look for it takes 0.3 s, and finds a megabyte
    gc.enable()
    linux.use_large_pages()
    ForkServerLoop(control, {"zygote": become_zygote, "judge": become_judge}).serve()
    scratch.leave(folder, last=True)


if __name__ == "__main__":
    # by its own name, not as __main__: that name belongs to the notebook
    from twophase.grading.sandbox import fork_server

    fork_server.main()
