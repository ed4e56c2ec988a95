"""The process that is forked for every submission: everything imported, nothing run, no check
anywhere in its memory.

`python -m twophase.grading.zygote FD FOLDER` reads from a SOCK_SEQPACKET socket, one JSON value
each: first a list of paths below which nothing is readable for submissions, then requests. FOLDER
is the empty one they stand in. No request has a word of a submission in it.

    {"do": "fork", "withholds": […], "limits": {…}} with one descriptor: the child's end of the
    channel {"do": "end", "died": …}: kill the child and everything that it left behind

and answers each with one JSON object. It serves one child at a time and ends when the socket
closes.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import random
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from twophase.grading import linux
from twophase.grading.confine import Limits
from twophase.grading.jail import Jail
from twophase.grading.orphans import kill_descendants
from twophase.grading.withhold import Library, withhold
from twophase.grading.worker import Worker
from twophase.protocol.wire import Channel, Closed

ROOMS = ("protocol", "lab", "theory", "kernels", "measure", "models")
NOT_LOADED = (
    "twophase.models.train",
    "twophase.models.corpus",
    "twophase.lab.checking",
    "twophase.lab.showing",
)
LIBRARIES = ("numpy", "torch", "torch.nn.functional", "asyncio", "matplotlib.pyplot")


def preload() -> list[str]:
    """Import what notebooks import. Returns what could not be imported."""
    failed = []
    for name in LIBRARIES + tuple(_modules()):
        try:
            importlib.import_module(name)
        except (
            Exception
        ) as e:  # a module that needs what is not installed is no reason to grade nothing
            failed.append(f"{name}: {type(e).__name__}: {e}")
    torch = sys.modules["torch"]
    torch.set_num_threads(1)  # a fork after an operation on several threads hangs
    torch.set_num_interop_threads(1)
    return failed


def _modules() -> list[str]:
    names = []
    for room in ROOMS:
        package = importlib.import_module(f"twophase.{room}")
        names.append(package.__name__)
        names += [m.name for m in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    return [n for n in names if n not in NOT_LOADED and not n.endswith("__main__")]


def make_shell() -> Any:
    """IPython without a kernel, a history or a face."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.xmode = "Minimal"
    config.InteractiveShell.enable_tip = False
    shell = InteractiveShell.instance(config=config)
    shell.ask_exit = lambda: None
    shell.enable_gui = lambda gui=None: (
        None
    )  # %matplotlib asks for one, and must not cost its cell's answer
    shell.showtraceback = lambda *args, **kwargs: (
        None
    )  # the exception is in the result; drawing it costs 50 ms
    shell.showsyntaxerror = lambda *args, **kwargs: None
    _leave_plain_python(shell)
    shell.run_cell(
        "None", store_history=False, silent=True
    )  # first-use imports happen before the fork
    return shell


def _leave_plain_python(shell: Any) -> None:
    """Let the shell look for magics only in what is no Python: its search is slower than most cells
    that students write."""
    transform = shell.transform_cell
    manager = shell.input_transformer_manager
    lists = (
        manager.cleanup_transforms,
        manager.line_transforms,
        manager.token_transformers,
        shell.input_transformers_post,
    )
    ours = [len(found) for found in lists]

    def transform_cell(raw: str) -> str:
        several_lines = (
            "\n" in raw.strip()
        )  # one line alone may be `exit` or `ls`, which are Python and more
        if several_lines and [len(found) for found in lists] == ours and _is_python(raw):
            return raw
        return str(transform(raw))

    def should_run_async(raw: str, *, transformed_cell: str | None = None, **more: Any) -> bool:
        """The shell compiles a cell to see whether it waits for something; these words tell most
        that do not."""
        if (
            transformed_cell is not None
            and "await" not in transformed_cell
            and "async" not in transformed_cell
        ):
            return False
        return bool(asks_async(raw, transformed_cell=transformed_cell, **more))

    asks_async = shell.should_run_async
    shell.transform_cell = transform_cell
    shell.should_run_async = should_run_async


def _is_python(source: str) -> bool:
    try:
        compile(
            source,
            "<cell>",
            "exec",
            ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
            dont_inherit=True,
        )
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        return False
    return True


def seed() -> None:
    """The same random numbers in every submission's process, at whatever time it is forked."""
    random.seed(0)
    sys.modules["numpy"].random.seed(0)
    sys.modules["torch"].manual_seed(0)


def child(
    request: dict[str, Any],
    end: socket.socket,
    shell: Any,
    jail: Jail,
    zygote: int,
    library: Library,
) -> None:
    """Everything that happens in a submission's process."""
    code = 0
    try:
        end = jail.enter(Limits(**request["limits"]), end, zygote)
        withhold(request["withholds"], library)
        random.seed(0)  # this generator, alone of them, takes another seed after a fork
        Worker(Channel(end), shell).serve()
    except Closed:
        pass
    except BaseException:
        code = 70
    finally:
        os._exit(code)


class Zygote:
    """The loop of requests."""

    def __init__(self, control: socket.socket, shell: Any, jail: Jail) -> None:
        self._library = Library()
        self._control = control
        self._shell = shell
        self._jail = jail
        self._pid = 0

    def serve(self) -> None:
        while True:
            data, fds, _, _ = socket.recv_fds(self._control, 2**20, 1)
            if not data:
                kill_descendants()
                return
            request = json.loads(data)
            reply = (
                self._fork(request, fds[0])
                if request["do"] == "fork"
                else self._end(request["died"])
            )
            self._control.send(json.dumps(reply).encode())

    def _fork(self, request: dict[str, Any], fd: int) -> dict[str, Any]:
        kill_descendants()
        end = socket.socket(fileno=fd)
        me = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            child(request, end, self._shell, self._jail, me, self._library)
        end.close()
        return {"pid": self._pid}

    def _end(self, died: bool) -> dict[str, Any]:
        """Kill what is left of the submission. `signal` is what ended it, if something did before
        us."""
        ended = 0
        if died and self._pid:  # its end of the channel closes a moment before it can be waited for
            with contextlib.suppress(OSError):
                watch = os.pidfd_open(self._pid)
                select.select([watch], [], [], 0.5)
                os.close(watch)
                pid, status = os.waitpid(self._pid, os.WNOHANG)
                ended = os.WTERMSIG(status) if pid and os.WIFSIGNALED(status) else 0
        self._pid = 0
        return {"signal": ended, "reaped": kill_descendants()}


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    work = Path(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    jail = Jail(work, [Path(p) for p in json.loads(control.recv(2**20))])
    failed = preload()
    zygote = Zygote(control, make_shell(), jail)
    seed()
    gc.collect()
    gc.freeze()
    control.send(json.dumps({"ready": os.getpid(), "not_loaded": failed}).encode())
    zygote.serve()


if __name__ == "__main__":
    # by its own name, not as __main__: that name belongs to the notebook
    from twophase.grading import zygote

    zygote.main()
