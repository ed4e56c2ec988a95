"""kv_cache-max_batch: how many sequences fit beside the weights."""

from __future__ import annotations

import random

from twophase.checks import edges
from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

PETABYTE = 10**15  # bytes, the most that the task names


def reference(memory_bytes: int, weight_bytes: int, kv_bytes_per_token: int, n_tokens: int) -> int:
    """The right answer."""
    return max(0, (memory_bytes - weight_bytes) // (kv_bytes_per_token * n_tokens))


@wrong(
    "plausible",
    "This is the batch for a memory that holds no weights: subtract them before you divide.",
)
def weights_left_out(
    memory_bytes: int, weight_bytes: int, kv_bytes_per_token: int, n_tokens: int
) -> int:
    return memory_bytes // (kv_bytes_per_token * n_tokens)


@wrong(
    "plausible",
    "You rounded up: the last sequence does not fit. A batch is the largest whole number that"
    " does.",
)
def rounded_up(memory_bytes: int, weight_bytes: int, kv_bytes_per_token: int, n_tokens: int) -> int:
    return max(0, -((weight_bytes - memory_bytes) // (kv_bytes_per_token * n_tokens)))


@wrong("lecture notes that write B ≤ 7.08", "A batch is a whole number of sequences: round down.")
def not_rounded(
    memory_bytes: int, weight_bytes: int, kv_bytes_per_token: int, n_tokens: int
) -> float:
    return max(0.0, (memory_bytes - weight_bytes) / (kv_bytes_per_token * n_tokens))


@wrong(
    "plausible",
    "You gave every sequence its own copy of the weights: one copy serves the whole batch.",
)
def weights_per_sequence(
    memory_bytes: int, weight_bytes: int, kv_bytes_per_token: int, n_tokens: int
) -> int:
    return memory_bytes // (weight_bytes + kv_bytes_per_token * n_tokens)


@wrong(
    "plausible",
    "If the weights alone do not fit, the answer is 0 sequences, not a negative number of them.",
)
def negative_batch(
    memory_bytes: int, weight_bytes: int, kv_bytes_per_token: int, n_tokens: int
) -> int:
    return (memory_bytes - weight_bytes) // (kv_bytes_per_token * n_tokens)


wrong.add(
    "exact_fit_refused",
    replaced(
        reference,
        {"(memory_bytes - weight_bytes) //": "(memory_bytes - weight_bytes - 1) //"},
    ),
    "a strict inequality",
    "You keep a byte free: what fills the memory to the last byte fits.",
)
wrong.add(
    "at_least_one",
    replaced(reference, {"max(0,": "max(1,"}),
    "plausible",
    "You return 1 where not even one sequence fits: then the answer is 0.",
)


def _forty() -> Case:
    """A full memory, which the difference of two quotients in floats misses."""
    memory, kv, tokens = 80 * 10**9, 131_072, 7_919
    weights = memory - 40 * kv * tokens
    assert int(memory / (kv * tokens) - weights / (kv * tokens)) < 40
    return Case("40 sequences on 80 GB, to the last byte", (memory, weights, kv, tokens))


def cases(rng: random.Random) -> list[Case]:
    """The worked numbers; weights that do not fit; one sequence and 40 to the last byte, and one
    byte less; the same memory for another cache; large batches and contexts; then fresh ones."""
    many, long = edges.past(10**6), edges.past(2**20)
    worked = Case(
        "18.4B in int8 on 16 chips, 128,000 tokens",
        (16 * 16 * 10**9, 18_400_000_000, 262_144, 128_000),
    )
    fresh = []
    for i in range(6):
        kv, tokens = rng.randrange(1_000, 400_000), rng.randrange(100, 9_000)
        weights = rng.randrange(10**9, 10**11)
        memory = weights + kv * tokens * rng.randrange(1, 60) + rng.randrange(1, kv * tokens)
        fresh.append(Case(f"fresh {i + 1}", (memory, weights, kv, tokens), public=i < 3))
    return [
        Case("tiny: 100 bytes of memory, 40 of weights, 10 tokens of 2 bytes", (100, 40, 2, 10)),
        Case("the weights alone do not fit", (100, 170, 2, 10)),
        Case("the weights fit, and no sequence does", (59, 40, 2, 10)),
        Case("one byte short of three", (99, 40, 2, 10)),
        Case("20 TB free, 1,000 tokens of 1,000 bytes", (21 * 10**12, 10**12, 1_000, 1_000)),
        Case("the same memory for a token of 3 bytes", (99, 40, 3, 10)),
        Case("the same memory for 9 tokens", (99, 40, 2, 9)),
        Case("the weights fill the memory", (40, 40, 2, 10)),
        Case("one sequence, to the last byte", (60, 40, 2, 10)),
        Case("one token of one byte, to the last byte", (41, 40, 1, 1)),
        Case(f"{many:,} sequences, to the last byte", (10**12 + many * 96, 10**12, 2, 48)),
        Case(
            f"2 sequences of {long:,} tokens, to the last byte",
            (10**12 + 2 * 7 * long, 10**12, 7, long),
        ),
        worked,
        _forty(),
        Case(
            "one byte short of 40 sequences on 80 GB",
            (80 * 10**9 - 1, 80 * 10**9 - 40 * 10**9, 125_000, 8_000),
        ),
        Case(
            "one byte short of 930,000 sequences on a petabyte",
            (PETABYTE, PETABYTE - 930_000 * 2**30 + 1, 2**17, 2**13),
        ),
        Case(
            "one byte short of three sequences of 43 GB",
            (16 * 10**9 + 3 * 327_680 * 131_072 - 1, 16 * 10**9, 327_680, 131_072),
        ),
        Case("one byte short of one sequence of 5 TB", (5 * 10**12, 1, 10**6, 5 * 10**6)),
        Case("a petabyte of one byte per sequence", (PETABYTE, 1, 1, 1)),
        *fresh,
    ]


EXERCISE = Exercise(
    id="kv_cache-max_batch",
    title="How many sequences fit",
    kind="formula",
    points=2,
    minutes=8,
    entries=("max_batch",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        (
            "Write down what must be in memory at once: something that is there once, and something"
            " that each sequence brings."
        ),
        "weights + B × (bytes per token × tokens) ≤ memory. Solve for B.",
        (
            "Use integer division, so that nothing is lost to rounding, and think of weights that"
            " do not fit at all."
        ),
    ),
    ranges={"memory_bytes": (40, PETABYTE), "n_tokens": (1, 5 * 10**6)},
    recall=(
        "Which part of the memory budget does not grow with the batch?",
        "The weights: one copy serves every sequence.",
    ),
    # (memory - weights) / (bytes × tokens) is also the longest context of a batch: the same formula
    # under another name
)
