"""latency_throughput-step_time: the pop quiz about a 30B model, as a function."""

from __future__ import annotations

import random

from twophase.checks.compare import FORMULA
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

WORKED = (30_000_000_000, 4, 8192, 100_000, 16, 8.1e11)
CACHE_GB = WORKED[1] * WORKED[2] * WORKED[3] / 1e9


def reference(
    weight_bytes: int,
    B: int,
    n_tokens: int,
    kv_bytes_per_token: int,
    n_chips: int,
    bytes_per_s: float,
) -> float:
    """The right answer."""
    return (weight_bytes + B * n_tokens * kv_bytes_per_token) / (n_chips * bytes_per_s)


@wrong(
    "the pop quiz of a public set of notes, first attempt",
    "This is what you get if the KV cache is left out: in the quiz, at B = 4, it adds "
    f"{CACHE_GB:.1f} GB to every step.",
)
def cache_left_out(
    weight_bytes: int,
    B: int,
    n_tokens: int,
    kv_bytes_per_token: int,
    n_chips: int,
    bytes_per_s: float,
) -> float:
    return weight_bytes / (n_chips * bytes_per_s)


@wrong(
    "plausible",
    "You read the weights once for each sequence: one read serves the whole batch, that is what"
    " batches are for.",
)
def weights_per_sequence(
    weight_bytes: int,
    B: int,
    n_tokens: int,
    kv_bytes_per_token: int,
    n_chips: int,
    bytes_per_s: float,
) -> float:
    return B * (weight_bytes + n_tokens * kv_bytes_per_token) / (n_chips * bytes_per_s)


@wrong("plausible", "This is the cache alone: every step reads all the weights, too.")
def weights_left_out(
    weight_bytes: int,
    B: int,
    n_tokens: int,
    kv_bytes_per_token: int,
    n_chips: int,
    bytes_per_s: float,
) -> float:
    return B * n_tokens * kv_bytes_per_token / (n_chips * bytes_per_s)


@wrong(
    "plausible",
    "You read one token of each cache: attention reads the keys and values of all n_tokens.",
)
def one_token_of_cache(
    weight_bytes: int,
    B: int,
    n_tokens: int,
    kv_bytes_per_token: int,
    n_chips: int,
    bytes_per_s: float,
) -> float:
    return (weight_bytes + B * kv_bytes_per_token) / (n_chips * bytes_per_s)


@wrong("plausible", "You read the cache of one sequence: each of the B sequences has its own.")
def one_sequence_of_cache(
    weight_bytes: int,
    B: int,
    n_tokens: int,
    kv_bytes_per_token: int,
    n_chips: int,
    bytes_per_s: float,
) -> float:
    return (weight_bytes + n_tokens * kv_bytes_per_token) / (n_chips * bytes_per_s)


@wrong(
    "plausible",
    "This is one chip reading everything: n_chips of them read their shares at the same time.",
)
def chips_forgotten(
    weight_bytes: int,
    B: int,
    n_tokens: int,
    kv_bytes_per_token: int,
    n_chips: int,
    bytes_per_s: float,
) -> float:
    return (weight_bytes + B * n_tokens * kv_bytes_per_token) / bytes_per_s


@wrong(
    "plausible",
    "You divided the weights among the chips and let each chip read the whole cache: it is"
    " divided, too.",
)
def cache_on_every_chip(
    weight_bytes: int,
    B: int,
    n_tokens: int,
    kv_bytes_per_token: int,
    n_chips: int,
    bytes_per_s: float,
) -> float:
    return (weight_bytes / n_chips + B * n_tokens * kv_bytes_per_token) / bytes_per_s


@wrong("plausible", "The task asks for seconds, and this is in milliseconds.")
def milliseconds(
    weight_bytes: int,
    B: int,
    n_tokens: int,
    kv_bytes_per_token: int,
    n_chips: int,
    bytes_per_s: float,
) -> float:
    return 1000 * reference(weight_bytes, B, n_tokens, kv_bytes_per_token, n_chips, bytes_per_s)


def cases(rng: random.Random) -> list[Case]:
    """Numbers for the head, one chip, the quiz itself; odd shares, many chips, sequences and
    tokens, a small cache, small weights, a short step; then fresh ones."""
    fresh = []
    for i in range(6):
        sizes = (
            rng.randrange(10**9, 10**11),
            rng.randrange(2, 200),
            rng.randrange(100, 9_000),
            rng.randrange(20_000, 900_000),
            rng.randrange(2, 33),
            rng.uniform(5e11, 8e12),
        )
        fresh.append(Case(f"fresh {i + 1}", sizes, public=i < 3))
    return [
        Case(
            "100 bytes of weights, 2 sequences of 5 tokens of 3 bytes, 2 chips of 10 bytes/s",
            (100, 2, 5, 3, 2, 10),
        ),
        Case(
            "13B in bf16, one sequence of 1,024 tokens, one H100",
            (26_000_000_000, 1, 1024, 819_200, 1, 3.35e12),
        ),
        Case("the quiz: 30B in int8, 4 sequences of 8,192 tokens, 16 chips", WORKED),
        Case("the same for 90 bytes of weights", (90, 2, 5, 3, 2, 10)),
        Case("the same for 3 sequences", (100, 3, 5, 3, 2, 10)),
        Case("the same for tokens of 4 bytes", (100, 2, 5, 4, 2, 10)),
        Case("the same for 3 chips", (100, 2, 5, 3, 3, 10)),
        Case("the same for 20 bytes/s", (100, 2, 5, 3, 2, 20)),
        Case("nothing cached yet", (100, 2, 0, 3, 2, 10)),
        Case("1,003 bytes of weights on 7 chips", (1003, 3, 5, 11, 7, 1000)),
        Case("2,053 chips", (2_000_000_000_003, 3, 8191, 100_003, 2053, 8.1e11)),
        Case("2,053 sequences of 262,147 tokens", (10**10, 2053, 262_147, 3_001, 31, 8.1e11)),
        Case("a cache of a thousandth of the weights", (10**10, 1, 1000, 10_000, 2, 8.1e11)),
        Case("weights of a thousandth of the caches", (10**7, 100, 1000, 100_000, 2, 8.1e11)),
        Case("a step of some nanoseconds", (3001, 2, 5, 17, 2, 8.1e11)),
        *fresh,
    ]


EXERCISE = Exercise(
    id="latency_throughput-step_time",
    title="The pop quiz",
    kind="formula",
    points=2,
    minutes=8,
    entries=("step_time",),
    cases=cases,
    reference=reference,
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        (
            "A decode step limited by memory takes as long as reading what it needs. What does it"
            " read once, what once per sequence?"
        ),
        "Bytes: weights + B × n_tokens × kv_bytes_per_token.",
        "All chips read at once: divide by n_chips × bytes_per_s.",
    ),
    ranges={"n_tokens": (0, 262_147), "n_chips": (1, 2053)},
    recall=(
        "What does a decode step read besides the weights?",
        "The KV cache of every sequence in the batch: B × tokens × bytes per token.",
    ),
)
