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

import pytest

from twophase.grading.waited import MOST_S, Waited
from twophase.protocol import wire as w

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
        until = time.monotonic() + 30
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
    monkeypatch.setattr("twophase.grading.waited._waited_ns", lambda fd: 0)
    waited.begin()
    assert waited.grace_s() == 0
    monkeypatch.setattr("twophase.grading.waited._waited_ns", lambda fd: 10**15)
    assert waited.grace_s() in (0, MOST_S)  # 0: no file to ask
    waited.close()
    assert waited.grace_s() == 0


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
