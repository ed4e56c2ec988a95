"""No answer loses its points because something else had the processor: deadlines are put off by the
time spent waiting for one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from patience import PATIENCE_S

from twophase.grading.judge.replay import Replay
from twophase.grading.judge.time_budget import Allowance, Usage
from twophase.grading.judge.which_cells_run import Step
from twophase.grading.sandbox.limits import Limits
from twophase.grading.sandbox.session import CellRun
from twophase.grading.sandbox.zygote_handle import Zygote
from twophase.protocol import AnswerError
from twophase.protocol import wire as w
from twophase.protocol.waited import MOST_S, Waited

SPIN = (
    "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(flush=True)\nwhile"
    " True: pass"
)
counted = Path("/proc/self/schedstat").exists()


@pytest.mark.skipif(
    not counted, reason="this kernel does not count how long a process waits for a processor"
)
def test_a_process_that_shares_its_processor_is_seen_waiting() -> None:
    spinning = [
        subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE) for _ in range(3)
    ]
    try:
        for process in spinning:
            assert process.stdout is not None
            process.stdout.readline()
        waited = Waited(spinning[0].pid)
        until = time.monotonic() + PATIENCE_S
        while waited.grace_s() < 0.2 and time.monotonic() < until:
            os.sched_yield()
        assert waited.grace_s() >= 0.2
        waited.begin()
        assert waited.grace_s() < 0.2
        waited.close()
    finally:
        for process in spinning:
            process.kill()
            process.communicate()


def test_nobody_gets_more_time_where_nothing_is_counted_and_never_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited = Waited(2**22 + 1)  # no such process; this one hardly waits
    monkeypatch.setattr("twophase.protocol.waited._waited_ns", lambda fd: 0)
    waited.begin()
    assert waited.grace_s() == 0
    monkeypatch.setattr("twophase.protocol.waited._waited_ns", lambda fd: 10**15)
    assert waited.grace_s() in (0, MOST_S)  # 0: no file to ask
    told = waited.grace_s()
    waited.close()
    monkeypatch.setattr("twophase.protocol.waited._waited_ns", lambda fd: 10**18)
    assert waited.grace_s() == told


class Machine:
    """A clock, and the waiting of whoever runs: no test of it sleeps."""

    def __init__(self, waits: float) -> None:
        self.now_s = self.waited_s = 0.0
        self._waits = waits  # the share of the time in which the submission gets no processor

    def work(self, seconds: float) -> None:
        """The submission computes for so long: on the wall it is longer."""
        wall_s = seconds / (1 - self._waits)
        self.now_s += wall_s
        self.waited_s = wall_s - seconds


class Busy:
    """A zygote whose processes take a second of computing for each cell."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.waited = SimpleNamespace(grace_s=lambda: machine.waited_s)

    broken = None

    def fork(self, limits: Limits, *how: bool) -> Busy:
        self._machine.now_s += 1000.0  # the grader's own work
        return self

    def run_cell(self, source: str, limit_s: float, ends: bool) -> CellRun:
        if limit_s < 1.0:
            raise AnswerError("timeout", "it had no time left")
        self._machine.work(1.0)
        return CellRun()

    def close(self) -> None:
        pass


@pytest.mark.parametrize("waits", [0.0, 0.5, 0.9])
def test_what_a_submission_has_used_is_the_same_on_a_busy_machine(waits: float) -> None:
    machine = Machine(waits)
    usage = Usage(waiting_s=1000.0, clock=lambda: machine.now_s)
    replay = Replay(cast(Zygote, Busy(machine)), Limits(cell_s=2.0), {})
    steps = [Step(n, "own", f"cell {n}") for n in range(4)]
    assert replay.process(steps, Allowance(usage, until=4.5, forks=1)) is not None
    assert usage.seconds == pytest.approx(4.0)
    assert replay.process(steps, Allowance(usage, until=7.5, forks=1)) is None
    assert usage.seconds == pytest.approx(7.0)
    assert replay.guilty == {}  # the fourth had less time than a cell may take


def test_waiting_is_forgiven_up_to_a_limit_and_never_more_than_has_passed() -> None:
    usage = Usage(waiting_s=10.0)
    usage.add(elapsed_s=1.0, waited_s=5.0)  # both processes waited, one after the other
    assert usage.seconds == 0.0
    usage.add(elapsed_s=8.0, waited_s=6.0)
    assert usage.seconds == 2.0
    usage.add(elapsed_s=8.0, waited_s=8.0)
    assert usage.seconds == 7.0  # 3 of 10 s were left to forgive


def test_a_share_is_of_what_is_left() -> None:
    usage = Usage(waiting_s=0.0)
    whole = Allowance(usage, until=12.0, forks=9)
    usage.add(4.0, 0.0)
    assert (whole.left_s, whole.share(of=4, forks=2)) == (8.0, Allowance(usage, 6.0, 2))
    usage.add(20.0, 0.0)
    assert (whole.left_s, whole.share(of=4, forks=2).left_s) == (0.0, 0.0)


def test_a_deadline_is_put_off_by_the_grace_and_not_beyond() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel, other = w.Channel(ours), w.Channel(theirs)
        over = time.monotonic() - 1
        with pytest.raises(TimeoutError):
            channel.receive(over)
        channel.grace = lambda: 30.0
        threading.Timer(0.05, lambda: other.send(w.VALUE, 1, b"late")).start()
        assert channel.receive(over) == (w.VALUE, 1, b"late")
        channel.grace = lambda: 1.0 + time.monotonic() - time.monotonic()  # spent by now
        with pytest.raises(TimeoutError):
            channel.receive(over - 0.5)
