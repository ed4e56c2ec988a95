"""kv_cache-budget: the longest context that weights, activations and overhead leave room for."""

from __future__ import annotations

import random

from twophase.checks import edges
from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

Sizes = tuple[int, int, int, int, int, int, int]


def reference(
    memory_bytes: int,
    n_params: int,
    bytes_per_param: int,
    B: int,
    kv_bytes_per_token: int,
    activation_bytes: int,
    overhead_percent: int,
) -> int:
    """The right answer: (weights + activations + cache) · (1 + overhead) ≤ memory, in whole
    numbers."""
    fixed = n_params * bytes_per_param + activation_bytes
    free_times_100 = 100 * memory_bytes - (100 + overhead_percent) * fixed
    return max(0, free_times_100 // ((100 + overhead_percent) * B * kv_bytes_per_token))


@wrong(
    "plausible",
    "The overhead is missing: context, allocator and fragmentation take overhead_percent on top of"
    " the rest.",
)
def overhead_left_out(
    memory: int, n: int, width: int, B: int, kv: int, activations: int, percent: int
) -> int:
    return max(0, (memory - n * width - activations) // (B * kv))


@wrong(
    "plausible",
    "You took the percentage of the chip's memory. Here it is a percentage of weights, activations"
    " and cache together.",
)
def overhead_of_the_chip(
    memory: int, n: int, width: int, B: int, kv: int, activations: int, percent: int
) -> int:
    return max(0, ((100 - percent) * memory - 100 * (n * width + activations)) // (100 * B * kv))


@wrong(
    "plausible",
    "You put the overhead on the weights alone: it also comes on top of activations and cache.",
)
def overhead_of_the_weights(
    memory: int, n: int, width: int, B: int, kv: int, activations: int, percent: int
) -> int:
    return max(
        0, (100 * memory - (100 + percent) * n * width - 100 * activations) // (100 * B * kv)
    )


@wrong("plausible", "The activations are missing: they must fit beside weights and cache.")
def activations_left_out(
    memory: int, n: int, width: int, B: int, kv: int, activations: int, percent: int
) -> int:
    return reference(memory, n, width, B, kv, 0, percent)


@wrong(
    "plausible",
    "You used the number of parameters as if it were bytes: multiply by bytes_per_param.",
)
def params_not_bytes(
    memory: int, n: int, width: int, B: int, kv: int, activations: int, percent: int
) -> int:
    return reference(memory, n, 1, B, kv, activations, percent)


@wrong("plausible", "This is the context of one sequence alone: B of them share the memory.")
def one_sequence(
    memory: int, n: int, width: int, B: int, kv: int, activations: int, percent: int
) -> int:
    return reference(memory, n, width, 1, kv, activations, percent)


@wrong(
    "plausible",
    "You gave every sequence its own copy of the weights: one copy serves the whole batch.",
)
def weights_per_sequence(
    memory: int, n: int, width: int, B: int, kv: int, activations: int, percent: int
) -> int:
    return reference(memory, n * B, width, B, kv, activations, percent)


@wrong("plausible", "A context is a whole number of tokens: round down.")
def not_rounded(
    memory: int, n: int, width: int, B: int, kv: int, activations: int, percent: int
) -> float:
    return max(0.0, (memory / (1 + percent / 100) - n * width - activations) / (B * kv))


@wrong(
    "plausible",
    "If weights and activations alone do not fit, the answer is 0 tokens, not a negative number.",
)
def negative_context(
    memory: int, n: int, width: int, B: int, kv: int, activations: int, percent: int
) -> int:
    return (100 * memory - (100 + percent) * (n * width + activations)) // (
        (100 + percent) * B * kv
    )


@wrong(
    "the obvious formula, in floating point",
    "1 + overhead_percent / 100 is seldom exact in floating point: a budget that fits to the last"
    " byte comes out a token short. Multiply by 100 and stay in whole numbers.",
)
def percent_in_floats(
    memory: int, n: int, width: int, B: int, kv: int, activations: int, percent: int
) -> int:
    return max(0, int((memory / (1 + percent / 100) - n * width - activations) // (B * kv)))


@wrong(
    "plausible",
    "You rounded the overhead down to whole bytes: then the last token needs a part of a byte more"
    " than there is.",
)
def overhead_rounded_down(
    memory: int, n: int, width: int, B: int, kv: int, activations: int, percent: int
) -> int:
    usable = -(-100 * memory // (100 + percent))
    return max(0, (usable - n * width - activations) // (B * kv))


def _fitted(percent: int, tokens: int, spare_bytes: int = 0) -> Case:
    """Llama-2-7B in fp16 for one sequence, in the memory that this many tokens fill to the last
    byte."""
    used = (100 + percent) * (6_738_415_616 * 2 + 500_000_000 + 524_288 * tokens)  # hundredths
    assert used % 100 == 0, "the overhead is a whole number of bytes"
    sizes = (6_738_415_616, 2, 1, 524_288, 500_000_000, percent)
    fits = "to the last byte" if spare_bytes == 0 else "but for one byte"
    return Case(
        f"{tokens:,} tokens fit {fits}, {percent}% overhead",
        (used // 100 + spare_bytes, *sizes),
    )


def _cluster() -> Case:
    """Thousands of chips, and a last token for which a hundredth of a byte is missing: a quotient
    that a float rounds up to a whole number."""
    sizes = n_params, width, B, kv, activations, percent = 10**13, 2, 5_000, 21_504, 10**12 + 1, 1
    tokens = 8_400_000
    fixed, cache = n_params * width + activations, B * kv * tokens
    memory = (100 + percent) * (fixed + cache) // 100
    free_times_100 = 100 * memory - (100 + percent) * fixed
    assert free_times_100 == (100 + percent) * cache - 1, "a hundredth of a byte is missing"
    assert int(free_times_100 / ((100 + percent) * B * kv)) == tokens, "floats do not see it"
    assert int(100 * memory / (100 + percent)) == fixed + cache, "nor in the room below"
    return Case("933 TB, a hundredth of a byte too small for 8,400,000 tokens", (memory, *sizes))


def _fresh(rng: random.Random) -> Sizes:
    """A budget whose answer ends in the middle of a token."""
    n_params, width = rng.randrange(10**8, 10**10), rng.choice((1, 2, 4, 2))
    B, kv = rng.randrange(2, 40), rng.randrange(1_000, 400_000)
    activations, percent = rng.randrange(10**7, 10**9), rng.randrange(3, 25)
    tokens = rng.randrange(100, 9_000)
    used = n_params * width + activations + B * kv * tokens + B * kv * rng.randrange(30, 70) // 100
    return used * (100 + percent) // 100, n_params, width, B, kv, activations, percent


def cases(rng: random.Random) -> list[Case]:
    """An exact fit without overhead, weights that do not fit, the chapter's models; fits to the
    last byte and to a part of one, on hundreds of TB too; every width; long contexts; then fresh
    ones."""
    exact = [_fitted(p, t, b) for p, t in ((10, 4096), (35, 4096), (5, 4096)) for b in (0, -1)]
    many, long = edges.past(4096), edges.past(2**20)
    fresh = [Case(f"fresh {i + 1}", _fresh(rng), public=i < 3) for i in range(6)]
    return [
        Case(
            "tiny: 100 bytes of memory, 20 of weights, 4 of activations, no overhead",
            (100, 10, 2, 2, 2, 4, 0),
        ),
        Case("the same with 15% overhead", (100, 10, 2, 2, 2, 4, 15)),
        Case("the same with one parameter more", (100, 11, 2, 2, 2, 4, 0)),
        Case("the same for three sequences", (100, 10, 2, 3, 2, 4, 0)),
        Case("the same for a token of three bytes", (100, 10, 2, 2, 3, 4, 0)),
        Case("the same with nine bytes of activations", (100, 10, 2, 2, 2, 9, 0)),
        Case("hardly more than a cache of ten tokens", (105, 1, 1, 1, 10, 1, 0)),
        Case("the weights do not fit", (100, 60, 2, 2, 2, 4, 10)),
        Case("one token each for two sequences, to the last byte", (28, 10, 2, 2, 2, 4, 0)),
        Case("weights and activations fill the memory", (24, 10, 2, 2, 2, 4, 0)),
        Case("one token of one byte, to the last byte", (25, 10, 2, 1, 1, 4, 0)),
        Case("26 bytes and 15%, 29.9 in all, in 29 bytes", (29, 18, 1, 2, 2, 4, 15)),
        Case("26 bytes and 15%, 29.9 in all, in 30 bytes", (30, 18, 1, 2, 2, 4, 15)),
        Case("an overhead of 150%", (125, 10, 2, 2, 2, 4, 150)),
        *(Case(f"{w} bytes per parameter", (1_000, 50, w, 3, 7, 90, 12)) for w in (1, 2, 4)),
        Case(f"{many:,} sequences", (10**9, 10**6, 2, many, 50, 10**6, 8)),
        Case(f"{long:,} tokens", (3 * long + 10**9, 10**8, 2, 1, 3, 8 * 10**8, 0)),
        Case(
            "Llama-2-7B in fp16 on 24 GB",
            (24 * 10**9, 6_738_415_616, 2, 1, 524_288, 500_000_000, 15),
        ),
        Case(
            "Mistral-7B in fp16 on 24 GB, four sequences",
            (24 * 10**9, 7_241_732_096, 2, 4, 131_072, 750_000_000, 10),
        ),
        Case(
            "a cache of 1,000 bytes per token on 80 GB",
            (80 * 10**9, 6_738_415_616, 2, 1, 1_000, 10**9, 20),
        ),
        Case("a petabyte, a token of one byte: almost as many tokens", (10**15, 1, 1, 1, 1, 1, 0)),
        *exact,
        _cluster(),
        *fresh,
    ]


EXERCISE = Exercise(
    id="kv_cache-budget",
    title="The longest context in a budget",
    kind="formula",
    points=3,
    minutes=12,
    entries=("longest_context",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Write the four terms of the budget as one inequality before you solve for anything.",
        (
            "(weights + activations + B · S · kv_bytes_per_token) · (1 + overhead_percent / 100) ≤"
            " memory_bytes."
        ),
        (
            "Divide the memory by (1 + overhead), subtract what is fixed, divide by what one more"
            " token costs all B sequences."
        ),
    ),
    ranges={"overhead_percent": (0, 150), "bytes_per_param": (1, 4)},
    recall=(
        "A chip has 10% less room than its label says. Which term of the budget shrinks?",
        "Only the cache can: weights are fixed, so the context or the batch gives way.",
    ),
)
