"""two_phases-forward_flops: predict what the meter counts when a transformer runs T new tokens on a
cache."""

from __future__ import annotations

import random

from twophase.checks.compare import Tolerance
from twophase.checks.edges import one_changed, past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

Shape = dict[str, int]  # L, D, F, N, K, H, V of a model

EIGHT_BILLION = {"L": 32, "D": 4096, "F": 14336, "N": 32, "K": 8, "H": 128, "V": 128256}


def _weights(m: Shape) -> int:
    """Numbers in the matrices that every token is multiplied with."""
    attention = 2 * m["D"] * m["N"] * m["H"] + 2 * m["D"] * m["K"] * m["H"]
    return m["L"] * (attention + 3 * m["D"] * m["F"]) + m["D"] * m["V"]


def reference(model: Shape, T: int, n_cached: int) -> int:
    """The right answer; a test holds it against the meter."""
    return 2 * T * _weights(model) + 4 * model["L"] * model["N"] * model["H"] * T * (n_cached + T)


@wrong(
    "the rule of thumb 2 × parameters",
    "2 × parameters is the weights' share. Scores and weighted values cost FLOPs too, and they"
    " grow with the context.",
)
def attention_left_out(model: Shape, T: int, n_cached: int) -> int:
    return 2 * T * _weights(model)


@wrong(
    "plausible", "The new tokens attend to the cached ones as well: each meets n_cached + T keys."
)
def cache_not_attended(model: Shape, T: int, n_cached: int) -> int:
    return 2 * T * _weights(model) + 4 * model["L"] * model["N"] * model["H"] * T * T


@wrong(
    "cached steps that leave out the current token",
    "The new tokens' own keys are attended to as well: each query meets n_cached + T keys.",
)
def new_tokens_not_attended(model: Shape, T: int, n_cached: int) -> int:
    return 2 * T * _weights(model) + 4 * model["L"] * model["N"] * model["H"] * T * n_cached


@wrong(
    "counts of causal attention's pairs",
    "You counted the pairs that the mask leaves. Every query is multiplied with all n_cached + T"
    " keys, and the mask comes after that.",
)
def visible_pairs_only(model: Shape, T: int, n_cached: int) -> int:
    pairs = T * n_cached + T * (T + 1) // 2
    return 2 * T * _weights(model) + 4 * model["L"] * model["N"] * model["H"] * pairs


@wrong(
    "plausible",
    "Scores are computed for every query head. GQA shares keys between heads, it does not save"
    " their products.",
)
def kv_heads_in_attention(model: Shape, T: int, n_cached: int) -> int:
    return 2 * T * _weights(model) + 4 * model["L"] * model["K"] * model["H"] * T * (n_cached + T)


@wrong(
    "notes that state N × H = D",
    "You used D where N·H belongs: the heads together need not be as wide as the model.",
)
def width_for_heads(model: Shape, T: int, n_cached: int) -> int:
    return 2 * T * _weights(model) + 4 * model["L"] * model["D"] * T * (n_cached + T)


@wrong(
    "calculators that count query heads for KV heads",
    "The key and value projections are K·H wide, not N·H.",
)
def all_heads_have_keys(model: Shape, T: int, n_cached: int) -> int:
    return reference({**model, "K": model["N"]}, T, n_cached)


@wrong(
    "formulas for the MLP of 2017", "The MLP is gated: three matrices (gate, up, down), not two."
)
def two_matrix_mlp(model: Shape, T: int, n_cached: int) -> int:
    return reference(model, T, n_cached) - 2 * T * model["L"] * model["D"] * model["F"]


@wrong("plausible", "The output matrix [D, V] is missing: it turns each position into V scores.")
def head_left_out(model: Shape, T: int, n_cached: int) -> int:
    return reference(model, T, n_cached) - 2 * T * model["D"] * model["V"]


@wrong(
    "generation loops without a cache",
    "You run the cached tokens through the model again: not doing that is what the cache is for.",
)
def cached_tokens_run_again(model: Shape, T: int, n_cached: int) -> int:
    return reference(model, T + n_cached, 0)


def _model(rng: random.Random) -> Shape:
    K, G = rng.choice([1, 2, 3]), rng.choice([2, 3])
    D = rng.randrange(5, 20)
    H = next(h for h in (4, 6, 2, 8) if h * K * G != D)
    return {
        "L": rng.randrange(2, 5),
        "D": D,
        "F": rng.randrange(7, 40),
        "N": K * G,
        "K": K,
        "H": H,
        "V": rng.randrange(11, 60),
    }


