"""latency_throughput-decode_point: latency and throughput of a decode step from the model's sizes,
if it fits."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from twophase.checks import edges
from twophase.checks.answer import Answer
from twophase.checks.compare import FORMULA, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

Sizes = dict[str, int]
Point = tuple[float, float] | None
LLAMA = {"L": 40, "D": 5120, "F": 13824, "N": 40, "K": 40, "H": 128, "V": 32000}
H100 = (80e9, 3.35e12)
ODD = {"L": 41, "D": 5119, "F": 13829, "N": 39, "K": 13, "H": 127, "V": 32003}  # no power of 2


def weights(m: Sizes, kv_heads: str = "K", tables: int = 2, mlp: int = 3) -> int:
    attention = 2 * m["D"] * m["N"] * m["H"] + 2 * m["D"] * m[kv_heads] * m["H"]
    return 2 * (m["L"] * (attention + mlp * m["D"] * m["F"]) + tables * m["V"] * m["D"])


def cache(m: Sizes, S: int, heads: str = "K", values: int = 2) -> int:
    return 2 * values * m["L"] * m[heads] * m["H"] * S


def _point(
    weight_bytes: Callable[[Sizes], int] = weights,
    cache_bytes: Callable[[Sizes, int], int] = cache,
    fits: Callable[[int, int, float], bool] = lambda w, caches, memory: w + caches <= memory,
    rate: Callable[[int, float], float] = lambda B, step_s: B / step_s,
) -> Callable[..., Point]:
    """The calculation with one part replaced; with none replaced it is right."""

    def decode_point(
        model: Sizes, B: int, S: int, memory_bytes: float, bytes_per_s: float
    ) -> Point:
        w, caches = weight_bytes(model), B * cache_bytes(model, S)
        if not fits(w, caches, memory_bytes):
            return None
        step_s = (w + caches) / bytes_per_s
        return step_s, rate(B, step_s)

    return decode_point


def _model(rng: random.Random) -> Sizes:
    """Sizes of some model: grouped heads, and N·H never D."""
    K, G, H = rng.randrange(2, 9), rng.randrange(2, 7), rng.choice((64, 80, 96, 128))
    D = K * G * H + rng.choice((-1, 1)) * rng.randrange(1, K * G * H // 2)
    L, F, V = rng.randrange(8, 60), 3 * D + rng.randrange(1, D), rng.randrange(20_000, 150_000)
    return {"L": L, "D": D, "F": F, "N": K * G, "K": K, "H": H, "V": V}


def observe(answer: Answer, case: Case) -> Any:
    """What decode_point returns; an array will do for a list."""
    return plain(answer.call("decode_point", *case.args))


def cases(rng: random.Random) -> list[Case]:
    """Tiny sizes at the edge of fitting; Llama-2-13B with and without GQA, and at its edge; one KV
    head, a small table, many sequences and tokens; then fresh ones."""
    tiny = {"L": 1, "D": 3, "F": 5, "N": 4, "K": 2, "H": 2, "V": 7}
    full = weights(tiny) + 2 * cache(tiny, 3)
    llama_full = weights(LLAMA) + 64 * cache(LLAMA, 1024)
    largest = weights(LLAMA) + 2053 * cache(LLAMA, 262_147)
    odd_full = float(weights(ODD) + 67 * cache(ODD, 1021))
    backwards = dict(reversed({**tiny, "V": 2}.items()))
    mqa = {**tiny, "K": 1}
    changed = edges.one_changed(mqa, L=2, D=4, F=6, N=5, H=3, V=8)
    deep = {**tiny, "L": edges.past(1024), "N": edges.past(128), "K": edges.past(128)}
    grouped = {**LLAMA, "K": 8}
    fresh = []
    for i in range(5):
        m, B, S = _model(rng), rng.randrange(2, 40), rng.randrange(200, 5000)
        need = weights(m) + B * cache(m, S)
        memory = need * (rng.uniform(0.9, 0.99) if i == 3 else rng.uniform(1.01, 1.1))
        fresh.append(
            Case(f"fresh {i + 1}", (m, B, S, memory, rng.uniform(1e12, 8e12)), public=i < 2)
        )
    return [
        Case(f"{tiny}, B=2, S=3: memory is just enough", (tiny, 2, 3, full, 100)),
        Case(f"{tiny}, B=2, S=3: one byte short", (tiny, 2, 3, full - 1, 100)),
        Case(f"{tiny}, B=2, S=3: a fifth short", (tiny, 2, 3, full * 4 // 5, 100)),
        Case(f"{tiny}, B=1, S=1: not even the weights fit", (tiny, 1, 1, weights(tiny) // 2, 100)),
        Case("Llama-2-13B on an H100, B=1", (LLAMA, 1, 1024, *H100)),
        Case("Llama-2-13B on an H100, B=64", (LLAMA, 64, 1024, *H100)),
        Case("Llama-2-13B on an H100, B=256", (LLAMA, 256, 1024, *H100)),
        Case("with 8 KV heads, B=256", (grouped, 256, 1024, *H100)),
        Case("with 8 KV heads, B=600", (grouped, 600, 1024, *H100)),
        Case("Llama-2-13B, B=64: memory is just enough", (LLAMA, 64, 1024, llama_full, 3.35e12)),
        Case("Llama-2-13B, B=64: one byte short", (LLAMA, 64, 1024, llama_full - 1, 3.35e12)),
        Case(f"{backwards}, B=2, S=3: a table smaller than D", (backwards, 2, 3, 1e6, 100)),
        Case("2,053 × 262,147 tokens, just enough", (LLAMA, 2053, 262_147, largest, 3.35e12)),
        Case(
            "2,053 × 262,147 tokens, one byte short", (LLAMA, 2053, 262_147, largest - 1, 3.35e12)
        ),
        Case("odd sizes, B=67: memory is just enough, a float", (ODD, 67, 1021, odd_full, 3.35e12)),
        Case("odd sizes, B=67: one byte short, a float", (ODD, 67, 1021, odd_full - 1, 3.35e12)),
        Case("as many KV heads as query heads, N·H is not D", ({**tiny, "K": 4}, 2, 3, 1e6, 100)),
        Case("one KV head for all", (mqa, 2, 3, 1e6, 100)),
        *(Case(f"one KV head for all, {name}", (m, 2, 3, 1e6, 100)) for name, m in changed),
        Case("one KV head for all, but for S=4", (mqa, 2, 4, 1e6, 100)),
        Case("one KV head for all, read at 50 bytes per second", (mqa, 2, 3, 1e6, 50)),
        Case(f"{deep}, B=2, S=3", (deep, 2, 3, 1e8, 100)),
        Case(f"{tiny}, B=3, S=262,147", (tiny, 3, 262_147, 1e8, 100)),
        Case(f"{tiny}, B=2,053, S=3", (tiny, 2053, 3, 1e8, 100)),
        *fresh,
    ]


wrong.add(
    "query_heads_cached",
    _point(cache_bytes=lambda m, S: cache(m, S, heads="N")),
    "KV calculators (modular handbook #131, LMCache #688)",
    "You cached N heads: only the K key and value heads are stored, and the query heads of a group"
    " share them.",
)
wrong.add(
    "query_heads_projected",
    _point(weight_bytes=lambda m: weights(m, kv_heads="N")),
    "tables that change the cache under GQA and not the weights",
    "GQA shrinks the weights, too: the key and value projections are D × K·H, not D × N·H.",
)
wrong.add(
    "does_not_fit_ignored",
    _point(fits=lambda w, caches, memory: True),
    "the lecture notes' row for B = 256",
    "This batch does not fit in memory, so it has no latency: the task asks for None.",
)
wrong.add(
    "cache_alone_fits",
    _point(fits=lambda w, caches, memory: caches <= memory),
    "plausible",
    "You looked only for room for the caches: the weights are in the same memory.",
)
wrong.add(
    "each_alone_fits",
    _point(fits=lambda w, caches, memory: max(w, caches) <= memory),
    "plausible",
    "You compared weights and caches with the memory one by one: they must fit together.",
)
wrong.add(
    "edge_refused",
    _point(fits=lambda w, caches, memory: w + caches < memory),
    "plausible",
    "What fills the memory to the last byte still fits: ≤, not <.",
)
wrong.add(
    "throughput_of_one",
    _point(rate=lambda B, step_s: 1 / step_s),
    "plausible",
    "1 / latency is the rate of one sequence. A step gives one token to each of B sequences.",
)
wrong.add(
    "one_table",
    _point(weight_bytes=lambda m: weights(m, tables=1)),
    "plausible",
    "There are two tables of V × D here, the embedding and the output matrix: they are not tied.",
)
wrong.add(
    "two_matrix_mlp",
    _point(weight_bytes=lambda m: weights(m, mlp=2)),
    "formulas for the MLP of 2017",
    "The MLP is gated: three matrices of D × F.",
)
wrong.add(
    "keys_only",
    _point(cache_bytes=lambda m, S: cache(m, S, values=1)),
    "plausible",
    "You stored the keys and not the values: the factor 2 is missing from the cache.",
)


EXERCISE = Exercise(
    id="latency_throughput-decode_point",
    title="Latency and throughput of a batch, if it fits",
    kind="formula",
    points=3,
    minutes=15,
    entries=("decode_point",),
    cases=cases,
    observe=observe,
    reference=_point(),
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        (
            "Three numbers first: bytes of the weights, bytes of one sequence's cache, and their"
            " sum for the batch."
        ),
        (
            "Weights: L × (2·D·N·H + 2·D·K·H + 3·D·F) + 2·V·D numbers. One cache: S × L × 2·K·H"
            " numbers. Two bytes each."
        ),
        (
            "If the sum is above memory_bytes: None. Else step = sum / bytes_per_s, and B tokens"
            " per step."
        ),
    ),
    ranges={"B": (1, 2053), "S": (1, 262_147), "memory_bytes": (159, 4.4e14)},
    recall=(
        "Why does GQA raise throughput twice over?",
        "At the same batch each step reads less; and the memory now holds a larger batch.",
    ),
)
