"""The formats of quantization-choose: what can be used, how long a step takes, and cases."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

Model = dict[str, Any]
Chip = dict[str, Any]
Format = dict[str, Any]
Problem = tuple[Model, Chip, int, list[Format]]
NEAR, CLEAR = 1.05, (1.02, 1.10)


def weight_bytes(model: Model, kind: Format) -> float:
    """Bytes of all weights: those of the format, and the others."""
    return float(model["n_params"] * kind["bits_per_weight"] / 8 + model["other_bytes"])


def fits(model: Model, chip: Chip, B: int, kind: Format) -> bool:
    """Whether weights and caches have room."""
    return bool(weight_bytes(model, kind) + B * model["cache_bytes"] <= chip["memory_bytes"])


def usable(model: Model, chip: Chip, B: int, kind: Format) -> bool:
    """Whether it fits, is good enough, and the chip has its arithmetic."""
    good = kind["loss"] <= model["most_loss"]
    return good and kind["arithmetic"] in chip["flops_per_s"] and fits(model, chip, B, kind)


def flops_per_s(chip: Chip, kind: Format) -> float:
    """The rate of a format's arithmetic; of one that the chip has not, its slowest."""
    rates: Mapping[str, float] = chip["flops_per_s"]
    return rates.get(kind["arithmetic"], min(rates.values()))


def reading_s(model: Model, chip: Chip, B: int, kind: Format) -> float:
    """Seconds to read weights and caches."""
    return float((weight_bytes(model, kind) + B * model["cache_bytes"]) / chip["bytes_per_s"])


def computing_s(model: Model, chip: Chip, B: int, kind: Format) -> float:
    """Seconds of the products."""
    return float(2 * B * model["n_params"] / flops_per_s(chip, kind))


def step_s(model: Model, chip: Chip, B: int, kind: Format) -> float:
    """Seconds of a step: the longer of the two."""
    return max(reading_s(model, chip, B, kind), computing_s(model, chip, B, kind))


Rule = Callable[[Model, Chip, int, Format], Any]


def chosen(possible: Rule = usable, first: Rule = step_s) -> Callable[..., str | None]:
    """The first by `first` of those that are possible; with nothing replaced it is right."""

    def choose(model: Model, chip: Chip, B: int, formats: list[Format]) -> str | None:
        open_to = [f for f in formats if possible(model, chip, B, f)]
        best = min(open_to, key=lambda f: first(model, chip, B, f), default=None)
        return None if best is None else str(best["name"])

    return choose


def verdict(found: Any, problem: Problem) -> str:
    """What is to be said of a choice."""
    model, chip, B, formats = problem
    times = {f["name"]: step_s(model, chip, B, f) for f in formats if usable(model, chip, B, f)}
    if found is None:
        return "None, and one can be used" if times else "None, as none can be used"
    if not isinstance(found, str) or found not in [f["name"] for f in formats]:
        return "no name of the list"
    if found not in times:
        return f"{found}, which cannot be used"
    slower = times[found] / min(times.values())
    if slower <= NEAR:
        return "one that can be used, within 5 % of the quickest"
    return f"{found}, {slower:.2f} times as slow as another"


def clear(problem: Problem) -> bool:
    """Whether each format is the best but for 2 %, or more than 10 % slower; and no bound is near
    but where it is met exactly."""
    model, chip, B, formats = problem
    times = [step_s(model, chip, B, f) for f in formats if usable(model, chip, B, f)]
    low, high = CLEAR
    return all(not low < t / min(times) < high for t in times)


FORMATS = [
    {"name": "bf16", "bits_per_weight": 16, "loss": 0.0, "arithmetic": "bf16"},
    {"name": "w8a8", "bits_per_weight": 8.25, "loss": 0.004, "arithmetic": "int8"},
    {"name": "w8", "bits_per_weight": 8.25, "loss": 0.002, "arithmetic": "bf16"},
    {"name": "fp8", "bits_per_weight": 8, "loss": 0.006, "arithmetic": "fp8"},
    {"name": "w4 g128", "bits_per_weight": 4.125, "loss": 0.02, "arithmetic": "bf16"},
    {"name": "w3 g64", "bits_per_weight": 3.25, "loss": 0.08, "arithmetic": "bf16"},
]
MODEL = {
    "n_params": 7 * 10**9, "other_bytes": 5 * 10**8, "cache_bytes": 2.5e8, "most_loss": 0.03,
}  # fmt: skip
CHIP = {
    "memory_bytes": 24 * 10**9, "bytes_per_s": 1e12,
    "flops_per_s": {"bf16": 1.4e14, "int8": 2.8e14},
}  # fmt: skip
LARGE = {**CHIP, "memory_bytes": 1e12}


def _with(number: int, **changes: Any) -> list[Format]:
    return [{**f, **changes} if i == number else dict(f) for i, f in enumerate(FORMATS)]


