"""Ranks as processes: they say what simulated ranks say; when one is lost, all end with its reason,
in seconds, and nothing is left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from patience import PATIENCE_S

from twophase import models
from twophase.kernels.collectives import (
    CollectiveError,
    Comm,
    RankError,
    ring_all_reduce,
    simulate,
)
from twophase.measure.collectives import waited_s
from twophase.measure.events import EventLog
from twophase.models.generate import complete, decode, encode
from twophase.parallel import generate
from twophase.parallel.run import run_ranks
from twophase.parallel.tensor import tensor_parallel
from twophase.parallel.weights import CourseFile


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Any:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    left = [c for c in psutil.Process().children(recursive=True) if c.pid not in before]
    assert not left


def everything(comm: Comm, factor: float) -> list[torch.Tensor]:
    """Each thing that a Comm can do, with whole numbers, of which every sum is exact."""
    x = factor * torch.arange(15.0).view(5, 3) + comm.rank
    pair = comm.split([[1, 0], [2]], "X")
    comm.send(x[:, :2].bfloat16(), (comm.rank + 1) % 3)
    comm.send(torch.zeros(0, 4, dtype=torch.int64), (comm.rank + 1) % 3)
    letters = [comm.receive((comm.rank - 1) % 3) for _ in range(2)]
    return [
        *letters,
        comm.all_reduce(x),
        ring_all_reduce(comm, x),
        comm.all_gather(x, 1),
        comm.all_gather(x[: comm.rank + 1].T, -1, [1, 2, 3]),
        comm.reduce_scatter(x, 0),
        comm.reduce_scatter(x.T, -1),
        *comm.all_to_all([torch.full((comm.rank, to, 2), 7 * factor) for to in range(3)]),
        comm.broadcast(x.T, 2),
        pair.all_reduce(x),
        pair.broadcast(x, 0),
    ]


def test_processes_get_what_simulated_ranks_get():
    run, expected = run_ranks(3, everything, 2.0), simulate(3, everything, 2.0)
    for found, right in zip(run, expected, strict=True):
        assert [f.dtype for f in found] == [r.dtype for r in right]
        assert all(torch.equal(f, r) for f, r in zip(found, right, strict=True))


def test_a_sharded_model_on_processes_says_what_one_process_says_and_traces_the_same_bytes():
    def rank(comm: Comm) -> list[int]:
        return complete(tensor_parallel(CourseFile("gqa"), comm), encode("def f("), 3).tokens

    run = run_ranks(2, rank)
    assert run == [complete(models.load("gqa"), encode("def f("), 3).tokens] * 2
    assert len(run.log) == 2 * 3 * (2 * 4 + 2)
    assert EventLog.from_lines(run.log.to_lines()).to_lines() == run.log.to_lines()


LOST = {
    "killed": (lambda: os.kill(os.getpid(), signal.SIGKILL), "rank 1: was killed by signal 9"),
    "ended": (lambda: os._exit(3), "rank 1: ended with exit status 3"),
    "raised": (lambda: {}["weights"], "rank 1: KeyError: 'weights'"),
    "left": (lambda: sys.exit("enough"), "rank 1: SystemExit: enough"),
}


@pytest.mark.parametrize("how", LOST)
def test_when_a_rank_is_lost_all_end_with_its_reason_in_seconds(how):
    lose, says = LOST[how]

    def rank(comm: Comm) -> None:
        comm.barrier()
        if comm.rank == 1:
            lose()
        while True:
            comm.all_reduce(torch.ones(1000))

    with pytest.raises(RankError, match=says) as told:
        run_ranks(3, rank, patience_s=10 * PATIENCE_S)  # noticed by the process, not by the clock
    assert told.value.rank == 1


def test_ranks_that_do_not_meet_end_when_their_patience_does_and_say_who_had_returned():
    def rank(comm: Comm) -> None:
        if comm.rank == 1:
            comm.all_reduce(torch.ones(3))

    with pytest.raises(
        CollectiveError, match=r"lost the others in all_reduce.*Rank 0 had returned"
    ):
        run_ranks(2, rank, patience_s=1)


def test_a_rank_that_stands_still_is_named_when_the_others_lose_patience():
    def rank(comm: Comm) -> None:
        comm.barrier()
        if comm.rank == 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        comm.all_reduce(torch.ones(3))

    with pytest.raises(CollectiveError, match=r"Rank 2 is behind: the ranks had begun \[2, 2, 1\]"):
        run_ranks(3, rank, patience_s=2)


@pytest.mark.more
def test_ranks_end_with_the_process_that_started_them():
    code = (
        "import os, time\nfrom twophase.parallel.run import run_ranks\n"
        "def rank(comm):\n    print(os.getpid(), flush=True)\n    time.sleep(1000)\n"
        "run_ranks(2, rank)"
    )
    started = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    ranks = [psutil.Process(int(started.stdout.readline())) for _ in range(2)]
    started.kill()
    _, alive = psutil.wait_procs(ranks, timeout=PATIENCE_S)
    assert not alive
    started.wait()


def test_ranks_that_never_end_are_ended():
    def rank(comm: Comm) -> None:
        while comm.rank:
            time.sleep(1)

    with pytest.raises(CollectiveError, match="were given 1 s, and of rank 1 there is no result"):
        run_ranks(2, rank, timeout_s=1)


def test_in_every_collective_the_last_to_come_waits_for_nobody():
    def rank(comm: Comm) -> None:
        for _ in range(3):
            comm.all_reduce(torch.ones(10))

    waits = [waited for _, waited in waited_s(run_ranks(2, rank).log)]
    meetings = list(zip(waits[::2], waits[1::2], strict=True))
    assert len(meetings) == 3
    assert all(min(meeting) == 0 <= max(meeting) for meeting in meetings)


def test_a_report_names_the_rank_that_came_late_and_what_the_others_waited_in():
    log = EventLog(0.0)
    for number, late in enumerate([0.25, 0.5]):
        for rank in range(3):
            start = number + (late if rank == 1 else 0.0)
            log._add(
                "collective",
                number + 0.9,
                {"rank": rank, "op": "all_reduce", "axis": "", "group": [0, 1, 2], "peer": None}
                | {"n_bytes": 8, "sent_bytes": 16, "step": 0, "phase": "decode", "layer": 0}
                | {"start_s": start, "seconds": number + 0.9 - start},
            )
    assert generate.report(log).splitlines() == [
        "decode: all_reduce 6 times, 96 B sent by all ranks",
        "waited for others in all_reduce: rank 0 750 ms, rank 1 0 s, rank 2 750 ms",
        "rank 1 was waited for most: 1.5 s of all ranks",
    ]


@pytest.mark.parametrize("n", [0, True, 1.0])
def test_there_is_at_least_one_rank(n):
    with pytest.raises(ValueError, match="at least 1 rank"):
        run_ranks(n, len)


def test_the_program_generates_on_ranks_of_its_own(capsys, tmp_path):
    trace = tmp_path / "trace.jsonl"
    asked = ["--ranks", "2", "--prompt", "def read(path):", "--tokens", "4", "--trace", str(trace)]
    assert generate.main(asked) == 0
    printed = capsys.readouterr()
    made = complete(models.load("gqa"), encode("def read(path):"), 4).tokens
    assert printed.out == f"def read(path):{decode(made)}\n"
    assert "decode: all_reduce 54 times" in printed.err
    assert "waited for others in all_reduce: rank 0" in printed.err
    assert len(EventLog.from_lines(trace.read_text())) == 2 * 4 * 10


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ([], "start it with torchrun --nproc-per-node N"),
        (["--ranks", "0"], "at least 1 rank"),
        (["--ranks", "5"], "4 query heads in 2 groups cannot be divided over 5 ranks"),
        (["--ranks", "2", "--checkpoint", "nope"], "no checkpoint of that name; known: cross"),
        (["--ranks", "2", "--tokens", "0"], "at least 1 new token"),
        (["--ranks", "2", "--trace", "/no/such/file"], "there is no folder /no/such"),
        (["--backend", "nccl"], "torch finds no CUDA device"),
    ],
)
def test_the_program_refuses_in_a_sentence(more, says, capsys, monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if "nccl" in more and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert generate.main(["--prompt", "x", *more]) == 2
    printed = capsys.readouterr()
    assert says in printed.err
    assert len(printed.err.splitlines()) == 1


@pytest.mark.more
def test_torchrun_says_what_one_process_says(tmp_path):
    torchrun = Path(sys.executable).with_name("torchrun")
    asked = ["--nproc-per-node", "4", "-m", "twophase.parallel.generate", "--prompt", "import"]
    done = subprocess.run(
        [str(torchrun), *asked, "--tokens", "12"],
        capture_output=True, text=True, timeout=PATIENCE_S, cwd=tmp_path,
    )  # fmt: skip
    made = complete(models.load("gqa"), encode("import"), 12).tokens
    assert done.stdout == f"import{decode(made)}\n", done.stderr


@pytest.mark.more
@pytest.mark.parametrize("seed", range(12))
def test_a_rank_killed_at_a_random_moment_ends_all(seed):
    chance = random.Random(seed)
    n = chance.choice([2, 3, 4, 8])
    victim, after_s = chance.randrange(n), chance.uniform(0, 0.6)

    def rank(comm: Comm) -> None:
        if comm.rank == victim:
            pid = os.getpid()
            if os.fork() == 0:
                time.sleep(after_s)
                os.kill(pid, signal.SIGKILL)
                os._exit(0)
        for i in range(10**6):
            comm.all_reduce(torch.ones(1 + 997 * i % 5000))
            comm.all_to_all([torch.ones(i % 7)] * n)

    with pytest.raises(RankError, match=f"rank {victim}: was killed by signal 9"):
        run_ranks(n, rank)
