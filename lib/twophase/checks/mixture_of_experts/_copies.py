"""Mixtures on slices of chips for mixture_of_experts-choose: what a number of copies of attention
takes, and the ways to choose one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Model = dict[str, Any]  # L, D, dense_params, expert_params, E, k, cache_bytes, bytes_per_param
Chip = dict[str, float]  # memory_bytes, bytes_per_s, link_bytes_per_s
Choice = tuple[int, float] | None  # copies and seconds; None if nothing fits
Choose = Callable[[Model, Chip, int, int], Choice]
ACTIVATION = 2  # bytes


def touched(m: Model, B: int) -> float:
    """Experts of a layer that B tokens touch on average."""
    return float(m["E"] * (1 - (1 - m["k"] / m["E"]) ** B))


def weights(m: Model, n: int, copies: int, experts: float) -> float:
    """Bytes on one chip, with so many experts of each layer."""
    held = copies * m["dense_params"] + experts * m["expert_params"]
    return float(held * m["bytes_per_param"] / n)


def stored(m: Model, B: int, n: int, copies: int) -> float:
    """Bytes that a chip must hold."""
    return float(weights(m, n, copies, m["E"]) + B * m["cache_bytes"] / n)


def read_s(m: Model, chip: Chip, B: int, n: int, copies: int) -> float:
    """Seconds to read what a step needs."""
    needed = weights(m, n, copies, touched(m, B)) + B * m["cache_bytes"] / n
    return float(needed / chip["bytes_per_s"])


def reduce_s(m: Model, chip: Chip, B: int, n: int, copies: int) -> float:
    """Seconds of two all-reduces a layer, in rings of the chips that share a copy."""
    group = n / copies
    per_layer = 2 * 2 * (group - 1) / group * B / copies * m["D"] * ACTIVATION
    return float(m["L"] * per_layer / chip["link_bytes_per_s"])


def all_to_all_s(m: Model, chip: Chip, B: int, n: int) -> float:
    """Seconds of sending all visits to their experts and back."""
    per_layer = 2 * B / n * m["k"] * m["D"] * ACTIVATION * (n - 1) / n
    return float(m["L"] * per_layer / chip["link_bytes_per_s"])


def times(m: Model, chip: Chip, B: int, n: int, copies: int) -> tuple[float, float]:
    """Seconds of reading, and of communication."""
    return read_s(m, chip, B, n, copies), (
        reduce_s(m, chip, B, n, copies) + all_to_all_s(m, chip, B, n)
    )


def divisors(n: int) -> list[int]:
    """The numbers of copies there can be."""
    return [copies for copies in range(1, n + 1) if n % copies == 0]


def fitting(m: Model, chip: Chip, B: int, n: int) -> list[int]:
    """Those that fit."""
    return [q for q in divisors(n) if stored(m, B, n, q) <= chip["memory_bytes"]]


def _with(m: Model, chip: Chip, B: int, n: int, copies: int) -> Choice:
    return copies, sum(times(m, chip, B, n, copies))


def best(model: Model, chip: Chip, B: int, n_chips: int) -> Choice:
    """The right answer."""
    fits = fitting(model, chip, B, n_chips)
    steps = [(sum(times(model, chip, B, n_chips, q)), q) for q in fits]
    return (min(steps)[1], min(steps)[0]) if steps else None


def by_rule(key: Callable[[Model, Chip, int, int, int], float]) -> Choose:
    """The number of copies that fits and has the smallest `key`; the seconds are right for it."""

    def choose(model: Model, chip: Chip, B: int, n_chips: int) -> Choice:
        fits = fitting(model, chip, B, n_chips)
        if not fits:
            return None
        return _with(
            model, chip, B, n_chips, min(fits, key=lambda q: key(model, chip, B, n_chips, q))
        )

    return choose


def by_cost(cost: Callable[[Model, Chip, int, int, int], float]) -> Choose:
    """The number of copies of least `cost`, which is also what it says it takes."""

    def choose(model: Model, chip: Chip, B: int, n_chips: int) -> Choice:
        fits = fitting(model, chip, B, n_chips)
        steps = [(cost(model, chip, B, n_chips, q), q) for q in fits]
        return (min(steps)[1], min(steps)[0]) if steps else None

    return choose


def by_room(room: Callable[[Model, int, int, int], float]) -> Choose:
    """The quickest of those for which `room` is within the memory."""

    def choose(model: Model, chip: Chip, B: int, n_chips: int) -> Choice:
        fits = [q for q in divisors(n_chips) if room(model, B, n_chips, q) <= chip["memory_bytes"]]
        steps = [(sum(times(model, chip, B, n_chips, q)), q) for q in fits]
        return (min(steps)[1], min(steps)[0]) if steps else None

    return choose


never_copied = by_rule(lambda m, chip, B, n, q: q)
as_many_as_fit = by_rule(lambda m, chip, B, n, q: -q)
reading_only = by_cost(read_s)
talking_only = by_cost(
    lambda m, chip, B, n, q: reduce_s(m, chip, B, n, q) + all_to_all_s(m, chip, B, n)
)
overlapped = by_cost(lambda m, chip, B, n, q: max(times(m, chip, B, n, q)))
memory_left_out = by_room(lambda m, B, n, q: 0.0)
cache_left_out_of_memory = by_room(lambda m, B, n, q: weights(m, n, q, m["E"]))
active_experts_stored = by_room(
    lambda m, B, n, q: weights(m, n, q, touched(m, B)) + B * m["cache_bytes"] / n
)
all_experts_read = by_cost(
    lambda m, chip, B, n, q: (
        stored(m, B, n, q) / chip["bytes_per_s"]
        + reduce_s(m, chip, B, n, q)
        + all_to_all_s(m, chip, B, n)
    )
)
whole_batch_reduced = by_cost(
    lambda m, chip, B, n, q: (
        read_s(m, chip, B, n, q) + q * reduce_s(m, chip, B, n, q) + all_to_all_s(m, chip, B, n)
    )
)
group_of_all = by_cost(
    lambda m, chip, B, n, q: (
        read_s(m, chip, B, n, q) + reduce_s(m, chip, B, n, 1) / q + all_to_all_s(m, chip, B, n)
    )
)
no_way_back = by_cost(
    lambda m, chip, B, n, q: (
        read_s(m, chip, B, n, q) + reduce_s(m, chip, B, n, q) + all_to_all_s(m, chip, B, n) / 2
    )
)

WORKED: Model = {
    "L": 64,
    "D": 4096,
    "dense_params": 5_503_000_000,
    "expert_params": 12_884_901_888,  # one expert of every layer
    "E": 16,
    "k": 2,
    "cache_bytes": 262_144 * 2048,
    "bytes_per_param": 1,
}
V5E: Chip = {"memory_bytes": 16e9, "bytes_per_s": 8.1e11, "link_bytes_per_s": 9e10}
SMALL: Model = {
    "L": 3,
    "D": 8,
    "dense_params": 4000,
    "expert_params": 700,
    "E": 6,
    "k": 2,
    "cache_bytes": 64,
    "bytes_per_param": 2,
}
NEAR: Chip = {"memory_bytes": 1e5, "bytes_per_s": 1000.0, "link_bytes_per_s": 1000.0}
Args = tuple[Model, Chip, int, int]


def exact_room(m: Model, B: int, n: int, copies: int) -> int:
    """Bytes of a chip's memory that this number of copies fills to the last byte."""
    held = (copies * m["dense_params"] + m["E"] * m["expert_params"]) * m["bytes_per_param"]
    total = held + B * m["cache_bytes"]
    assert total % n == 0
    return int(total // n)


def _edges() -> dict[str, Args]:
    room = exact_room(SMALL, 4, 4, 2)
    model = {
        "L": 30,
        "D": 16,
        "dense_params": 8000,
        "expert_params": 350,
        "E": 12,
        "k": 5,
        "cache_bytes": 128,
        "bytes_per_param": 1,
    }
    found: dict[str, Args] = {
        f"the worked mixture on 128 chips, B = {B}": (WORKED, V5E, B, 128)
        for B in (1, 32, 256, 1024)
    }
    found |= {
        f"the small one, {name} = {value}": ({**SMALL, name: value}, NEAR, 4, 4)
        for name, value in model.items()
    }
    four = exact_room(WORKED, 32, 128, 4)
    found |= {
        f"the worked mixture, four copies {says}": (
            WORKED, {**V5E, "memory_bytes": memory}, 32, 128,
        )
        for says, memory in (("fit to the byte", four), ("lack a byte", four - 1))
    }  # fmt: skip
    found |= {
        "the small one": (SMALL, NEAR, 4, 4),
        "twice the bandwidth": (SMALL, {**NEAR, "bytes_per_s": 2000.0}, 4, 4),
        "slow links": (SMALL, {**NEAR, "link_bytes_per_s": 20.0}, 4, 4),
        "quick links": (SMALL, {**NEAR, "link_bytes_per_s": 1e5}, 4, 4),
        "slow links, two copies fit to the byte": (
            SMALL, {**NEAR, "link_bytes_per_s": 20.0, "memory_bytes": room}, 4, 4,
        ),
        "slow links, two copies lack a byte": (
            SMALL, {**NEAR, "link_bytes_per_s": 20.0, "memory_bytes": room - 1}, 4, 4,
        ),
        "slow links, large caches": (
            {**SMALL, "cache_bytes": 4000},
            {**NEAR, "link_bytes_per_s": 20.0, "memory_bytes": 9000.0}, 4, 4,
        ),
        "caches that leave a rest": ({**SMALL, "cache_bytes": 65}, NEAR, 1, 4),
        "a quarter of a byte of caches too much": (
            {**SMALL, "cache_bytes": 65}, {**NEAR, "memory_bytes": 4116.1}, 1, 4,
        ),
        "a quarter of a byte too much": (
            {**SMALL, "dense_params": 4001, "bytes_per_param": 1},
            {**NEAR, "memory_bytes": 2114.1}, 4, 4,
        ),
        "seven chips, quick links": (SMALL, {**NEAR, "link_bytes_per_s": 1e5}, 30, 7),
        "nothing fits": (SMALL, {**NEAR, "memory_bytes": 100}, 4, 4),
        "one token": (SMALL, {**NEAR, "link_bytes_per_s": 20.0}, 1, 4),
        "one chip": (SMALL, NEAR, 4, 1),
        "12 chips": (SMALL, {**NEAR, "link_bytes_per_s": 60.0}, 30, 12),
        "seven chips": (SMALL, {**NEAR, "link_bytes_per_s": 60.0}, 30, 7),
        "2,053 chips": (SMALL, {**NEAR, "link_bytes_per_s": 9.0}, 30, 2053),
        "2,048 chips": (SMALL, {**NEAR, "link_bytes_per_s": 9.0}, 3000, 2048),
    }  # fmt: skip
    return found


EDGES = _edges()


def fresh(rng: random.Random) -> Args:
    """A mixture of some size, on links on which the number of copies matters; no two numbers of
    copies within a thousandth."""
    while True:
        E = rng.choice([8, 16, 64])
        m = {
            "L": rng.randrange(16, 80),
            "D": 256 * rng.randrange(8, 32),
            "dense_params": rng.randrange(1, 9) * 10**9,
            "expert_params": rng.randrange(5, 200) * 10**7,
            "E": E,
            "k": rng.randrange(1, 5),
            "cache_bytes": rng.randrange(1, 40) * 10**7,
            "bytes_per_param": rng.choice([1, 2]),
        }
        n = rng.choice([8, 12, 16, 32, 64])
        B = rng.randrange(8, 400)
        chip = {
            "memory_bytes": rng.uniform(20e9, 100e9),
            "bytes_per_s": rng.uniform(0.5e12, 4e12),
            "link_bytes_per_s": rng.uniform(1e10, 4e11),
        }
        steps = sorted(sum(times(m, chip, B, n, q)) for q in fitting(m, chip, B, n))
        if len(steps) > 2 and steps[1] > 1.001 * steps[0]:
            return m, chip, B, n
