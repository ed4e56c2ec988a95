"""The small world of arithmetic_intensity-choose: what a batch takes, and ways to choose one, right
and wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Workload = dict[str, Any]
Machine = dict[str, Any]
Batches = Any  # one batch or an array of them
Of = Callable[[Workload, Machine, Batches], Any]  # what each batch takes, needs or is worth


def weight_bytes(w: Workload) -> float:
    return float(w["n_params"] * w["bytes_per_param"])


def rows(m: Machine, B: Batches) -> Any:
    """The batch as the matrix unit sees it."""
    return -(-B // m["tile"]) * m["tile"]


def matmul_s(w: Workload, m: Machine, B: Batches) -> Any:
    return np.maximum(
        2.0 * w["n_params"] * rows(m, B) / m["flops_per_s"], weight_bytes(w) / m["bytes_per_s"]
    )


def cache_s(w: Workload, m: Machine, B: Batches) -> Any:
    return B * w["cache_bytes_per_sequence"] / m["bytes_per_s"]


def step_s(w: Workload, m: Machine, B: Batches) -> Any:
    return matmul_s(w, m, B) + cache_s(w, m, B)


def fits(w: Workload, m: Machine, B: Batches) -> Any:
    return weight_bytes(w) + B * w["cache_bytes_per_sequence"] <= m["memory_bytes"]


def throughput(w: Workload, m: Machine, B: Batches) -> Any:
    return B / step_s(w, m, B)


def chooser(
    time: Of = step_s, room: Of = fits, value: Of | None = None
) -> Callable[[Workload, Machine], int]:
    """The batch of the largest `value` among those that have `room` and `time`; with nothing
    replaced it is right."""

    def choose(workload: Workload, machine: Machine) -> int:
        every = np.arange(1, workload["max_batch"] + 1)
        allowed = every[
            room(workload, machine, every)
            & (time(workload, machine, every) <= workload["tpot_limit_s"])
        ]
        if not allowed.size:
            return 1
        worth = (
            value(workload, machine, allowed)
            if value
            else allowed / time(workload, machine, allowed)
        )
        return int(allowed[np.argmax(worth)])

    return choose


best = chooser()
largest_allowed = chooser(value=lambda w, m, B: B)
fills_memory = chooser(time=lambda w, m, B: 0.0, value=lambda w, m, B: B)
cache_time_left_out = chooser(time=matmul_s, value=lambda w, m, B: B / step_s(w, m, B))
room_left_out = chooser(room=lambda w, m, B: True)
tile_left_out = chooser(time=lambda w, m, B: step_s(w, {**m, "tile": 1}, B))
compute_left_out = chooser(
    time=lambda w, m, B: weight_bytes(w) / m["bytes_per_s"] + cache_s(w, m, B)
)
limit_left_out = chooser(time=lambda w, m, B: 0.0, value=throughput)
limit_for_the_batch = chooser(time=lambda w, m, B: B * step_s(w, m, 1), value=lambda w, m, B: B)


def max_batch_left_out(workload: Workload, machine: Machine) -> int:
    return best({**workload, "max_batch": 5000}, machine)


def last_batch_left_out(workload: Workload, machine: Machine) -> int:
    """Stops one before max_batch, as range does."""
    return best({**workload, "max_batch": max(1, workload["max_batch"] - 1)}, machine)


def whole_tiles(workload: Workload, machine: Machine) -> int:
    """The largest batch allowed, rounded down to whole tiles if there is one."""
    largest, tile = largest_allowed(workload, machine), int(machine["tile"])
    return largest // tile * tile or largest


def some_hundreds(workload: Workload, machine: Machine) -> int:
    return best({**workload, "max_batch": min(512, workload["max_batch"])}, machine)


def reserve(workload: Workload, machine: Machine) -> int:
    """Leaves a tenth of the memory free, which nobody asked for."""
    return best(workload, {**machine, "memory_bytes": 0.9 * machine["memory_bytes"]})


def everything_overlaps(workload: Workload, machine: Machine) -> int:
    """Reading the caches hides behind computing as well."""

    def time(w: Workload, m: Machine, B: Batches) -> Any:
        compute_s = 2.0 * w["n_params"] * rows(m, B) / m["flops_per_s"]
        return np.maximum(compute_s, weight_bytes(w) / m["bytes_per_s"] + cache_s(w, m, B))

    return chooser(time=time)(workload, machine)


def critical_batch(workload: Workload, machine: Machine) -> int:
    ridge = float(machine["flops_per_s"] / machine["bytes_per_s"])
    return max(1, min(int(ridge * workload["bytes_per_param"] / 2), int(workload["max_batch"])))


def single(workload: Workload, machine: Machine) -> int:
    return 1


def power_of_two(workload: Workload, machine: Machine) -> int:
    """The largest power of two not above the best batch."""
    return int(2 ** (best(workload, machine).bit_length() - 1))
