"""arithmetic_intensity-choose: a batch for a workload and a machine: the most tokens per second
under a limit on the step."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from twophase.checks.answer import Answer
from twophase.checks.arithmetic_intensity import _batches as b
from twophase.checks.arithmetic_intensity._batches import (
    Machine,
    Workload,
    best,
    fits,
    step_s,
    throughput,
    weight_bytes,
)
from twophase.checks.compare import EXACT, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

NEAR = 0.95
SLACK = 1 + 1e-6  # sums in another order, perhaps in float32


def observe(answer: Answer, case: Case) -> dict[str, str]:
    """Whether the batch is one, fits, is in time, and gives at least 95 % of the best
    throughput."""
    w, m = case.args
    batch = plain(answer.call("choose", w, m))
    batch = int(batch) if isinstance(batch, float) and batch.is_integer() else batch
    if type(batch) is not int or not 1 <= batch <= w["max_batch"]:
        said = f"must be a whole number from 1 to {w['max_batch']}, and is {batch!r}"[:120]
        return {"the batch": said, "memory": "", "step": "", "throughput": ""}
    need, took, limit = (
        weight_bytes(w) + batch * w["cache_bytes_per_sequence"],
        step_s(w, m, batch),
        w["tpot_limit_s"],
    )
    share = throughput(w, m, batch) / throughput(w, m, best(w, m))
    room = m["memory_bytes"]
    return {
        "the batch": "valid",
        "memory": (
            "fits" if need <= room * SLACK else f"needs {need / 1e9:.2f} GB of {room / 1e9:.2f} GB"
        ),
        "step": (
            "in time"
            if took <= limit * SLACK
            else f"takes {took * 1e3:.3f} ms of {limit * 1e3:.3f} ms"
        ),
        "throughput": (
            "within 5 % of the best" if share * SLACK >= NEAR else f"{share:.4f} of the best"
        ),
    }


def _draw(rng: random.Random) -> tuple[Workload, Machine]:
    machine = {
        "flops_per_s": round(rng.uniform(150, 1000)) * 1e12,
        "bytes_per_s": round(rng.uniform(0.8, 5.0), 2) * 1e12,
        "memory_bytes": rng.randrange(24, 192) * 10**9,
        "tile": rng.choice((1, 64, 128, 256)),
    }
    workload = {
        "n_params": rng.randrange(3, 30) * 10**9,
        "bytes_per_param": rng.choice((1, 2)),
        "cache_bytes_per_sequence": rng.randrange(1, 250) * 10**6,
        "max_batch": rng.randrange(200, 1500),
        "tpot_limit_s": round(rng.uniform(0.008, 0.080), 4),
    }
    return workload, machine


def _fair(w: Workload, m: Machine) -> bool:
    """Some batch is allowed, and no decision hangs on the last digit of a sum."""
    if not fits(w, m, 1) or step_s(w, m, 1) > w["tpot_limit_s"]:
        return False
    every = np.arange(1, w["max_batch"] + 1)
    return bool(np.all(np.abs(step_s(w, m, every) / w["tpot_limit_s"] - 1) > 1e-5))


def _trap(
    rng: random.Random, name: str, wrong: Callable[[Workload, Machine], int], public: bool = True
) -> Case:
    """A fresh workload on which this wrong answer fails."""
    while True:
        w, m = _draw(rng)
        if not _fair(w, m):
            continue
        B = wrong(w, m)
        allowed = w["max_batch"] >= B and fits(w, m, B) and step_s(w, m, B) <= w["tpot_limit_s"]
        if not allowed or throughput(w, m, B) < 0.93 * throughput(w, m, best(w, m)):
            return Case(name, (w, m), public=public)


TRAPS: dict[str, Callable[[Workload, Machine], int]] = {
    "one sequence is not enough": b.single,
    "the critical batch is not the answer": b.critical_batch,
    "more fits than is in time": b.fills_memory,
    "caches take time": b.cache_time_left_out,
    "memory is the limit": b.room_left_out,
    "tiles matter": b.tile_left_out,
    "computing takes time": b.compute_left_out,
    "the largest batch allowed is not the best": b.largest_allowed,
    "caches are read after the products": b.everything_overlaps,
    "not a power of two": b.power_of_two,
    "the limit is for a step": b.limit_for_the_batch,
    "a step has a limit": b.limit_left_out,
    "no more than max_batch": b.max_batch_left_out,
    "a partial tile may cost nothing": b.whole_tiles,
    "some hundreds are not the end": b.some_hundreds,
    "all of the memory may be used": b.reserve,
}


def cases(rng: random.Random) -> list[Case]:
    """Small ones by hand, then fresh workloads, each of which one wrong answer does not survive."""
    by_hand = {
        "n_params": 100,
        "bytes_per_param": 2,
        "cache_bytes_per_sequence": 10,
        "max_batch": 40,
        "tpot_limit_s": 6.5,
    }
    machine = {"flops_per_s": 1000.0, "bytes_per_s": 100.0, "memory_bytes": 1000, "tile": 1}
    return [
        Case("100 parameters, tile 1", (by_hand, machine)),
        Case("the same with tile 8", (by_hand, {**machine, "tile": 8})),
        Case(
            "the same with tile 8, at most 4 s",
            ({**by_hand, "tpot_limit_s": 4.0}, {**machine, "tile": 8}),
        ),
        Case("the same with tile 1, at most 3 sequences", ({**by_hand, "max_batch": 3}, machine)),
        *(
            _trap(rng, name, wrong, public=i % 3 != 2)
            for i, (name, wrong) in enumerate(TRAPS.items())
        ),
    ]


wrong.add(
    "single",
    b.single,
    "plausible",
    "A batch of one has the shortest step and wastes it: reading the weights then serves one"
    " token.",
)
wrong.add(
    "critical_batch",
    b.critical_batch,
    "“run at the critical batch”",
    "You took the critical batch. It says where computing overtakes reading the weights, not what"
    " fits or is in time.",
)
wrong.add(
    "fills_memory",
    b.fills_memory,
    "plausible",
    "You filled the memory: the step must also end within tpot_limit_s, and more is not always"
    " faster.",
)
wrong.add(
    "cache_time_left_out",
    b.cache_time_left_out,
    "step times from the weights alone",
    "You left out reading the caches, which every step does: B · cache_bytes_per_sequence bytes.",
)
wrong.add(
    "room_left_out",
    b.room_left_out,
    "plausible",
    "Weights and caches must fit in memory_bytes together.",
)
wrong.add(
    "tile_left_out",
    b.tile_left_out,
    "rooflines without tiles",
    "The machine computes whole tiles: a batch of tile + 1 costs as much as 2 · tile.",
)
wrong.add(
    "compute_left_out",
    b.compute_left_out,
    "“decode is always memory bound”",
    "You left out computing: above the critical batch it takes longer than reading the weights.",
)
wrong.add(
    "largest_allowed",
    b.largest_allowed,
    "plausible",
    "You took the largest batch allowed. Just past a multiple of tile the step takes longer and"
    " gives hardly more tokens.",
)
wrong.add(
    "everything_overlaps",
    b.everything_overlaps,
    "step times as one max(compute, memory)",
    "You let the caches be read while the products are computed. Here attention comes after them:"
    " its time is added.",
)
wrong.add(
    "power_of_two",
    b.power_of_two,
    "plausible",
    "You rounded down to a power of two: up to half of the throughput is lost.",
)
wrong.add(
    "limit_left_out",
    b.limit_left_out,
    "plausible",
    "You never look at tpot_limit_s: the step must not take longer.",
)
wrong.add(
    "max_batch_left_out",
    b.max_batch_left_out,
    "plausible",
    "No more than max_batch sequences are there.",
)
wrong.add(
    "last_batch_left_out",
    b.last_batch_left_out,
    "range without its end",
    "You never try max_batch itself: range(1, n) ends at n − 1.",
)
wrong.add(
    "whole_tiles",
    b.whole_tiles,
    "“batch sizes should be multiples of the tile”",
    "You round down to whole tiles. While reading the weights takes longer than computing, a"
    " partial tile costs nothing.",
)
wrong.add(
    "limit_for_the_batch",
    b.limit_for_the_batch,
    "plausible",
    "You multiplied the step of one sequence by B: a step serves the whole batch at once.",
)


EXERCISE = Exercise(
    id="arithmetic_intensity-choose",
    title="A batch for a machine",
    kind="judgement",
    points=4,
    minutes=20,
    entries=("choose",),
    cases=cases,
    observe=observe,
    reference=best,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Write step_s(B) from the three terms of the task, and a test whether B is allowed.",
        (
            "Rows computed: ceil(B / tile) · tile. Products: max(2 · n_params · rows / flops_per_s,"
            " weights / bytes_per_s). Add the caches."
        ),
        (
            "There are at most some thousand batches: try them all, keep the largest B / step_s(B)"
            " among those allowed."
        ),
    ),
    recall=(
        "Why may a smaller batch give more tokens per second than a larger one?",
        (
            "Matrix units compute whole tiles: a batch just above a multiple of the tile pays for"
            " rows that nobody uses."
        ),
    ),
    withholds=(),
)
