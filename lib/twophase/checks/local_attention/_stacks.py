"""The workloads of local_attention-ratio, what their options cost, and the choices people make."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from twophase.checks import edges

Workload = dict[str, Any]
Option = dict[str, Any]
Choice = Callable[[Workload], int]


def cache_bytes(w: Workload, o: Option) -> int:
    """Cache of one sequence."""
    local = w["L"] - o["n_global"]
    positions = o["n_global"] * w["S"] + local * min(w["S"], o["window"])
    return 2 * positions * w["K"] * w["H"] * w["bytes_per_value"]  # type: ignore[no-any-return]


def memory_bytes(w: Workload, o: Option) -> int:
    """Weights and all caches."""
    return w["weight_bytes"] + w["B"] * cache_bytes(w, o)  # type: ignore[no-any-return]


def step_s(w: Workload, o: Option) -> float:
    """A decode step that reads all of that once."""
    return memory_bytes(w, o) / w["bytes_per_s"]  # type: ignore[no-any-return]


def field(w: Workload, o: Option) -> int:
    """Tokens that can matter to the last output."""
    if o["n_global"]:
        return w["S"]  # type: ignore[no-any-return]
    return min(w["S"], w["L"] * (o["window"] - 1) + 1)  # type: ignore[no-any-return]


def fits(w: Workload, o: Option) -> bool:
    return memory_bytes(w, o) <= w["memory_bytes"]  # type: ignore[no-any-return]


def in_time(w: Workload, o: Option) -> bool:
    return step_s(w, o) <= w["step_limit_s"]  # type: ignore[no-any-return]


def reaches(w: Workload, o: Option) -> bool:
    return field(w, o) >= w["must_reach"]  # type: ignore[no-any-return]


def chooser(*rules: Callable[[Workload, Option], bool]) -> Choice:
    """The option of the lowest loss among those that keep all the rules; if none does, the one of
    the smallest cache."""

    def choose(w: Workload) -> int:
        options = list(enumerate(w["options"]))
        left = [(o["bits_per_byte"], i) for i, o in options if all(rule(w, o) for rule in rules)]
        if left:
            return min(left)[1]
        return min((cache_bytes(w, o), i) for i, o in options)[1]

    return choose


def smallest_cache(w: Workload) -> int:
    left = [
        (cache_bytes(w, o), i)
        for i, o in enumerate(w["options"])
        if fits(w, o) and in_time(w, o) and reaches(w, o)
    ]
    return min(left)[1]


def weights_not_stored(w: Workload, o: Option) -> bool:
    return w["B"] * cache_bytes(w, o) <= w["memory_bytes"]  # type: ignore[no-any-return]


def weights_not_read(w: Workload, o: Option) -> bool:
    return w["B"] * cache_bytes(w, o) / w["bytes_per_s"] <= w["step_limit_s"]  # type: ignore[no-any-return]


def one_sequence_fits(w: Workload, o: Option) -> bool:
    return fits({**w, "B": 1}, o)


def one_sequence_in_time(w: Workload, o: Option) -> bool:
    return in_time({**w, "B": 1}, o)


def full_is_refused(w: Workload, o: Option) -> bool:
    return memory_bytes(w, o) < w["memory_bytes"]  # type: ignore[no-any-return]


def rings_fit_whole(w: Workload, o: Option) -> bool:
    """A window counted whole where the text is shorter."""
    return _with_positions(w, o, o["n_global"] * w["S"] + (w["L"] - o["n_global"]) * o["window"])


def all_layers_local(w: Workload, o: Option) -> bool:
    """Global layers counted on top of L local ones."""
    local = w["L"] * min(w["S"], o["window"])
    return _with_positions(w, o, o["n_global"] * w["S"] + local)


def _with_positions(w: Workload, o: Option, positions: int) -> bool:
    cache = 2 * positions * w["K"] * w["H"] * w["bytes_per_value"]
    needed = w["weight_bytes"] + w["B"] * cache
    return needed <= min(w["memory_bytes"], w["step_limit_s"] * w["bytes_per_s"])  # type: ignore[no-any-return]


def windows_reach(w: Workload, o: Option) -> bool:
    """Global layers do not count."""
    return (w["L"] - o["n_global"]) * (o["window"] - 1) + 1 >= w["must_reach"]  # type: ignore[no-any-return]


def windows_added(w: Workload, o: Option) -> bool:
    return o["n_global"] > 0 or w["L"] * o["window"] >= w["must_reach"]  # type: ignore[no-any-return]


def one_window_reaches(w: Workload, o: Option) -> bool:
    return o["n_global"] > 0 or o["window"] >= w["must_reach"]  # type: ignore[no-any-return]


DEEP = edges.past(128)


def deep(room: int) -> Workload:
    """More layers than any constant, and more bytes than float32 tells apart: the first option
    needs all of `deep_needs()`, the second one's windows reach one token less than they must."""
    return {
        "L": DEEP,
        "K": 8,
        "H": 128,
        "bytes_per_value": 2,
        "B": 8,
        "S": 131_072,
        "weight_bytes": 54_000_000_001,
        "memory_bytes": room,
        "bytes_per_s": 3.35e12,
        "step_limit_s": 1.0,
        "must_reach": DEEP * (500 - 1) + 2,
        "options": [
            {"n_global": DEEP // 4, "window": 1024, "bits_per_byte": 0.61},
            {"n_global": 0, "window": 500, "bits_per_byte": 0.58},
            {"n_global": 0, "window": 501, "bits_per_byte": 0.63},
            {"n_global": 1, "window": 501, "bits_per_byte": 0.65},
        ],
    }


def deep_needs() -> int:
    """Memory that the first option of `deep` fills to the last byte."""
    w = deep(0)
    return memory_bytes(w, w["options"][0])


def drawn(rng: random.Random) -> Workload:
    """A workload whose memory is just full with one of its options, whose step is just in time with
    another; wider stacks lose less, but not always."""
    L = rng.randrange(6, 49)
    w: Workload = {
        "L": L,
        "K": rng.randrange(1, 9),
        "H": 16 * rng.randrange(2, 9),
        "bytes_per_value": rng.choice((1, 2, 4)),
        "B": rng.randrange(2, 17),
        "S": rng.randrange(500, 20_000),
        "bytes_per_s": 1e9 * rng.randrange(50, 3000),
    }
    ratios = [0, 0, 0, 1, max(1, L // 8), L // 4, L // 3, L // 2, L]
    rng.shuffle(ratios)
    options = []
    for n_global in ratios:
        window = rng.choice((rng.randrange(8, 60), rng.randrange(60, 900), w["S"] + 300))
        options.append({"n_global": n_global, "window": window})
    caches = sorted(cache_bytes(w, o) for o in options)
    w["weight_bytes"] = rng.randrange(1, 4) * w["B"] * caches[len(caches) // 2]
    for o in options:
        share = cache_bytes(w, o) / caches[-1]
        o["bits_per_byte"] = round(1.9 - 0.3 * share**0.3 + rng.uniform(0, 0.12), 4)
    by_need = sorted(options, key=lambda o: memory_bytes(w, o))
    w["memory_bytes"] = memory_bytes(w, by_need[rng.randrange(4, len(by_need))])
    w["step_limit_s"] = step_s(w, by_need[rng.randrange(3, len(by_need))]) * 1.001
    w["must_reach"] = rng.randrange(2, w["S"] + 1)
    w["options"] = options
    return w


def with_an_answer(rng: random.Random) -> Workload:
    """The first drawn that has an answer, and no loss twice."""
    while True:
        w = drawn(rng)
        losses = {o["bits_per_byte"] for o in w["options"]}
        if len(losses) == len(w["options"]) and any(
            fits(w, o) and in_time(w, o) and reaches(w, o) for o in w["options"]
        ):
            return w
