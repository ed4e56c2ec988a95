"""arithmetic_intensity-choose: a batch for a workload and a machine: the most tokens per second under a limit on the step."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise, Misconception

Workload = dict[str, Any]
Machine = dict[str, Any]
Time = Callable[[Workload, Machine, int], float]
Room = Callable[[Workload, Machine, int], bool]
NEAR = 0.95
SLACK = 1 + 1e-9  # sums in another order


def weight_bytes(w: Workload) -> float:
    return float(w["n_params"] * w["bytes_per_param"])


def rows(m: Machine, B: int) -> int:
    """The batch as the matrix unit sees it."""
    tile = int(m["tile"])
    return -(-B // tile) * tile


def matmul_s(w: Workload, m: Machine, B: int) -> float:
    return float(max(2 * w["n_params"] * rows(m, B) / m["flops_per_s"], weight_bytes(w) / m["bytes_per_s"]))


def cache_s(w: Workload, m: Machine, B: int) -> float:
    return float(B * w["cache_bytes_per_sequence"] / m["bytes_per_s"])


def step_s(w: Workload, m: Machine, B: int) -> float:
    return matmul_s(w, m, B) + cache_s(w, m, B)


def fits(w: Workload, m: Machine, B: int) -> bool:
    return bool(weight_bytes(w) + B * w["cache_bytes_per_sequence"] <= m["memory_bytes"])


def throughput(w: Workload, m: Machine, B: int) -> float:
    return B / step_s(w, m, B)


def _chooser(time: Time = step_s, room: Room = fits, value: Time | None = None) -> Callable[[Workload, Machine], int]:
    """The batch of the largest `value` among those that have `room` and `time`; with nothing replaced it is right."""

    def choose(workload: Workload, machine: Machine) -> int:
        allowed = [
            B
            for B in range(1, workload["max_batch"] + 1)
            if room(workload, machine, B) and time(workload, machine, B) <= workload["tpot_limit_s"]
        ]
        key = value or (lambda w, m, B: B / time(w, m, B))
        return max(allowed, key=lambda B: key(workload, machine, B), default=1)

    return choose


best = _chooser()
largest_allowed = _chooser(value=lambda w, m, B: B)
fills_memory = _chooser(time=lambda w, m, B: 0.0, value=lambda w, m, B: B)
cache_time_left_out = _chooser(time=matmul_s, value=lambda w, m, B: B / step_s(w, m, B))
room_left_out = _chooser(room=lambda w, m, B: True)
tile_left_out = _chooser(time=lambda w, m, B: step_s(w, {**m, "tile": 1}, B))
compute_left_out = _chooser(time=lambda w, m, B: weight_bytes(w) / m["bytes_per_s"] + cache_s(w, m, B))
limit_for_the_batch = _chooser(time=lambda w, m, B: B * step_s(w, m, 1), value=lambda w, m, B: B)


def everything_overlaps(workload: Workload, machine: Machine) -> int:
    """Reading the caches hides behind computing as well."""

    def time(w: Workload, m: Machine, B: int) -> float:
        compute_s = float(2 * w["n_params"] * rows(m, B) / m["flops_per_s"])
        return max(compute_s, weight_bytes(w) / float(m["bytes_per_s"]) + cache_s(w, m, B))

    return _chooser(time=time)(workload, machine)


def critical_batch(workload: Workload, machine: Machine) -> int:
    ridge = float(machine["flops_per_s"] / machine["bytes_per_s"])
    return max(1, min(int(ridge * workload["bytes_per_param"] / 2), int(workload["max_batch"])))


def single(workload: Workload, machine: Machine) -> int:
    return 1


def power_of_two(workload: Workload, machine: Machine) -> int:
    """The largest power of two not above the best batch."""
    return int(2 ** (best(workload, machine).bit_length() - 1))


def observe(answer: Answer, case: Case) -> dict[str, str]:
    """Whether the batch is one, fits, is in time, and gives at least 95 % of the best throughput."""
    w, m = case.args
    batch = answer.call("choose", w, m)
    batch = batch.item() if getattr(batch, "shape", None) == () else batch
    if type(batch) is not int or not 1 <= batch <= w["max_batch"]:
        return {"the batch": f"must be a whole number from 1 to {w['max_batch']}, and is {batch!r}"[:120]}
    need, took, limit = weight_bytes(w) + batch * w["cache_bytes_per_sequence"], step_s(w, m, batch), w["tpot_limit_s"]
    share = throughput(w, m, batch) / throughput(w, m, best(w, m))
    room = m["memory_bytes"]
    return {
        "the batch": "",
        "memory": "fits" if need <= room * SLACK else f"needs {need / 1e9:.2f} GB of {room / 1e9:.2f} GB",
        "step": "in time" if took <= limit * SLACK else f"takes {took * 1e3:.3f} ms of {limit * 1e3:.3f} ms",
        "throughput": "within 5 % of the best" if share * SLACK >= NEAR else f"{share:.4f} of the best",
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
    return all(abs(step_s(w, m, B) / w["tpot_limit_s"] - 1) > 1e-6 for B in range(1, w["max_batch"] + 1))


def _trap(rng: random.Random, name: str, wrong: Callable[[Workload, Machine], int], public: bool = True) -> Case:
    """A fresh workload on which this wrong answer fails."""
    while True:
        w, m = _draw(rng)
        if not _fair(w, m):
            continue
        B = wrong(w, m)
        allowed = fits(w, m, B) and step_s(w, m, B) <= w["tpot_limit_s"]
        if not allowed or throughput(w, m, B) < 0.93 * throughput(w, m, best(w, m)):
            return Case(name, (w, m), public=public)


TRAPS: dict[str, Callable[[Workload, Machine], int]] = {
    "one sequence is not enough": single,
    "the critical batch is not the answer": critical_batch,
    "more fits than is in time": fills_memory,
    "caches take time": cache_time_left_out,
    "memory is the limit": room_left_out,
    "tiles matter": tile_left_out,
    "computing takes time": compute_left_out,
    "the largest batch allowed is not the best": largest_allowed,
    "caches are read after the products": everything_overlaps,
    "not a power of two": power_of_two,
    "the limit is for a step": limit_for_the_batch,
}


def cases(rng: random.Random) -> list[Case]:
    """Two small ones by hand, then fresh workloads, each of which one wrong answer does not survive."""
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
        *(_trap(rng, name, wrong, public=i % 3 != 2) for i, (name, wrong) in enumerate(TRAPS.items())),
    ]


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
    misconceptions=(
        Misconception(
            "single",
            single,
            "plausible",
            "A batch of one has the shortest step and wastes it: reading the weights then serves one token.",
        ),
        Misconception(
            "critical_batch",
            critical_batch,
            "“run at the critical batch”",
            "You took the critical batch. It says where computing overtakes reading the weights, not what fits or is in time.",
        ),
        Misconception(
            "fills_memory",
            fills_memory,
            "plausible",
            "You filled the memory: the step must also end within tpot_limit_s, and more is not always faster.",
        ),
        Misconception(
            "cache_time_left_out",
            cache_time_left_out,
            "step times from the weights alone",
            "You left out reading the caches, which every step does: B · cache_bytes_per_sequence bytes.",
        ),
        Misconception(
            "room_left_out",
            room_left_out,
            "plausible",
            "Weights and caches must fit in memory_bytes together.",
        ),
        Misconception(
            "tile_left_out",
            tile_left_out,
            "rooflines without tiles",
            "The machine computes whole tiles: a batch of tile + 1 costs as much as 2 · tile.",
        ),
        Misconception(
            "compute_left_out",
            compute_left_out,
            "“decode is always memory bound”",
            "You left out computing: above the critical batch it takes longer than reading the weights.",
        ),
        Misconception(
            "largest_allowed",
            largest_allowed,
            "plausible",
            "You took the largest batch allowed. Just past a multiple of tile the step takes longer and gives hardly more tokens.",
        ),
        Misconception(
            "everything_overlaps",
            everything_overlaps,
            "step times as one max(compute, memory)",
            "You let the caches be read while the products are computed. Here attention comes after them: its time is added.",
        ),
        Misconception(
            "power_of_two",
            power_of_two,
            "plausible",
            "You rounded down to a power of two: up to half of the throughput is lost.",
        ),
        Misconception(
            "limit_for_the_batch",
            limit_for_the_batch,
            "plausible",
            "You multiplied the step of one sequence by B: a step serves the whole batch at once.",
        ),
    ),
    hints=(
        "Write step_s(B) from the three terms of the task, and a test whether B is allowed.",
        "Rows computed: ceil(B / tile) · tile. Products: max(2 · n_params · rows / flops_per_s, weights / bytes_per_s). Add the caches.",
        "There are at most some thousand batches: try them all, keep the largest B / step_s(B) among those allowed.",
    ),
    recall=(
        "Why may a smaller batch give more tokens per second than a larger one?",
        "Matrix units compute whole tiles: a batch just above a multiple of the tile pays for rows that nobody uses.",
    ),
    withholds=(),
)
