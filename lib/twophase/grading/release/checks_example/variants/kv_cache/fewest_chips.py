"""kv_cache-fewest_chips: how many chips a batch needs. Held back; stands where kv_cache-max_batch
stood."""

from __future__ import annotations

import random

from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()


def reference(
    chip_bytes: int, weight_bytes: int, kv_bytes_per_token: int, n_tokens: int, B: int
) -> int:
    """The right answer."""
    return -(-(weight_bytes + B * n_tokens * kv_bytes_per_token) // chip_bytes)


@wrong("plausible", "You rounded down: the last bytes have no chip.")
def rounded_down(
    chip_bytes: int, weight_bytes: int, kv_bytes_per_token: int, n_tokens: int, B: int
) -> int:
    return (weight_bytes + B * n_tokens * kv_bytes_per_token) // chip_bytes


@wrong(
    "plausible", "You add a chip even where the last one is exactly full: round up, do not add one."
)
def always_one_more(
    chip_bytes: int, weight_bytes: int, kv_bytes_per_token: int, n_tokens: int, B: int
) -> int:
    return (weight_bytes + B * n_tokens * kv_bytes_per_token) // chip_bytes + 1


@wrong("plausible", "These chips hold the cache and no weights.")
def weights_left_out(
    chip_bytes: int, weight_bytes: int, kv_bytes_per_token: int, n_tokens: int, B: int
) -> int:
    return -(-B * n_tokens * kv_bytes_per_token // chip_bytes)


@wrong(
    "plausible",
    "You gave every sequence its own copy of the weights: one copy serves the whole batch.",
)
def weights_per_sequence(
    chip_bytes: int, weight_bytes: int, kv_bytes_per_token: int, n_tokens: int, B: int
) -> int:
    return -(-B * (weight_bytes + n_tokens * kv_bytes_per_token) // chip_bytes)


@wrong(
    "plausible",
    "You rounded weights and cache up one by one: they may share a chip, so round their sum.",
)
def rounded_twice(
    chip_bytes: int, weight_bytes: int, kv_bytes_per_token: int, n_tokens: int, B: int
) -> int:
    return -(-weight_bytes // chip_bytes) - (-B * n_tokens * kv_bytes_per_token // chip_bytes)


def cases(rng: random.Random) -> list[Case]:
    """Numbers to do in the head; an exact fit and one byte more; then fresh ones."""
    fresh = []
    for i in range(6):
        kv, tokens, B = (
            rng.randrange(1_000, 400_000),
            rng.randrange(100, 9_000),
            rng.randrange(2, 90),
        )
        weights, chip = rng.randrange(10**9, 10**11), rng.randrange(16, 193) * 10**9
        fresh.append(Case(f"fresh {i + 1}", (chip, weights, kv, tokens, B), public=i < 3))
    return [
        Case(
            "tiny: chips of 100 bytes, 40 of weights, 3 sequences of 10 tokens of 2 bytes",
            (100, 40, 2, 10, 3),
        ),
        Case("one byte more than one chip has", (99, 40, 2, 10, 3)),
        Case("two chips, full to the last byte", (50, 40, 2, 10, 3)),
        Case("weights and cache share a chip", (100, 130, 2, 10, 3)),
        *fresh,
    ]


EXERCISE = Exercise(
    id="kv_cache-fewest_chips",
    title="How many chips a batch needs",
    kind="formula",
    points=2,
    minutes=8,
    entries=("fewest_chips",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Write down everything that must be in memory at once, in bytes.",
        "Weights once, and the cache of B sequences; divide by what one chip holds.",
        "Round up, in whole numbers: -(-a // b).",
    ),
    recall=("Why round the sum, and not its parts?", "Weights and cache may share a chip."),
)
