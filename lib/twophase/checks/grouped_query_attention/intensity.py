"""grouped_query_attention-intensity: FLOPs per byte of attention with shared heads."""

from __future__ import annotations

import random

from twophase.checks import edges
from twophase.checks.compare import FORMULA
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(T: int, S: int, N: int, K: int, H: int, bytes_q: float, bytes_kv: float) -> float:
    """The right answer."""
    flops = 2 * (2 * T * S * N * H)
    moved = bytes_q * (2 * T * N * H) + bytes_kv * (2 * S * K * H)
    return flops / moved


wrong.add(
    "a_cache_of_query_heads",
    replaced(reference, {"2 * S * K * H": "2 * S * N * H"}),
    "KV calculators that multiply by query heads (modular handbook #131, LMCache #688)",
    "You let the cache hold N heads: this is the intensity of multi-head attention. Keys and values"
    " of K heads are read.",
)
wrong.add(
    "work_of_kv_heads",
    replaced(reference, {"2 * (2 * T * S * N * H)": "2 * (2 * T * S * K * H)"}),
    "plausible",
    "You counted FLOPs for K heads. Sharing keys saves no arithmetic: every one of the N query"
    " heads meets all S keys.",
)
wrong.add(
    "queries_left_out",
    replaced(reference, {"bytes_q * (2 * T * N * H) + ": "0 * bytes_q + "}),
    "“intensity is G”, taken for exact",
    "This is the limit for long contexts. Queries are read and outputs written as well, which"
    " matters when G·T is not small beside S.",
)
wrong.add(
    "outputs_left_out",
    replaced(reference, {"2 * T * N * H) +": "T * N * H) +"}),
    "plausible",
    "The queries are read, but the outputs are written as well: 2·T·N·H numbers.",
)
wrong.add(
    "keys_only",
    replaced(reference, {"2 * S * K * H": "S * K * H"}),
    "plausible",
    "Values are read as well as keys.",
)
wrong.add(
    "scores_only",
    replaced(reference, {"2 * (2 * T * S * N * H)": "2 * T * S * N * H"}),
    "one matrix product counted for two",
    "You are short by a factor of 2: there are two products, scores and weighted values, and in"
    " each a multiply and an add.",
)
wrong.add(
    "formats_swapped",
    replaced(reference, {"bytes_q * (": "bytes_kv * (", "bytes_kv * (2 * S": "bytes_q * (2 * S"}),
    "plausible",
    "You swapped the formats: queries and outputs take bytes_q each, the cache bytes_kv.",
)


def cases(rng: random.Random) -> list[Case]:
    """One query over a long cache; each argument changed alone; MHA and MQA; other formats; sizes
    past any constant; then fresh ones."""
    names = ("T", "S", "N", "K", "H", "bytes_q", "bytes_kv")

    def case(*sizes: float, public: bool = True) -> Case:
        name = ", ".join(f"{n}={x:,}" for n, x in zip(names, sizes, strict=True))
        return Case(name, sizes, public=public)

    usual = dict(zip(names, (2, 24, 8, 2, 4, 2, 2), strict=True))
    others = {"T": 3, "S": 25, "N": 16, "K": 4, "H": 6, "bytes_q": 4, "bytes_kv": 1}
    fresh = []
    for i in range(5):
        K, T = rng.randrange(1, 9), rng.randrange(1, 6)
        sizes = T, T + rng.randrange(1, 4000), K * rng.randrange(1, 9), K, 2 * rng.randrange(8, 99)
        formats = rng.choice((2, 4)), rng.choice((0.5, 1, 2, 4))
        fresh.append(case(*sizes, *formats, public=i < 2))
    return [
        case(1, 1, 1, 1, 1, 1, 1),
        case(1, 1024, 40, 40, 128, 2, 2),
        case(1, 1024, 40, 8, 128, 2, 2),
        case(1, 1024, 40, 1, 128, 2, 2),
        case(*usual.values()),
        *(case(*{**usual, name: value}.values()) for name, value in others.items()),
        case(1, 32, 8, 2, 4, 2, 0.5),
        case(1, 32, 8, 2, 4, 2, 4),
        case(8, 8, 6, 3, 4, 2, 2),
        case(1, edges.past(2**20), 64, 8, 128, 2, 1),
        case(edges.past(2048), edges.past(4096), 3 * edges.past(256), edges.past(256), 576, 2, 2),
        *fresh,
    ]


EXERCISE = Exercise(
    id="grouped_query_attention-intensity",
    title="The intensity of shared heads",
    kind="formula",
    points=2,
    minutes=10,
    entries=("intensity",),
    cases=cases,
    reference=reference,
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        "Count FLOPs first: which of T, S, N, K, H does the work depend on?",
        (
            "Two products (scores, weighted values), each 2·T·S·N·H FLOPs. Bytes: queries read,"
            " outputs written, keys and values of K heads read."
        ),
        "4·T·S·N·H over bytes_q·2·T·N·H + bytes_kv·2·S·K·H.",
    ),
    ranges={"T": (1, 2048), "S": (1, 2**20), "bytes_kv": (0.5, 4)},
    recall=(
        "What is the intensity of a bf16 decode step of attention over a long cache, with G query"
        " heads per KV head?",
        "About G FLOPs per byte, less as soon as G is no longer small beside the context.",
    ),
)
