"""The check cell ends when an answer does not, says in which case and after how long, and leaves
the process as it was."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from hostile.course import EXERCISES, TOPIC, bytes_of
from nbclient import NotebookClient
from patience import PATIENCE_S

from twophase.checks import limit
from twophase.checks.judge import PATIENCE, Bench, Verdict
from twophase.checks.limit import LimitedAnswer, Overtime, limited, overtime_says
from twophase.protocol.waited import Waited

LIMIT_S = 0.2
LONG_S = 60.0  # nothing here may take this long
QUICK = replace(EXERCISES[f"{TOPIC}-bytes"], time_limit_s=LIMIT_S)
ID = "kv_cache-max_batch"


def judged(answer: Any, limit_s: float = LIMIT_S) -> Verdict:
    bench = Bench(replace(QUICK, time_limit_s=limit_s), 1)
    return bench.judge(LimitedAnswer({"bytes_of": answer}))


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    handler, timer = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    yield
    assert signal.getsignal(signal.SIGALRM) is handler
    # pytest's own limit goes on where it was
    assert bool(signal.getitimer(signal.ITIMER_REAL)[0]) == bool(timer[0])


def for_ever(*args: int) -> int:
    while True:
        pass


def sleeps(*args: int) -> int:
    time.sleep(LONG_S)
    return 0


def catches_exceptions(*args: int) -> int:
    while True:
        with contextlib.suppress(Exception):
            time.sleep(0.01)


def catches_everything_twice(*args: int) -> int:
    for _ in range(2):
        with contextlib.suppress(BaseException):  # as a bare `except:` does
            for_ever()
    return for_ever()


@pytest.mark.parametrize("answer", [for_ever, sleeps, catches_exceptions, catches_everything_twice])
def test_an_answer_that_does_not_end_is_stopped_and_the_case_is_named(answer: Any) -> None:
    seen = judged(answer)
    assert (seen.status, len(seen.outcomes)) == ("failed", 1)
    assert seen.outcomes[0].error == "timeout"
    assert re.sub(r" \(after .* count\)", "", seen.message) == (  # said of a busy machine
        "Case “one”: your answer did not end within the 0.2 s that a case has, and was stopped. Is"
        " there a loop that never ends?"
    )
    assert seen.outcomes[0].inputs == "bytes_of(1, 1)"


def test_of_a_case_that_is_not_shown_only_the_time_is_told() -> None:
    public = [c.args for c in Bench(QUICK, 1).cases if c.public]

    def slow_if_hidden(*args: int) -> int:
        return bytes_of(*args) if args in public else for_ever()

    seen = judged(slow_if_hidden)
    assert seen.message.startswith("In a case that is not shown: your answer did not end within")
    assert [bool(o.inputs) for o in seen.outcomes] == [False] * len(seen.outcomes)


def test_all_cases_together_have_a_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter(range(0, 1000, 2))  # each case takes 2 s of this clock
    monkeypatch.setattr(limit, "time", SimpleNamespace(monotonic=lambda: next(looks)))
    given: list[float] = []

    def instead(seconds: float, run: Any) -> Any:
        given.append(seconds)
        if seconds < 2.0:
            raise Overtime
        return run()

    monkeypatch.setattr(limit, "limited", instead)
    seen = judged(bytes_of, limit_s=2.0)
    assert given == [2.0] * PATIENCE + [0.1]
    assert "within the 6 s that all cases together have" in seen.message


def test_a_right_answer_is_right_and_what_it_returns_comes_back() -> None:
    assert judged(bytes_of).right
    assert limited(LONG_S, lambda: 7) == 7


def test_an_error_of_the_answer_passes_and_ctrl_c_too() -> None:
    def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)
        time.sleep(LONG_S)

    with pytest.raises(KeyboardInterrupt):
        limited(LONG_S, interrupted)
    with pytest.raises(ZeroDivisionError):
        limited(LONG_S, lambda: 1 // 0)


def test_a_timer_that_was_there_before_rings_in_its_time() -> None:
    rang: list[int] = []
    mine = signal.signal(signal.SIGALRM, lambda number, frame: rang.append(number))
    before = signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(Overtime):
            limited(LIMIT_S, for_ever)
        until = time.monotonic() + LONG_S
        while not rang and time.monotonic() < until:
            time.sleep(0.01)
        assert rang == [signal.SIGALRM]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, mine)
        signal.setitimer(signal.ITIMER_REAL, *before)


def test_time_in_which_it_waits_for_a_processor_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began = time.monotonic()
    # for a second it waits all the time, by the kernel's count
    monkeypatch.setattr(Waited, "grace_s", lambda self: min(1.0, time.monotonic() - began))
    with pytest.raises(Overtime):
        limited(LIMIT_S, for_ever)
    assert time.monotonic() - began >= 1.0 + LIMIT_S


def test_in_another_thread_there_is_no_limit_and_no_error() -> None:
    seen: list[Verdict] = []
    thread = threading.Thread(target=lambda: seen.append(judged(bytes_of)))
    thread.start()
    thread.join()
    assert seen[0].right


def test_an_answer_that_catches_the_limit_itself_is_told_of() -> None:
    """It cannot be stopped from here: so its own process does it, and what it said is read."""
    code = f"""
import sys
sys.path[:0] = {sys.path!r}
from twophase.checks import limit
limit.AGAIN_S = 0.01
said = []
limit.print = lambda text: said.append(text)
def catches_everything():
    while not said:
        try:
            while True:
                pass
        except:
            pass
    return said[0]
print(limit.limited(0.05, catches_everything))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert "Restart the kernel" in done.stdout, done.stderr


def test_in_a_real_kernel_the_cell_ends_and_the_kernel_goes_on(tmp_path: Path) -> None:
    nb = nbformat.v4.new_notebook()
    sources = (
        "from twophase.lab import check\nfrom dataclasses import replace\n"
        "from twophase.checks import registry\n"
        f'short = replace(registry.load("{ID}"), time_limit_s=0.5)\n'
        "registry.load = lambda exercise_id: short",
        "def max_batch(*args):\n    while True:\n        pass",
        f'check("{ID}")',
        "def max_batch(m, w, k, n):\n    return max(0, (m - w) // (k * n))",
        f'check("{ID}")',
    )
    nb.cells = [nbformat.v4.new_code_cell(s) for s in sources]
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(nb, allow_errors=True, timeout=PATIENCE_S, resources=place).execute()
    card, error = nb.cells[2].outputs
    said = card.data["text/plain"]
    assert error.ename == "CheckFailed"
    assert "did not end within the 0.5 s that a case has, and was stopped" in said
    assert "To see it yourself:\n    max_batch(" in said
    assert nb.cells[4].outputs[-1].data["text/plain"] == "Right. 2 of 2 points"


def test_who_waited_longer_than_the_limit_reads_why() -> None:
    said = overtime_says("10 s that a case has", took_s=54.2, limit_s=10)
    assert "within the 10 s that a case has, and was stopped (after 54 s on the clock: " in said
    assert said.endswith(" not count). Is there a loop that never ends?")
    assert "clock" not in overtime_says("10 s that a case has", took_s=19.9, limit_s=10)