def cases(rng: random.Random) -> list[Case]:
    """Small enough to count by hand, a decode step, a prefill, a chunk on top of a cache, a model
    of 8 billion parameters; among the fresh ones N·H is never D."""
    tiny = {"L": 1, "D": 3, "F": 5, "N": 2, "K": 1, "H": 2, "V": 7}
    fresh = []
    for i, (T, n_cached) in enumerate([(1, 7), (6, 0), (4, 9), (3, 17)]):
        model = _model(rng)
        fresh.append(
            Case(
                f"fresh {i + 1}: {model}, T={T}, {n_cached} cached",
                (model, T, n_cached),
                public=i < 2,
            )
        )
    large = {**tiny, "V": past(2048)}
    wide = {**tiny, "D": past(16_384), "F": past(65_536), "H": past(256), "V": past(262_144)}
    deep = {**tiny, "L": past(1024), "N": past(128), "K": past(128)}
    shapes = {
        "as many KV heads as query heads": {**tiny, "L": 2, "D": 5, "N": 3, "K": 3},
        "one KV head for six": {**tiny, "N": 6, "D": 11},
        "heads narrower than D / N, F more than 4 D": {**tiny, "D": 12, "F": 53},
        "N·H = D": {**tiny, "D": 12, "N": 6, "K": 2},
        "D is a multiple of N, and H is not D / N": {**tiny, "D": 12, "N": 4, "K": 2, "H": 6},
    }
    others = one_changed(tiny, D=4, F=6, N=3, K=2, H=4, V=8)  # RoPE turns pairs: H stays even
    return [
        Case(f"{tiny}, one token, nothing cached", (tiny, 1, 0)),
        Case(f"{tiny}, one token, 4 cached", (tiny, 1, 4)),
        Case("the same model with two layers, one token", ({**tiny, "L": 2}, 1, 0)),
        # beside the next but one T alone differs: whoever keeps results by the rest is wrong
        Case(f"{tiny}, 2 tokens, 3 cached", (tiny, 2, 3)),
        Case(f"{tiny}, 3 tokens, 2 cached", (tiny, 3, 2)),
        Case(f"{tiny}, 3 tokens, 3 cached", (tiny, 3, 3)),
        # so does here each number of the model
        *(Case(f"{tiny} {but}, 2 tokens, 3 cached", (m, 2, 3)) for but, m in others),
        *(Case(f"{says}: {m}, 2 tokens, 3 cached", (m, 2, 3)) for says, m in shapes.items()),
        Case(f"{tiny}, one token, 2,053 cached", (tiny, 1, past(2048))),
        Case(f"{deep}, 2 tokens, 3 cached", (deep, 2, 3)),
        Case(f"{wide}, 2 tokens, 3 cached", (wide, 2, 3)),
        Case(f"{large}, 2,053 tokens, nothing cached", (large, past(2048), 0)),
        Case(
            f"{EIGHT_BILLION}, 4,099 tokens, 131,101 cached",
            (EIGHT_BILLION, past(4096), past(131_072)),
        ),
        *fresh,
    ]


EXERCISE = Exercise(
    id="two_phases-forward_flops",
    title="Predict the meter",
    kind="predict",
    points=3,
    minutes=20,
    entries=("forward_flops",),
    cases=cases,
    reference=reference,
    compare=Tolerance(rtol=1e-12, why="a sum of integers, perhaps carried as float64"),
    misconceptions=tuple(wrong),
    hints=(
        (
            "Two kinds of products: tokens with weights, and queries with keys and values. Count"
            " the first kind by listing the matrices."
        ),
        (
            "Weights: per layer q and o [D, N·H], k and v [D, K·H], three of [D, F]; once [D, V]."
            " Each costs 2 FLOPs per number and token."
        ),
        (
            "Attention: per layer and query head, T × (n_cached + T) pairs, each 2·H FLOPs for the"
            " score and 2·H for the value."
        ),
    ),
    recall=(
        "Which part of a forward pass's FLOPs grows with the number of cached tokens?",
        (
            "Scores and weighted values: 4 × L × N × H for each pair of query and key. The weights'"
            " part does not."
        ),
    ),
    # they count what is to be predicted, or are what is counted
    ranges={"T": (1, 4099), "n_cached": (0, 131_101)},
)
