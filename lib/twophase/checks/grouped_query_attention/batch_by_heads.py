"""grouped_query_attention-batch_by_heads: the largest batch for every number of KV heads."""

from __future__ import annotations

import random

from twophase.checks import edges
from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

PETABYTE = 10**15  # bytes, the most that the task names


def reference(
    memory_bytes: int,
    other_params: int,
    L: int,
    D: int,
    N: int,
    H: int,
    n_tokens: int,
    bytes_per_value: int,
) -> list[tuple[int, int]]:
    """The right answer."""
    found = []
    for K in range(N, 0, -1):
        if N % K == 0:
            attention = L * 2 * D * (N + K) * H
            free = memory_bytes - (other_params + attention) * bytes_per_value
            cache = n_tokens * L * 2 * K * H * bytes_per_value
            found.append((K, max(0, free // cache)))
    return found


wrong.add(
    "weights_of_multi_head",
    replaced(reference, {"(N + K) * H": "(N + N) * H"}),
    "lecture tables that change the cache only",
    "The weights are those of multi-head attention at every K. Fewer KV heads have smaller key and"
    " value projections: L·2·D·(N + K)·H.",
)
wrong.add(
    "cache_of_query_heads",
    replaced(reference, {"2 * K * H * bytes": "2 * N * H * bytes"}),
    "KV calculators that multiply by query heads (modular handbook #131, LMCache #688)",
    "Your cache has N heads at every K. It holds K heads: that is what sharing is for.",
)
wrong.add(
    "powers_of_two",
    replaced(reference, {"if N % K == 0:": "if N % K == 0 and N // K & (N // K - 1) == 0:"}),
    "K halved until it is odd",
    "You try groups of 1, 2, 4, … heads only. Every K that divides N is a model.",
)
wrong.add(
    "every_k",
    replaced(reference, {"if N % K == 0:": "if K:"}),
    "plausible",
    "Some of your K do not divide N: the query heads cannot be shared evenly.",
)
wrong.add(
    "one_kv_head_left_out",
    replaced(reference, {"range(N, 0, -1)": "range(N, 1, -1)"}),
    "range without its end",
    "K = 1 is missing: multi-query attention, the smallest cache of all.",
)
wrong.add(
    "width_for_heads",
    replaced(reference, {"2 * D * (N + K) * H": "2 * D * (D + K * D // N)"}),
    "formulas that take D for N·H",
    "You took D for the width of all heads. N·H need not be D.",
)
wrong.add(
    "output_projection_left_out",
    replaced(reference, {"2 * D * (N + K) * H": "D * (N + 2 * K) * H"}),
    "plausible",
    "Attention has four projections: queries, keys, values and the output.",
)
wrong.add(
    "keys_only",
    replaced(reference, {"L * 2 * K * H": "L * K * H"}),
    "plausible",
    "The cache holds keys and values: twice K·H numbers for each token and layer.",
)
wrong.add(
    "negative_batch",
    replaced(reference, {"max(0, free // cache)": "free // cache"}),
    "plausible",
    "If the weights alone do not fit, the answer is 0 sequences, not a negative number of them.",
)
wrong.add(
    "rising",
    replaced(reference, {"range(N, 0, -1)": "range(1, N + 1)"}),
    "plausible",
    "The pairs are right, the order is not: begin with K = N, end with K = 1.",
)


def _full(sizes: tuple[int, int, int, int, int], K: int, B: int, n_tokens: int, b: int) -> int:
    """Memory that B sequences at K heads fill to the last byte."""
    other, L, D, N, H = sizes
    return (other + L * 2 * D * (N + K) * H + B * n_tokens * L * 2 * K * H) * b


def cases(rng: random.Random) -> list[Case]:
    """Tiny models; full to the last byte at one K and one byte less; weights that fit at small K
    only; N that is no power of two; Llama-2-13B; large ones; then fresh ones."""
    tiny = (7, 2, 3, 6, 2)
    llama = (13_015_864_320 - 40 * 4 * 5120**2, 40, 5120, 40, 128)
    wide = (10**6, edges.past(256), edges.past(2048), 3 * edges.past(64), edges.past(512))
    odd = (7, 1, 3, 7 * 11 * 13, 2)
    single = (0, 1000, 1, 1, 1000)  # a sequence of 2²⁰ tokens: 8 · 10¹² bytes, at 4 a number

    def case(
        name: str,
        memory: int,
        sizes: tuple[int, int, int, int, int],
        n_tokens: int,
        b: int,
        public: bool = True,
    ) -> Case:
        return Case(name, (memory, *sizes, n_tokens, b), public=public)

    fresh = []
    for i in range(5):
        N, H = rng.choice((6, 12, 20, 24, 28, 40)), 2 * rng.randrange(8, 80)
        sizes = rng.randrange(10**8, 10**10), rng.randrange(8, 80), rng.randrange(500, 9000), N, H
        n = rng.randrange(200, 9000)
        memory = _full(sizes, 2, rng.randrange(3, 90), n, 2) + rng.randrange(10**6)
        fresh.append(case(f"fresh {i + 1}", memory, sizes, n, 2, i < 2))
    return [
        case("one head", 100, (3, 1, 2, 1, 2), 3, 1),
        case("six heads", 3000, tiny, 5, 1),
        case("six heads, two bytes a number", 3000, tiny, 5, 2),
        case("three sequences at K = 3, to the last byte", _full(tiny, 3, 3, 5, 2), tiny, 5, 2),
        case("one byte less", _full(tiny, 3, 3, 5, 2) - 1, tiny, 5, 2),
        case("the weights fit at K = 1 only", _full(tiny, 1, 2, 1, 2), tiny, 1, 2),
        case("no weights fit", 10, tiny, 5, 2),
        case("the weights and nothing else", _full(tiny, 6, 0, 1, 1), tiny, 1, 1),
        case("another width", 3000, (7, 2, 4, 6, 2), 5, 1),
        case("another width of a head", 3000, (7, 2, 3, 6, 3), 5, 1),
        case("other heads", 3000, (7, 2, 3, 4, 2), 5, 1),
        case("one layer more", 3000, (7, 3, 3, 6, 2), 5, 1),
        case("other parameters", 3000, (700, 2, 3, 6, 2), 5, 1),
        case("one token more", 3000, tiny, 6, 1),
        case("Llama-2-13B, 1,024 tokens, one H100", 80 * 10**9, llama, 1024, 2),
        case("Llama-2-13B, 1,024 tokens, four of them", 320 * 10**9, llama, 1024, 2),
        case("40 heads of 4 bytes", 90 * 10**9, (10**9, 40, 5120, 40, 128), 2048, 4),
        case("64 heads", 10**12, (6 * 10**10, 80, 8192, 64, 128), 2**20, 2),
        case("many heads, wide ones", _full(wide, 67, 9, 5003, 2), wide, 5003, 2),
        case(
            "one byte short of 930,000 sequences at K = 5 on a petabyte",
            _full((10**9, 1, 5120, 40, 128), 5, 930_000, 419_000, 2) - 1,
            (10**9, 1, 5120, 40, 128),
            419_000,
            2,
        ),
        case("1,001 heads, in groups of 7, 11 and 13", _full(odd, 77, 2, 5, 1), odd, 5, 1),
        case(
            "a byte short of a single large sequence",
            _full(single, 1, 1, 2**20, 4) - 1,
            single,
            2**20,
            4,
        ),
        case("a petabyte", PETABYTE, (10**9, 1, 5120, 40, 128), 419_000, 2),
        *fresh,
    ]


EXERCISE = Exercise(
    id="grouped_query_attention-batch_by_heads",
    title="The largest batch for every K",
    kind="formula",
    points=3,
    minutes=15,
    entries=("batch_by_heads",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Two things shrink with K: the cache of a sequence, and two of the four projections.",
        (
            "Attention has L·2·D·(N + K)·H parameters, a sequence n_tokens·L·2·K·H cached numbers;"
            " all of them take bytes_per_value."
        ),
        (
            "for K in range(N, 0, −1), if N % K == 0: the free bytes over a sequence's cache,"
            " rounded down, at least 0."
        ),
    ),
    ranges={"memory_bytes": (10, PETABYTE), "n_tokens": (1, 2**20), "bytes_per_value": (1, 4)},
    recall=(
        "Why does a model with fewer KV heads hold more sequences than its smaller cache alone"
        " explains?",
        "Its key and value projections shrink as well, and what they leave free goes to caches.",
    ),
)
