"""continuous_batching-pass_time: what a pass over several requests takes."""

from __future__ import annotations

import random

from twophase.checks.compare import FORMULA
from twophase.checks.edges import one_changed
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(
    starts: list[int],
    n_new: list[int],
    model: dict[str, float],
    bytes_per_s: float,
    flops_per_s: float,
) -> dict[str, float]:
    """The right answer."""
    pairs = sum(n * start + n * (n + 1) // 2 for start, n in zip(starts, n_new, strict=True))
    read = model["weight_bytes"] + sum(starts) * model["kv_bytes"]
    flops = sum(n_new) * model["token_flops"] + pairs * model["pair_flops"]
    reading, computing = read / bytes_per_s, flops / flops_per_s
    return {"read_s": reading, "compute_s": computing, "pass_s": max(reading, computing)}


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "weights_for_every_request",
    {'read = model["weight_bytes"]': 'read = len(n_new) * model["weight_bytes"]'},
    "requests served one after the other",
    "You read the weights once for each request. That is what a batch is for: one pass reads them"
    " once.",
)
_add(
    "cache_for_every_token",
    {
        'sum(starts) * model["kv_bytes"]': (
            'sum(s * n for s, n in zip(starts, n_new, strict=True)) * model["kv_bytes"]'
        )
    },
    "plausible",
    "You read a request's cache once for each of its new tokens: they attend together, and it is"
    " read once.",
)
_add(
    "longest_cache_for_all",
    {'sum(starts) * model["kv_bytes"]': 'len(starts) * max(starts) * model["kv_bytes"]'},
    "padded batches",
    "You read caches as long as the longest: each request reads its own.",
)
_add(
    "padded_tokens",
    {
        "sum(n * start + n * (n + 1) // 2 for start, n in zip(starts, n_new, strict=True))": (
            "sum(max(n_new) * start + max(n_new) * (max(n_new) + 1) // 2 for start in starts)"
        ),
        'sum(n_new) * model["token_flops"]': 'len(n_new) * max(n_new) * model["token_flops"]',
    },
    "padded batches",
    "You compute as many tokens for each request as for the longest chunk: in one row of tokens"
    " there is no padding.",
)
_add(
    "pairs_without_a_mask",
    {"n * start + n * (n + 1) // 2": "n * (start + n)"},
    "plausible",
    "You let every new token attend to all tokens of its request. Under the causal mask new token j"
    " (from 1) sees start + j.",
)
_add(
    "itself_not_seen",
    {"n * (n + 1) // 2": "n * (n - 1) // 2"},
    "plausible",
    "A token attends to itself, too: n·(n + 1)/2 pairs among n new tokens.",
)
_add(
    "past_not_attended",
    {"n * start + n * (n + 1) // 2": "n * (n + 1) // 2"},
    "the estimate for a whole prompt, used for a chunk",
    "You left out what the new tokens attend to behind them: start keys each.",
)
_add(
    "one_row_for_all",
    {
        "sum(n * start + n * (n + 1) // 2 for start, n in zip(starts, n_new, strict=True))": (
            "sum(n_new) * sum(starts) + sum(n_new) * (sum(n_new) + 1) // 2"
        )
    },
    "flattened tokens, with one mask over all",
    "You let requests attend to each other. In one row of tokens each still sees its own request"
    " only.",
)
_add(
    "added",
    {"max(reading, computing)": "reading + computing"},
    "plausible",
    "You add reading and computing. Here they overlap: the longer of the two counts.",
)

SMALL = {"weight_bytes": 16e9, "kv_bytes": 131072.0, "token_flops": 16e9, "pair_flops": 524288.0}

Args = tuple[list[int], list[int], dict[str, float], float, float]


def _three(reading: float, computing: float) -> dict[str, Args]:
    """Three requests that decode, and the same with one thing changed, for each. Who reads how much
    behind which cache: whoever sorts either list is wrong here."""
    starts, n_new, chunks = [100, 2000, 700], [1, 1, 1], [3, 1, 200]
    others = one_changed(
        SMALL, weight_bytes=14e9, kv_bytes=65536.0, token_flops=14e9, pair_flops=262144.0
    )
    return {
        "three decode": (starts, n_new, SMALL, reading, computing),
        "three decode behind other caches": ([0, 9000, 30], n_new, SMALL, reading, computing),
        "three decode, half as fast to read": (starts, n_new, SMALL, reading / 2, computing),
        "three decode, half as fast to compute": (starts, n_new, SMALL, reading, computing / 2),
        **{
            f"three decode, {what}": (starts, n_new, model, reading, computing)
            for what, model in others
        },
        "three chunks": (starts, chunks, SMALL, reading, computing),
        "the same chunks, the caches reversed": (starts[::-1], chunks, SMALL, reading, computing),
        "the same caches, the chunks reversed": (starts, chunks[::-1], SMALL, reading, computing),
    }


