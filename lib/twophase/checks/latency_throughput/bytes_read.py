"""latency_throughput-bytes_read: predict what one decode step of a whole transformer reads.

The right answer is a formula; a test holds it to the meter, for every case that a machine can run.
"""

from __future__ import annotations

import random
from typing import Any

from twophase.checks import edges
from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

Sizes = dict[str, Any]

# 2⁵³ lies below this many bytes, and 2⁶³ above: a float drops the last ones
ODD = {"L": 3, "D": 5, "F": 7, "N": 3, "K": 1, "H": 3, "V": 1_000_002, "tied": False}
BEYOND_FLOATS = (ODD, 1_000_001, 1_000_000_000, 1)


def _values(
    m: Sizes,
    B: int,
    S: int,
    *,
    heads_cached: str = "K",
    heads_projected: str = "K",
    tokens: int = 1,
    caches: int | None = None,
    rows: int | None = None,
    tables: int | None = None,
    norms: bool = True,
    mlp: int = 3,
    width: int | None = None,
) -> int:
    """Numbers that the step reads, with parts replaced."""
    NH = m["N"] * m["H"] if width is None else width
    layer = 2 * m["D"] * NH + 2 * m["D"] * m[heads_projected] * m["H"] + mlp * m["D"] * m["F"]
    layer += 2 * m["D"] * norms
    table = m["V"] * m["D"] * (1 if tables is None else tables)
    looked_up = (0 if m["tied"] else B * m["D"]) if rows is None else rows
    cache = (B if caches is None else caches) * (S + tokens) * m["L"] * 2 * m[heads_cached] * m["H"]
    return int(m["L"] * layer + m["D"] * norms + table + looked_up + cache)


def reference(model: Sizes, B: int, S: int, bytes_per_value: int) -> int:
    """The right answer: what the meter counts while a transformer runs one step."""
    D, N, K, H = (model[letter] for letter in "DNKH")
    layer = 2 * D + 2 * D * N * H + 2 * D * K * H + 3 * D * model["F"]
    caches = B * (S + 1) * 2 * K * H
    looked_up = 0 if model["tied"] else B * D
    values = model["L"] * (layer + caches) + D + model["V"] * D + looked_up
    return int(values * bytes_per_value)


@wrong(
    "notes that know only multi-head attention",
    "You gave every query head keys and values of its own: there are K of them, in the projections"
    " and in the cache.",
)
def query_heads(model: Sizes, B: int, S: int, bytes_per_value: int) -> int:
    return bytes_per_value * _values(model, B, S, heads_cached="N", heads_projected="N")


@wrong(
    "KV calculators (modular handbook #131, LMCache #688)",
    "The cache holds K heads, not N: with GQA you count it G times too large.",
)
def query_heads_cached(model: Sizes, B: int, S: int, bytes_per_value: int) -> int:
    return bytes_per_value * _values(model, B, S, heads_cached="N")


@wrong(
    "the rule “all weights once”",
    "Nearly: of an untied embedding the step reads only the rows of its B tokens, not the whole"
    " table.",
)
def all_parameters(model: Sizes, B: int, S: int, bytes_per_value: int) -> int:
    return bytes_per_value * _values(model, B, S, rows=0, tables=1 if model["tied"] else 2)


@wrong(
    "plausible",
    "You read two whole tables of V × D. Tied, there is one; untied, only B rows of the embedding"
    " are read.",
)
def two_tables(model: Sizes, B: int, S: int, bytes_per_value: int) -> int:
    return bytes_per_value * _values(model, B, S, rows=0, tables=2)


@wrong("plausible", "An untied embedding is looked up: B rows of D numbers are missing.")
def rows_left_out(model: Sizes, B: int, S: int, bytes_per_value: int) -> int:
    return bytes_per_value * _values(model, B, S, rows=0)


@wrong(
    "plausible",
    "With tied tables the rows looked up are part of the output matrix, which is read anyway:"
    " count them once.",
)
def rows_read_twice(model: Sizes, B: int, S: int, bytes_per_value: int) -> int:
    return bytes_per_value * _values(model, B, S, rows=B * model["D"])


@wrong("plausible", "The output matrix, V × D, is missing: each step scores the whole vocabulary.")
def head_left_out(model: Sizes, B: int, S: int, bytes_per_value: int) -> int:
    return bytes_per_value * _values(model, B, S, tables=0, rows=B * model["D"])


@wrong(
    "the cached step that excluded the current token",
    "The new token is appended to the cache and attended to: each sequence reads S + 1 keys and"
    " values.",
)
def new_token_left_out(model: Sizes, B: int, S: int, bytes_per_value: int) -> int:
    return bytes_per_value * _values(model, B, S, tokens=0)


@wrong("plausible", "Each of the B sequences has a cache of its own.")
def one_cache(model: Sizes, B: int, S: int, bytes_per_value: int) -> int:
    return bytes_per_value * _values(model, B, S, caches=1)


