"""kv_cache-kv_bytes: what one cached token costs."""

from __future__ import annotations

import random

from twophase.checks import edges
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()


def reference(L: int, D: int, N: int, K: int, H: int, bytes_per_value: float) -> float:
    """The right answer."""
    return 2 * L * K * H * bytes_per_value


@wrong(
    "KV calculators: LMCache #688; lecture notes on Mistral-7B",
    "You counted the query heads. Queries are used once and forgotten; only the K key and value"
    " heads are cached.",
)
def query_heads(L: int, D: int, N: int, K: int, H: int, bytes_per_value: float) -> float:
    return 2 * L * N * H * bytes_per_value


@wrong("plausible", "This is half of it: each head caches a key and a value.")
def keys_only(L: int, D: int, N: int, K: int, H: int, bytes_per_value: float) -> float:
    return L * K * H * bytes_per_value


@wrong(
    "lecture notes that give the size per layer",
    "This is the cache of one layer. Every layer has keys and values of its own.",
)
def one_layer(L: int, D: int, N: int, K: int, H: int, bytes_per_value: float) -> float:
    return 2 * K * H * bytes_per_value


@wrong(
    "a blog's formula 2·L·K·H·T, called bytes",
    "You counted numbers, not bytes: multiply by the bytes of one number.",
)
def values_not_bytes(L: int, D: int, N: int, K: int, H: int, bytes_per_value: float) -> float:
    return 2 * L * K * H


@wrong("plausible", "You took two bytes per number whatever the format: use bytes_per_value.")
def always_two_bytes(L: int, D: int, N: int, K: int, H: int, bytes_per_value: float) -> float:
    return 2 * L * K * H * 2


@wrong(
    "the rule of thumb 2·L·D for multi-head attention",
    "D is the width of the residual stream. Keys and values have width K·H, and it need not be D.",
)
def model_width(L: int, D: int, N: int, K: int, H: int, bytes_per_value: float) -> float:
    return 2 * L * D * bytes_per_value


@wrong("plausible", "You took D/N for the head width. H is given, and N·H need not be D.")
def width_per_group(L: int, D: int, N: int, K: int, H: int, bytes_per_value: float) -> float:
    return 2 * L * D * K / N * bytes_per_value


@wrong(
    "whole bytes assumed",
    "You rounded the bytes of one number to a whole number: a 4-bit number takes half a byte, and"
    " two of them share one.",
)
def whole_bytes(L: int, D: int, N: int, K: int, H: int, bytes_per_value: float) -> float:
    return 2 * L * K * H * int(bytes_per_value)


@wrong(
    "the rule of thumb 2·L·D, kept for models without grouped queries",
    "With K = N you took D for the width of the keys. It is K·H also then, and need not be D.",
)
def model_width_without_groups(
    L: int, D: int, N: int, K: int, H: int, bytes_per_value: float
) -> float:
    return 2 * L * (D if K == N else K * H) * bytes_per_value


def _largest() -> Case:
    """More of each than the largest models have, and more numbers than 32 bits can count."""
    L, heads, H = edges.past(1024), edges.past(2048), edges.past(1024)
    assert 2 * L * heads * H > 2**32
    return Case("more layers and heads than any model has", (L, 8192, heads, heads, H, 2))


def cases(rng: random.Random) -> list[Case]:
    """A tiny model, the models of the chapter; every width of number, one KV head, as many as
    queries, more layers than any table has; then fresh ones with N·H unlike D."""
    wide = (5, 100, 6, 3, 10)  # N·H = 60 is not D
    named = dict(zip(("L", "D", "N", "K", "H", "bytes_per_value"), (*wide, 2), strict=True))
    changed = edges.one_changed(named, L=7, K=2, H=12)
    fresh = []
    for i in range(6):
        K, G = rng.randrange(1, 9), rng.randrange(2, 9)
        H = rng.choice((48, 64, 80, 96, 128, 192, 256))
        D = K * G * H + 64 * rng.randrange(1, 20)
        sizes = (rng.randrange(2, 97), D, K * G, K, H, (1, 4, 0.5, 2, 1, 4)[i])
        fresh.append(Case(f"fresh {i + 1}", sizes, public=i < 3))
    return [
        Case("tiny: L=3, D=40, N=4, K=2, H=8, one byte per value", (3, 40, 4, 2, 8, 1)),
        Case("Llama-2-7B in fp16", (32, 4096, 32, 32, 128, 2)),
        Case("Mistral-7B in fp16", (32, 4096, 32, 8, 128, 2)),
        Case("the 18.4B model in int8", (64, 4096, 32, 8, 256, 1)),
        *(Case(f"L=5, D=100, N=6, K=3, H=10, {b} bytes", (*wide, b)) for b in (4, 2, 1, 0.5)),
        *(Case(f"2 bytes each, {name}", tuple(sizes.values())) for name, sizes in changed),
        Case("one KV head of width 2, half a byte per value", (1, 12, 3, 1, 2, 0.5)),
        Case("as many KV heads as query heads, N·H = 96, D = 160", (7, 160, 8, 8, 12, 2)),
        Case("heads of width 257", (3, 1024, 4, 2, edges.past(256), 2)),
        Case("K = N, and K·H = 35 is odd and more than D", (3, 20, 5, 5, 7, 0.5)),
        _largest(),
        *fresh,
    ]


EXERCISE = Exercise(
    id="kv_cache-kv_bytes",
    title="What a token costs",
    kind="formula",
    points=2,
    minutes=8,
    entries=("kv_bytes",),
    cases=cases,
    reference=reference,
    misconceptions=tuple(wrong),
    hints=(
        "Which projections of a token does a later token need again?",
        "A key and a value, for each KV head, in each layer: count the numbers, then turn them "
        "into bytes.",
        "2 · L · K · H numbers. N and D do not occur.",
    ),
    ranges={"bytes_per_value": (0.5, 4)},
    recall=(
        "Which sizes of a model decide what one cached token costs?",
        "Layers, KV heads, head width and bytes per value, times two for key and value; neither D "
        "nor the query heads.",
    ),
)
