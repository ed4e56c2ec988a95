"""Ways to choose a deployment for latency_throughput-deployment: the cheapest one, and what people
take for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from twophase.checks.latency_throughput._serving import (
    Machine,
    Workload,
    fits,
    price,
    step_s,
    used_bytes,
)

Choice = dict[str, Any]
Fits = Callable[[Workload, Machine, int, str, int], bool]
Value = Callable[[Workload, Machine, int, str, int], float]


def _largest(good: Callable[[int], bool], limit: int) -> int:
    """The largest batch up to `limit` that is good, if all below it are; 0 if there is none."""
    low, high = 0, limit + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if good(middle) else (low, middle)
    return low


def _candidates(
    w: Workload, machines: list[Machine], room: Fits, time: Value
) -> Iterator[tuple[Machine, int, str, int]]:
    """For every machine, number and format the largest batch allowed, beside which no smaller one
    is cheaper."""
    for m in machines:
        for n in range(1, m["max_chips"] + 1):
            for fmt in w["formats"]:
                batch = _largest(
                    lambda b, m=m, n=n, fmt=fmt: (
                        room(w, m, n, fmt, b) and time(w, m, n, fmt, b) <= w["tpot_limit_s"]
                    ),  # type: ignore[misc]
                    w["max_batch"],
                )
                if batch:
                    yield m, n, fmt, batch


def chooser(room: Fits = fits, time: Value = step_s, value: Value = price) -> Callable[..., Choice]:
    """The least `value` among what has `room` and `time`; with nothing replaced it is the cheapest
    choice."""

    def choose(workload: Workload, machines: list[Machine]) -> Choice:
        found = list(_candidates(workload, machines, room, time))
        return _named(min(found, key=lambda c: value(workload, *c)))

    return choose


def _named(candidate: tuple[Machine, int, str, int]) -> Choice:
    m, n, fmt, batch = candidate
    return {"machine": m["name"], "n_chips": n, "format": fmt, "batch": batch}


best = chooser()


def _always(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> bool:
    return True


def _instant(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> float:
    return 0.0


def _all_of_memory(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> bool:
    return bool(used_bytes(w, fmt, batch) <= n * m["memory_bytes"])


def _weights_only(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> float:
    return step_s({**w, "context": 0}, m, n, fmt, batch)


def _no_sync(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> float:
    return step_s(w, {**m, "sync_s": 0.0}, n, fmt, batch)


def _no_sync_price(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> float:
    return price(w, {**m, "sync_s": 0.0}, n, fmt, batch)


def _no_compute(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> float:
    return step_s(w, {**m, "flops_per_s": 1e30}, n, fmt, batch)


def _negative_throughput(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> float:
    return -batch / step_s(w, m, n, fmt, batch)


def _per_hour_and_sequence(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> float:
    return float(m["price_per_hour"] * n / batch)


def _sync_of_every_chip(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> float:
    return step_s(w, m, n, fmt, batch) + float(m["sync_s"])


def _price_with_sync_of_every_chip(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> float:
    return float(m["price_per_hour"] * n / batch) * _sync_of_every_chip(w, m, n, fmt, batch)


def _four_fifths(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> bool:
    return bool(used_bytes(w, fmt, batch) <= 0.8 * n * m["memory_bytes"])


def _per_hour(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> float:
    return float(m["price_per_hour"] * n)


def one_chip(workload: Workload, machines: list[Machine]) -> Choice:
    return best(workload, [{**m, "max_chips": 1} for m in machines])


def fewest_chips(workload: Workload, machines: list[Machine]) -> Choice:
    """Stops at the first number of chips on which anything is possible."""
    for n in range(1, max(m["max_chips"] for m in machines) + 1):
        try:
            return best(workload, [{**m, "max_chips": min(n, m["max_chips"])} for m in machines])
        except ValueError:  # nothing fits, or nothing is fast enough
            continue
    raise ValueError("no choice")


def chips_in_powers_of_two(workload: Workload, machines: list[Machine]) -> Choice:
    found = (c for c in _candidates(workload, machines, fits, step_s) if c[1] & (c[1] - 1) == 0)
    return _named(min(found, key=lambda c: price(workload, *c)))


def last_number_left_out(workload: Workload, machines: list[Machine]) -> Choice:
    """Stops one before max_chips, as range does."""
    return best(workload, [{**m, "max_chips": m["max_chips"] - 1} for m in machines])


def last_batch_left_out(workload: Workload, machines: list[Machine]) -> Choice:
    """The same with max_batch."""
    return best({**workload, "max_batch": workload["max_batch"] - 1}, machines)


def six_chips_at_most(workload: Workload, machines: list[Machine]) -> Choice:
    return best(workload, [{**m, "max_chips": min(6, m["max_chips"])} for m in machines])


def some_hundreds(workload: Workload, machines: list[Machine]) -> Choice:
    return best({**workload, "max_batch": min(512, workload["max_batch"])}, machines)


def max_batch_left_out(workload: Workload, machines: list[Machine]) -> Choice:
    return best({**workload, "max_batch": 100_000}, machines)


def smallest_batch(workload: Workload, machines: list[Machine]) -> Choice:
    return best({**workload, "max_batch": 1}, machines)


def forbidden_format(workload: Workload, machines: list[Machine]) -> Choice:
    return best({**workload, "formats": ["bf16", "int8"]}, machines)


WRONG: dict[str, tuple[Callable[..., Choice], dict[str, Any]]] = {
    "any_step_time": (chooser(time=_instant), {}),
    "any_memory": (chooser(room=_always), {"context": 6000}),
    "no_reserve": (chooser(room=_all_of_memory), {"context": 6000, "tpot_limit_s": 0.1}),
    "fastest_step": (chooser(value=step_s), {}),
    "most_tokens": (chooser(value=_negative_throughput), {}),
    "cheapest_hour": (chooser(value=_per_hour), {}),
    "one_chip": (one_chip, {"tpot_limit_s": 0.02}),
    "smallest_batch": (smallest_batch, {}),
    "sync_left_out": (chooser(time=_no_sync, value=_no_sync_price), {"tpot_limit_s": 0.012}),
    "cache_left_out": (chooser(time=_weights_only), {}),
    "compute_left_out": (
        chooser(time=_no_compute),
        {"context": 300, "max_batch": 4000, "tpot_limit_s": 0.02},
    ),
    "forbidden_format": (forbidden_format, {"formats": ["bf16"]}),
    "per_hour_and_sequence": (chooser(value=_per_hour_and_sequence), {}),
    "fewest_chips": (
        fewest_chips,
        {"n_params": 210 * 10**9, "formats": ["bf16"], "tpot_limit_s": 0.08},
    ),
    "chips_in_powers_of_two": (chips_in_powers_of_two, {"tpot_limit_s": 0.02}),
    "last_number_left_out": (last_number_left_out, {"tpot_limit_s": 0.02}),
    "max_batch_left_out": (max_batch_left_out, {}),
    "last_batch_left_out": (last_batch_left_out, {"max_batch": 3}),
}
# fresh workloads for what else goes wrong: too rare, or too near to right, for a name
TRAPS: dict[str, tuple[Callable[..., Choice], dict[str, Any]]] = {
    "six_chips_at_most": (
        six_chips_at_most,
        {"n_params": 120 * 10**9, "max_batch": 3000, "tpot_limit_s": 0.03, "formats": ["bf16"]},
    ),
    "some_hundreds": (some_hundreds, {"context": 1000, "max_batch": 3000}),
    "sync_of_every_chip": (
        chooser(time=_sync_of_every_chip, value=_price_with_sync_of_every_chip),
        {"tpot_limit_s": 0.012},
    ),
    "four_fifths_of_memory": (
        chooser(room=_four_fifths),
        {"formats": ["bf16"], "tpot_limit_s": 0.1},
    ),
}
