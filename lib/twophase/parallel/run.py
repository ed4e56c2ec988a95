"""Starts ranks as processes of this machine, and collects what they return: for notebooks and
tests. `torchrun` does the same for programs, on several machines too.

A rank that raises, is killed or ends is noticed at once, by its process and not by a timeout: the
others are ended with it. Ranks notice, too, when the process that started them is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing as mp
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from twophase.kernels.collectives import CollectiveError, RankError
from twophase.measure.collectives import Tracer
from twophase.measure.events import EventLog
from twophase.parallel.comm import join

GRACE_S = 1.0  # for the error that explains the others' to come in as well
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


class Run(list[Any]):
    """The results of all ranks, by rank, and `log`, the calls of all their Comms on one clock."""

    def __init__(self, results: list[Any], log: EventLog) -> None:
        super().__init__(results)
        self.log = log


def run_ranks(
    n_ranks: int,
    function: Callable[..., Any],
    *args: Any,
    patience_s: float = 60.0,
    timeout_s: float | None = None,
) -> Run:
    """Run `function(comm, *args)` in n processes, each with one thread and a traced `Comm` over
    gloo; return their results, by rank, with the log of all calls.

    On Linux ranks are forks of this process: `function` may be a cell's, and what it uses is there.
    Elsewhere they start anew: it must be importable, and its arguments picklable; results must be
    everywhere. As soon as a rank raises, is killed or ends early, all others are ended, and
    RankError says which and why. CollectiveError if ranks wait for each other longer than
    `patience_s`, or all together longer than `timeout_s` (None: for ever). ValueError for less than
    one rank. No process is left when this returns or raises.
    """
    if isinstance(n_ranks, bool) or not isinstance(n_ranks, int) or n_ranks < 1:
        raise ValueError(f"there is at least 1 rank; got {n_ranks!r}.")
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        raise ValueError(
            "this process has used its GPU, which its forks cannot: start ranks with torchrun."
        )
    calls = mp.RawArray("q", n_ranks)  # that each rank's Comm has begun
    started = time.perf_counter()  # one clock for all
    with tempfile.TemporaryDirectory(prefix="twophase-ranks-") as folder:
        ranks: list[tuple[BaseProcess, Connection]] = []
        try:
            for rank in range(n_ranks):
                place = (rank, n_ranks, str(Path(folder, "ranks")), started)
                ranks.append(_start(place, calls, patience_s, function, args))
            found = _collect(ranks, calls, timeout_s)
        finally:
            _end(process for process, _ in ranks)
    logs = [EventLog.from_lines(lines) for _, lines in found]
    return Run([result for result, _ in found], EventLog.merged(logs))


def _start(
    place: tuple[int, int, str, float],
    calls: Any,
    patience_s: float,
    function: Callable[..., Any],
    args: tuple[Any, ...],
) -> tuple[BaseProcess, Connection]:
    """A rank's process, and the end of the pipe that its result comes from."""
    context = mp.get_context("fork" if sys.platform == "linux" else "spawn")
    ours, theirs = context.Pipe(duplex=False)
    known = (*place, os.getpid())
    process = context.Process(  # type: ignore[attr-defined]
        target=_be_rank, args=(known, calls, patience_s, theirs, function, args), daemon=True
    )
    with _quiet_fork():
        process.start()
    theirs.close()
    return process, ours


def _be_rank(
    place: tuple[int, int, str, float, int],
    calls: Any,
    patience_s: float,
    result: Connection,
    function: Callable[..., Any],
    args: tuple[Any, ...],
) -> None:
    """What a rank's process does: join, run, report."""
    rank, n_ranks, file, started, parent = place
    _end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent, which ends its ranks
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    log = EventLog(started)
    try:

        def began() -> None:
            calls[rank] += 1

        store = dist.FileStore(file, n_ranks)  # type: ignore[attr-defined]
        comm = join("gloo", patience_s, began, store=store, rank=rank, world_size=n_ranks)
        value = function(Tracer(comm, log), *args)
        comm.close()
        report = pickle.dumps((True, (value, log.to_lines())))
    except BaseException as error:
        lost = isinstance(error, CollectiveError)
        report = pickle.dumps((False, (lost, _says(error), traceback.format_exc())))
    sys.stdout.flush()
    result.send_bytes(report)
    signal.pause()  # another may still listen to this rank: whoever started it ends it


def _says(error: BaseException) -> str:
    return str(error) if isinstance(error, CollectiveError) else f"{type(error).__name__}: {error}"


def _collect(
    ranks: list[tuple[BaseProcess, Connection]], calls: Any, timeout_s: float | None
) -> list[tuple[Any, str]]:
    """What each rank reported. Raises what went wrong first: rather a rank's own error than that
    of one that lost it."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    found: dict[int, tuple[Any, str]] = {}
    failed: dict[int, tuple[bool, str, str]] = {}
    open_ranks = {connection: rank for rank, (_, connection) in enumerate(ranks)}
    while open_ranks:
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = wait(list(open_ranks), left_s)
        if not ready and failed:
            break
        if not ready:
            missing = ", ".join(map(str, sorted(open_ranks.values())))
            raise CollectiveError(
                f"the ranks were given {timeout_s:g} s, and of rank {missing} there is no result"
                " yet: give more (`timeout_s`), or see what it waits for."
                + _who_is_behind([], list(calls))
            )
        for connection in ready:
            assert isinstance(connection, Connection)
            rank = open_ranks.pop(connection)
            try:
                right, report = pickle.loads(connection.recv_bytes())
            except (EOFError, OSError):
                right, report = False, (False, _how_it_ended(ranks[rank][0]), "")
            (found if right else failed)[rank] = report
        if failed:
            if any(not lost for lost, _, _ in failed.values()):
                break  # a reason of its own
            deadline = min(deadline or float("inf"), time.monotonic() + GRACE_S)
    if failed:
        rank = min(failed, key=lambda r: (failed[r][0], r))
        lost, says, trace = failed[rank]
        if lost:
            raise CollectiveError(says + _who_is_behind(sorted(found), list(calls)))
        raise RankError(rank, says) from (RuntimeError(f"\n{trace}") if trace else None)
    return [found[rank] for rank in range(len(ranks))]


def _who_is_behind(returned: list[int], calls: list[int]) -> str:
    """Which ranks had returned, or have come less far than the others, in a sentence."""
    if returned:
        return f" Rank {', '.join(map(str, returned))} had returned."
    behind = [rank for rank, n in enumerate(calls) if n < max(calls)]
    if not behind:
        return ""
    return f" Rank {', '.join(map(str, behind))} is behind: the ranks had begun {calls} messages."


def _how_it_ended(process: BaseProcess) -> str:
    process.join()
    code = process.exitcode or 0
    if code >= 0:
        return f"ended with exit status {code}, without a result."
    return f"was killed by signal {-code} ({signal.Signals(-code).name})."


def _end(processes: Iterator[BaseProcess]) -> None:
    """Kill those that still run, and wait until all are gone."""
    for process in list(processes):
        process.kill()
        process.join()
        process.close()


def _end_with(parent: int) -> None:
    """End this process when its parent is gone, whatever either of them is doing."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def _quiet_fork() -> Iterator[None]:
    """Python 3.12 warns of any fork of a process with threads; these forks touch none of them."""
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*multi-threaded.*fork", DeprecationWarning)
        yield