def cases(rng: random.Random) -> list[Case]:
    """Decoding alone, with each argument changed and each size of the model; a prompt alone, both;
    equal reading and computing; the most requests; fresh ones."""
    h100 = (3.35e12, 9.9e14)
    even = {"weight_bytes": 2.0**30, "kv_bytes": 0.0, "token_flops": 2.0**24, "pair_flops": 0.0}
    assert 64 * even["token_flops"] == even["weight_bytes"]

    def drawn(r: random.Random, n: int) -> tuple[list[int], list[int]]:
        return [r.randrange(0, 9000) for _ in range(n)], [
            r.choice((1, 1, 1, r.randrange(2, 700))) for _ in range(n)
        ]

    fixed = random.Random(15)
    most = [[*others, last] for others, last in zip(drawn(fixed, 399), (8000, 600), strict=True)]
    named = {
        **_three(*h100),
        "a prompt alone": ([0], [1000], SMALL, *h100),
        "two decode, a chunk of a prompt": ([100, 2000, 512], [1, 1, 256], SMALL, *h100),
        "two decode, a whole prompt": ([100, 2000, 0], [1, 1, 4000], SMALL, *h100),
        "a prompt of one token": ([0], [1], SMALL, *h100),
        "two prompts of different length": ([0, 0], [3, 9], SMALL, *h100),
        "a chunk behind 100,000 tokens": ([100_000], [512], SMALL, *h100),
        "a prompt of 100,000 tokens": ([0], [100_000], SMALL, *h100),
        "as long to read as to compute": ([5], [64], even, 2.0**40, 2.0**40),
        "a token more": ([5], [65], even, 2.0**40, 2.0**40),
        "a token less": ([5], [63], even, 2.0**40, 2.0**40),
        "attention counts alone": (
            [7, 3],
            [2, 5],
            {**even, "token_flops": 0.0, "pair_flops": 8.0},
            2.0**50,
            2.0**10,
        ),
        "caches count alone": (
            [7, 3],
            [2, 5],
            {**even, "weight_bytes": 0.0, "kv_bytes": 64.0},
            2.0**10,
            2.0**50,
        ),
        "two weights to a FLOP": ([9, 0], [1, 7], {**SMALL, "weight_bytes": 32e9}, *h100),
        "slow reading": ([9, 90], [1, 70], SMALL, 1e9, 9.9e14),
        "slow computing": ([9, 90], [1, 70], SMALL, 3.35e12, 1e10),
        "400 requests": (most[0], most[1], SMALL, *h100),
        "behind 200,000 tokens": ([200_000, 131_072], [1, 1], SMALL, *h100),
        "fresh 1": (*drawn(rng, 3), SMALL, *h100),
        "fresh 2": (*drawn(rng, 7), {k: v * rng.uniform(0.5, 2) for k, v in SMALL.items()}, *h100),
        "fresh 3": (*drawn(rng, 40), SMALL, 1e11, 5e12),
    }
    return [
        Case(name, args, public=name not in ("400 requests", "fresh 3"))
        for name, args in named.items()
    ]


EXERCISE = Exercise(
    id="continuous_batching-pass_time",
    title="Predict what a pass takes",
    kind="predict",
    points=3,
    minutes=10,
    entries=("pass_time",),
    cases=cases,
    reference=reference,
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        "What is read once for all, what once for each request, and what is computed for a token?",
        (
            "Read: weights once, and starts[i] keys and values of each request. Computed: every new"
            " token's products, and a query with each key that it sees."
        ),
        "Pairs of request i: n·start + n·(n + 1)/2. The pass takes the longer of the two times.",
    ),
    ranges={"len(n_new)": (1, 400)},
    recall=(
        "64 requests decode in one pass. How often are the weights read, and how often each cache?",
        "Once each: the weights once for all 64.",
    ),
)