@wrong(
    "the pop quiz of a public set of notes, first attempt",
    "These are the weights alone: the caches of all B sequences are read as well.",
)
def cache_left_out(model: Sizes, B: int, S: int, bytes_per_value: int) -> int:
    return bytes_per_value * _values(model, B, S, caches=0)


@wrong("plausible", "You read the weights once per sequence: one read serves the whole batch.")
def weights_per_sequence(model: Sizes, B: int, S: int, bytes_per_value: int) -> int:
    weights = _values(model, B, S, caches=0)
    return bytes_per_value * (B * weights + _values(model, B, S) - weights)


@wrong(
    "parameter counts of lecture notes",
    "The norms are missing: two of D numbers in each layer, and one at the end.",
)
def norms_left_out(model: Sizes, B: int, S: int, bytes_per_value: int) -> int:
    return bytes_per_value * _values(model, B, S, norms=False)


@wrong("formulas for the MLP of 2017", "The MLP is gated: three matrices of D × F.")
def two_matrix_mlp(model: Sizes, B: int, S: int, bytes_per_value: int) -> int:
    return bytes_per_value * _values(model, B, S, mlp=2)


@wrong(
    "notes that state N × H = D",
    "You used D for N·H: the heads together need not be as wide as the model.",
)
def heads_as_wide_as_the_model(model: Sizes, B: int, S: int, bytes_per_value: int) -> int:
    return bytes_per_value * _values(model, B, S, width=model["D"])


def _model(rng: random.Random, tied: bool) -> Sizes:
    K, G, H = rng.randrange(2, 4), rng.randrange(2, 4), rng.choice((4, 6, 10))
    D = K * G * H + rng.choice((-5, -3, 3, 7))
    sizes = {
        "L": rng.randrange(2, 4),
        "D": D,
        "F": rng.randrange(20, 60),
        "N": K * G,
        "K": K,
        "H": H,
    }
    return {**sizes, "V": rng.randrange(30, 90), "tied": tied}


def cases(rng: random.Random) -> list[Case]:
    """Small enough for pencil and paper, tied and not, nothing cached, one sequence and many, every
    width; shapes that nobody has seen; then more bytes than a float holds. N·H is never D."""

    def case(model: Sizes, B: int, S: int, width: int, public: bool = True) -> Case:
        return Case(f"{model}, B={B}, S={S}, {width} bytes", (model, B, S, width), public=public)

    tiny = {"L": 1, "D": 3, "F": 5, "N": 2, "K": 1, "H": 2, "V": 7, "tied": True}
    unseen = [
        case(
            _model(rng, tied),
            rng.randrange(2, 9),
            rng.randrange(5, 90),
            rng.choice((2, 4, 8)),
            public=i < 2,
        )
        for i, tied in enumerate([True, False, False, True])
    ]
    return [
        case(tiny, 1, 4, 2),
        case({**tiny, "tied": False}, 1, 4, 2),
        case(dict(reversed({**tiny, "V": 9}.items())), 1, 4, 2),
        *(case(m, 1, 4, 2) for _, m in edges.one_changed(tiny, L=2, D=4, F=6, N=3, K=2, H=4)),
        case(tiny, 2, 4, 2),
        case(tiny, 1, 4, 4),
        case(tiny, 3, 4, 4),
        case(tiny, 1, 0, 2),
        case({**tiny, "tied": False, "N": 3, "K": 3, "V": 41}, 37, 0, 8),
        case({**tiny, "L": 2}, 2, 3, 1),
        case({**tiny, "L": edges.past(1024)}, 2, 3, 2),
        case({**tiny, "K": 2}, 2, 70_001, 2),
        case({**tiny, "D": 2053, "F": 4099, "V": 8191}, 2, 5, 2, public=False),
        *unseen,
        case(*BEYOND_FLOATS),
    ]


EXERCISE = Exercise(
    id="latency_throughput-bytes_read",
    title="Predict what a decode step reads",
    kind="predict",
    points=4,
    minutes=20,
    entries=("bytes_read",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        (
            "Two kinds of things are read: weights, once, and caches, one per sequence. List the"
            " matrices of a layer first."
        ),
        (
            "A layer: q and o of D × N·H, k and v of D × K·H, three of D × F, two norms of D. At"
            " the end a norm and the output matrix V × D."
        ),
        (
            "An untied embedding gives B rows more. Each sequence's cache: (S + 1) × L × 2 × K·H."
            " Times bytes_per_value."
        ),
    ),
    ranges={"S": (0, 1e9), "B": (1, 1e6)},
    recall=(
        "Which part of a model's weights does a decode step not read?",
        (
            "The embedding table, if it is not tied to the output matrix: only the rows of the B"
            " tokens are looked up."
        ),
    ),
)
