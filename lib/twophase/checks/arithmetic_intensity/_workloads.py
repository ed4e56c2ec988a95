"""Workloads and machines: the cases of arithmetic_intensity-choose."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from twophase.checks.arithmetic_intensity import _batches as b
from twophase.checks.arithmetic_intensity._batches import (
    Machine,
    Workload,
    best,
    fits,
    step_s,
    throughput,
)
from twophase.checks.exercise import Case

NEAR = 0.95  # of the best throughput is right
HALF_A_BYTE = {"n_params": 2**20, "bytes_per_param": 0.5, "cache_bytes_per_sequence": 2**19}
# a byte less than weights and four caches
SHORT = {"memory_bytes": 5 * 2**19 - 1, "bytes_per_s": 2.0**20, "flops_per_s": 2.0**24}
SIXTY_FOUR = {"bytes_per_s": 64.0}
# no number of seconds is so large that it may stand for "never"
PATIENT = {"n_params": 10**9, "cache_bytes_per_sequence": 10**8, "tpot_limit_s": 2.45e9}
BYTE_A_SECOND = {"bytes_per_s": 1.0, "flops_per_s": 10.0, "memory_bytes": 10**10}
HALF = {"memory_bytes": 90, "flops_per_s": 1e5}  # a byte for each weight would not fit
SLOW = {"tile": 8, "bytes_per_s": 10.0, "flops_per_s": 1e5}  # weights take longer than two tiles
THOUSANDFOLD = {"flops_per_s": 1e6, "bytes_per_s": 1e5}  # steps take milliseconds
THREE = {"tile": 8, "flops_per_s": 2400.0}  # three tiles take as long as the weights
FOUR = {"tile": 8, "flops_per_s": 3200.0}  # as long as four
REAL = {"n_params": 7 * 10**9, "cache_bytes_per_sequence": 5 * 10**8}
LAST_BYTE = {"flops_per_s": 1e14, "bytes_per_s": 1e12, "memory_bytes": 165 * 10**8}
PARTIAL = {"max_batch": 11, "tpot_limit_s": 100.0}
MANY = {
    "n_params": 10**6,
    "cache_bytes_per_sequence": 1,
    "max_batch": 6007,
    "tpot_limit_s": 1e6,
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


def _edges(workload: Workload, machine: Machine) -> list[Case]:
    """From the one that is counted by hand: just full and just in time, numbers that fp32 holds
    exactly, where one sequence more or fewer is no near miss; every limit at its last place."""

    def case(name: str, batch: int, w: Workload, m: Machine, far: tuple[int, ...] = ()) -> Case:
        """Promises that this batch is the best, and that no other is allowed within 5% of it: no
        other at all of a few, none of those in `far` of many."""
        w, m = {**workload, **w}, {**machine, **m}
        every = np.arange(1, w["max_batch"] + 1)
        allowed = every[fits(w, m, every) & (step_s(w, m, every) <= w["tpot_limit_s"])]
        rates = throughput(w, m, allowed)
        near = allowed[rates >= NEAR * rates.max()].tolist()
        assert near == [batch] if batch <= 20 else batch in near, (name, near)
        assert set(far) <= set(allowed.tolist()) - set(near), (name, near)
        return Case(name, (w, m))

    three = {"memory_bytes": 230}
    return [
        case("memory for exactly 3 sequences", 3, {}, three),
        # whoever keeps results by some of the numbers is wrong here
        case("the same with one parameter more", 2, {"n_params": 101}, three),
        case("the same with weights of 14 bits", 5, {"bytes_per_param": 1.75}, three),
        case("the same with larger caches", 2, {"cache_bytes_per_sequence": 12}, three),
        case("the same with little arithmetic", 1, {}, {**three, "flops_per_s": 50.0}),
        case("the same with slow memory", 1, {}, {**three, "bytes_per_s": 33.0}),
        case("a byte less than 4 sequences need", 3, {}, {"memory_bytes": 239}),
        case("a step of exactly 4 sequences", 4, {"tpot_limit_s": 3.75}, SIXTY_FOUR),
        case("4 sequences are 1 µs late", 3, {"tpot_limit_s": 0.002399}, THOUSANDFOLD),
        case(
            "4 sequences are half a millionth late", 3, {"tpot_limit_s": 3.75 - 2**-19}, SIXTY_FOUR
        ),
        case("a byte less than 4 sequences need, of 2.6 million", 3, HALF_A_BYTE, SHORT),
        case("a byte a second: a step takes decades", 4, PATIENT, BYTE_A_SECOND),
        case("one sequence, which just fits", 1, {}, {"memory_bytes": 210}),
        case("no more than one sequence", 1, {"max_batch": 1}, {"tile": 8}),
        case("at most 10 sequences, tile 8", 8, {"max_batch": 10}, {"tile": 8}),
        case("at most 15 sequences, tile 10", 10, {"max_batch": 15}, {"tile": 10}),
        case("at most 11 sequences, tile 8, slow memory", 11, PARTIAL, SLOW),
        case("at most 25 sequences, tile 8, slow memory", 24, {"max_batch": 25}, THREE, (16, 25)),
        case("at most 30 sequences, four tiles of 8", 30, {"max_batch": 30}, FOUR, (16, 24)),
        case("7 billion parameters, 16.5 GB of memory", 5, REAL, LAST_BYTE),
        case("weights of half a byte", 4, {"bytes_per_param": 0.5}, HALF),
        case("weights of 12 bits", 4, {"bytes_per_param": 1.5}, {"memory_bytes": 190}),
        case("6,007 sequences", 6007, MANY, {"flops_per_s": 1e9, "memory_bytes": 2_006_007}),
    ]


def cases(rng: random.Random) -> list[Case]:
    """Small ones by hand, then edges, then fresh workloads, each of which one wrong answer does not
    survive."""
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
        *_edges(by_hand, machine),
        *(
            _trap(rng, name, wrong, public=i % 3 != 2)
            for i, (name, wrong) in enumerate(TRAPS.items())
        ),
    ]