def edges_of_formats() -> dict[str, Problem]:
    """The worked problem at several batches, and each condition just met and just not."""
    just = weight_bytes(MODEL, FORMATS[4]) + 2 * MODEL["cache_bytes"]
    one = just - MODEL["cache_bytes"]
    two = [FORMATS[1], FORMATS[4]]
    four = [FORMATS[0], FORMATS[4]]
    slow = {**LARGE, "flops_per_s": {"bf16": 1e13, "int8": 2e13, "fp8": 4e13}}
    few = {**MODEL, "cache_bytes": 1.0}
    odd = {**MODEL, "other_bytes": 500_000_011, "cache_bytes": 250_000_007}  # no float32 has these
    room = weight_bytes(odd, FORMATS[4]) + 2 * odd["cache_bytes"]
    poor = [{**FORMATS[3], "name": f"fp8, try {i + 1}"} for i in range(19)]
    return {
        **{f"the worked model, B = {B}": (MODEL, CHIP, B, FORMATS) for B in (1, 8, 64)},
        "memory to the byte": (MODEL, {**CHIP, "memory_bytes": just}, 2, four),
        # whoever keeps results by some of the numbers is wrong here
        "the same memory, more parameters": (
            {**MODEL, "n_params": 8 * 10**9}, {**CHIP, "memory_bytes": just}, 2, four,
        ),
        "the same memory, larger caches": (
            {**MODEL, "cache_bytes": 3e8}, {**CHIP, "memory_bytes": just}, 2, four,
        ),
        "a byte too little": (MODEL, {**CHIP, "memory_bytes": just - 1}, 2, four),
        "odd bytes, one too little": (odd, {**CHIP, "memory_bytes": room - 1}, 2, four),
        "one sequence, a byte too little": (MODEL, {**CHIP, "memory_bytes": one - 1}, 1, four),
        "half a byte more than there is": (
            {**MODEL, "n_params": 1001, "other_bytes": 0, "cache_bytes": 0},
            {**CHIP, "memory_bytes": 563}, 1, [{**FORMATS[4], "bits_per_weight": 4.504}],
        ),
        "loss just as allowed": ({**MODEL, "most_loss": 0.02}, CHIP, 1, FORMATS),
        "loss a little above": ({**MODEL, "most_loss": 0.0199}, CHIP, 1, FORMATS),
        "loss a hundred-millionth above": (
            {**MODEL, "most_loss": 0.02 * (1 - 1e-8)}, CHIP, 1, FORMATS,
        ),
        "no loss allowed": ({**MODEL, "most_loss": 0.0}, CHIP, 1, FORMATS),
        "any loss allowed": ({**MODEL, "most_loss": 1.0}, CHIP, 1, FORMATS),
        "nothing is good enough": ({**MODEL, "most_loss": -1.0}, CHIP, 1, FORMATS),
        "a prefill of 4,096": (few, LARGE, 4096, FORMATS),
        "a chip with fp8, a prefill": (few, slow, 4096, FORMATS),
        "the quickest lacks its arithmetic": (
            MODEL, LARGE, 1, _with(3, bits_per_weight=2.0, loss=0.0),
        ),
        "twice the products decide": (few, LARGE, 116, FORMATS),
        "caches are read as well": ({**few, "cache_bytes": 6.6e7}, LARGE, 90, two),
        "caches are read, and quickly": (
            {**few, "cache_bytes": 6.6e7}, {**LARGE, "bytes_per_s": 2e12}, 90, two,
        ),
        "embeddings are read as well": ({**few, "other_bytes": 6 * 10**9}, LARGE, 90, two),
        "embeddings are read, not computed": (
            {**few, "other_bytes": 6 * 10**9}, LARGE, 96, two,
        ),
        "twenty formats, the last can be used": (MODEL, CHIP, 1, [*poor, FORMATS[4]]),
        "one format": (MODEL, CHIP, 1, FORMATS[:1]),
        "no formats": (MODEL, CHIP, 1, []),
        "the other way round": (MODEL, CHIP, 1, FORMATS[::-1]),
        "the smallest loses too much": (MODEL, CHIP, 1, _with(4, loss=0.2)),
        "embeddings larger than the rest": (
            {**MODEL, "other_bytes": 10**12}, {**LARGE, "memory_bytes": 1e13}, 1, FORMATS,
        ),
        "embeddings that leave no room": ({**MODEL, "other_bytes": 24 * 10**9}, CHIP, 1, FORMATS),
        "caches that leave room for 4 bits": (MODEL, CHIP, 70, FORMATS),
        "caches that leave no room": (MODEL, CHIP, 200, FORMATS),
    }  # fmt: skip


def slower_by_a_twentieth() -> dict[str, Problem]:
    """A format that is 5.2 % slower than another, before it and behind it: by bits, as nothing but
    weights is read. Whoever takes a later one only if it is 5 % quicker keeps the first."""
    only = {**MODEL, "other_bytes": 0, "cache_bytes": 0.0}
    two = [{**FORMATS[4], "name": f"{bits} bits", "bits_per_weight": bits} for bits in (4.208, 4.0)]
    return {
        "the second is quicker by 5.2 %": (only, LARGE, 1, two),
        "the first is quicker by 5.2 %": (only, LARGE, 1, two[::-1]),
    }


def fresh(rng: random.Random) -> Problem:
    """A model, a chip, a batch and three to six formats; clear."""
    while True:
        model = {
            "n_params": rng.randrange(1, 70) * 10**9,
            "other_bytes": rng.randrange(1, 20) * 10**8,
            "cache_bytes": rng.choice((1e6, 1e8, 5e8)),
            "most_loss": rng.choice((0.003, 0.01, 0.05, 0.1)),
        }
        chip = {
            "memory_bytes": rng.choice((16, 24, 48, 80, 192)) * 10**9,
            "bytes_per_s": rng.choice((1e11, 1e12, 3e12)),
            "flops_per_s": {"bf16": 1e14, **rng.choice(({}, {"int8": 2e14}, {"fp8": 2e14}))},
        }
        formats = rng.sample(FORMATS, rng.randrange(3, 7))
        problem = model, chip, rng.choice((1, 4, 32, 256, 1024)), [dict(f) for f in formats]
        if clear(problem) and any(usable(*problem[:3], f) for f in formats):
            return problem
