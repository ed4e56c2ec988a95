"""speculative_decoding-verify_price: what a verification costs more than a plain step, by batch."""

from __future__ import annotations

import random

from twophase.checks.compare import FORMULA
from twophase.checks.edges import one_changed, past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(
    weight_bytes: float,
    cache_bytes: float,
    token_flops: float,
    B: int,
    gamma: int,
    bytes_per_s: float,
    flops_per_s: float,
) -> dict[str, float]:
    """The right answer."""
    reading = (weight_bytes + B * cache_bytes) / bytes_per_s
    computing = B * token_flops / flops_per_s
    plain, verification = max(reading, computing), max(reading, (gamma + 1) * computing)
    return {"plain_s": plain, "verify_s": verification, "ratio": verification / plain}


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "read_for_every_token",
    {"max(reading, (gamma + 1) * computing)": "(gamma + 1) * max(reading, computing)"},
    "“verifying k tokens costs k steps”",
    "You read weights and caches once for every token. One pass reads them once; only computing"
    " grows with the tokens.",
)
_add(
    "always_free",
    {"max(reading, (gamma + 1) * computing)": "plain_of(reading, computing)"},
    "“verification is free”",
    "You let a verification cost what a plain step does. That holds while reading is the longer:"
    " beyond the critical batch every token costs.",
)
_add(
    "own_token_left_out",
    {"(gamma + 1) * computing": "max(1, gamma) * computing"},
    "plausible",
    "A verification also reads the last token said: gamma + 1 tokens of each sequence.",
)
_add(
    "added",
    {
        ("max(reading, computing), max(reading, (gamma + 1) * computing)"): (
            "reading + computing, reading + (gamma + 1) * computing"
        )
    },
    "plausible",
    "You add reading and computing. Here they overlap: the longer of the two counts.",
)
_add(
    "one_cache",
    {"B * cache_bytes": "cache_bytes"},
    "plausible",
    "You read one sequence's cache: each of the B has its own.",
)
_add(
    "batch_of_one_computed",
    {"B * token_flops": "token_flops"},
    "the estimate for one sequence, used for a batch",
    "You compute for one sequence: each of the B has gamma + 1 tokens.",
)
_add(
    "cache_read_for_every_token",
    {
        ("verification = max(reading, computing), max(reading,"): (
            "verification = max(reading, computing), max((weight_bytes + (gamma +"
            " 1) * B * cache_bytes) / bytes_per_s,"
        )
    },
    "plausible",
    "You read a sequence's cache once for each of its tokens. They attend in one pass, which reads"
    " it once.",
)


def plain_of(reading: float, computing: float) -> float:
    return max(reading, computing)


def cases(rng: random.Random) -> list[Case]:
    """A model of 7 billion parameters at both ends of the batches; where computing takes exactly as
    long as reading; each argument changed; fresh ones."""
    seven = {
        "weight_bytes": 13.5e9,
        "cache_bytes": 1.07e9,
        "token_flops": 13.5e9,
        "B": 1,
        "gamma": 4,
        "bytes_per_s": 3.35e12,
        "flops_per_s": 9.9e14,
    }
    even = dict(zip(seven, (2.0**30, 0.0, 2.0**24, 16, 3, 2.0**40, 2.0**40), strict=True))
    assert even["weight_bytes"] == even["B"] * 4 * even["token_flops"]
    changed = one_changed(
        {**seven, "B": 300},
        weight_bytes=2e12,
        cache_bytes=0.0,
        token_flops=2e12,
        gamma=100,
        bytes_per_s=1e14,
        flops_per_s=1e12,
    )
    fresh = [
        {
            "weight_bytes": rng.uniform(1e8, 1e11),
            "cache_bytes": rng.uniform(0, 1e8),
            "token_flops": rng.uniform(1e8, 1e11),
            "B": rng.choice((1, 8, 64, 512)),
            "gamma": rng.randrange(1, 9),
            "bytes_per_s": rng.uniform(1e11, 1e13),
            "flops_per_s": rng.uniform(1e13, 1e15),
        }
        for _ in range(6)
    ]
    named = [
        ("7 billion parameters, one sequence", seven),
        ("the same, 64 sequences", {**seven, "B": 64}),
        ("the same, 64 sequences, short texts", {**seven, "B": 64, "cache_bytes": 1e6}),
        ("the same, 512 sequences, short texts", {**seven, "B": 512, "cache_bytes": 1e6}),
        ("computing exactly as long as reading", even),
        ("one sequence more", {**even, "B": 17}),
        ("one drafted token fewer", {**even, "gamma": 2}),
        ("already bound by computing", {**even, "B": 128}),
        ("no token drafted", {**seven, "gamma": 0}),
        ("no token drafted, bound by computing", {**even, "B": 128, "gamma": 0}),
        ("a model of 1,000 bytes", {**even, "weight_bytes": 1000.0, "bytes_per_s": 1.0, "B": 1}),
        ("2,053 sequences", {**seven, "B": past(2048), "cache_bytes": 1e3}),
        ("300 sequences", {**seven, "B": 300}),
        *((f"300 sequences, {what}", new) for what, new in changed),
        *((f"fresh {i + 1}", new) for i, new in enumerate(fresh)),
    ]
    return [Case(name, kwargs=sizes, public=name < "fresh 3") for name, sizes in named]


EXERCISE = Exercise(
    id="speculative_decoding-verify_price",
    title="Predict the price of a verification",
    kind="predict",
    points=3,
    minutes=12,
    entries=("verify_price",),
    cases=cases,
    reference=reference,
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        "What does a pass read, whatever the number of tokens? What does each token compute?",
        (
            "Reading: weights once, and the cache of each of the B sequences once. Computing:"
            " token_flops for each of B·1 or B·(gamma + 1) tokens."
        ),
        "Each time is the longer of the two; the ratio is verify_s / plain_s.",
    ),
    recall=(
        "Why does a verification cost next to nothing at batch 1, and much at batch 64?",
        "One sequence's few tokens are computed while the weights are read; 64 times as many may"
        " take longer than that reading.",
    ),
    ranges={"gamma": (0, 100)},
)
