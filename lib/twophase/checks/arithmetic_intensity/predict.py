"""arithmetic_intensity-predict: FLOPs and bytes of an MLP and of attention.

The right answer is a formula; a test holds it to the meter, for every case that a machine can run.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from twophase.checks import edges
from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

Counts = dict[str, int]

# B, T, S, D, F, N, K, H, bytes per value: every count lies between 2⁵³ and 2⁶³ and is an odd
# multiple of 1, 2 or 8, so that a whole number of 64 bits holds it and a float does not
BEYOND_FLOATS = (1, 3, 1_000_000_007, 39_999_937, 100_000_007, 6, 3, 4_000_037, 1)


def _predict(
    mlp_flops: Callable[..., int] = lambda B, T, S, D, F, N, K, H: 6 * B * T * D * F,
    mlp_values: Callable[..., int] = lambda B, T, S, D, F, N, K, H: 2 * B * T * D + 3 * D * F,
    attention_flops: Callable[..., int] = lambda B, T, S, D, F, N, K, H: 4 * B * T * S * N * H,
    attention_values: Callable[..., int] = lambda B, T, S, D, F, N, K, H: (
        2 * B * T * N * H + 2 * B * S * K * H
    ),
) -> Callable[..., Counts]:
    """The prediction with parts replaced; with none replaced it is what the meter counts."""

    def predict(
        B: int, T: int, S: int, D: int, F: int, N: int, K: int, H: int, bytes_per_value: int
    ) -> Counts:
        sizes = (B, T, S, D, F, N, K, H)
        return {
            "mlp_flops": mlp_flops(*sizes),
            "mlp_bytes": mlp_values(*sizes) * bytes_per_value,
            "attention_flops": attention_flops(*sizes),
            "attention_bytes": attention_values(*sizes) * bytes_per_value,
        }

    return predict


reference = _predict()


def cases(rng: random.Random) -> list[Case]:
    """A tiny decode step, one of a batch, prefill, a few queries over a longer cache, each of its
    sizes changed alone, every width, one head for all and one for each; shapes that nobody has
    seen; then counts that no float holds."""
    few = (3, 2, 9, 21, 30, 6, 2, 4, 4)
    others = (5, 3, 11, 19, 31, 4, 3, 6, 2)

    def case(*sizes: int, public: bool = True) -> Case:
        names = ("B", "T", "S", "D", "F", "N", "K", "H")
        shown = ", ".join(f"{n}={v}" for n, v in zip(names, sizes[:-1], strict=True))
        return Case(f"{shown}, {sizes[-1]} bytes", sizes, public=public)

    unseen = []
    for i in range(4):
        T, K = rng.randrange(2, 12), rng.randrange(2, 4)
        N, H = K * rng.randrange(2, 5), 2 * rng.randrange(2, 9)
        sizes = (
            rng.randrange(2, 5),
            T,
            T + rng.randrange(3, 40),
            N * H + rng.randrange(1, 9),
            rng.randrange(60, 200),
        )
        unseen.append(case(*sizes, N, K, H, rng.choice((2, 4)), public=i < 2))
    return [
        case(1, 1, 5, 10, 7, 4, 2, 2, 4),
        case(4, 1, 1, 8, 8, 4, 2, 2, 2),
        case(2, 6, 6, 10, 14, 4, 2, 4, 2),
        case(*few),
        *(case(*edges.put(few, i, other)) for i, other in enumerate(others)),
        case(2, 3, 7, 11, 13, 4, 1, 6, 1),
        case(2, 3, 7, 11, 13, 3, 3, 6, 8),
        case(1, 2, 2, 5, 3, 1, 1, 2, 2),
        *unseen,
        case(2053, 2053, 4099, 5, 7, 4, 2, 2, 2, public=False),
        case(1, 2, 3, 5, 7, 6159, 2053, 2, 2, public=False),
        case(*BEYOND_FLOATS),
    ]


wrong.add(
    "factor_f_missing",
    _predict(mlp_flops=lambda B, T, S, D, F, N, K, H: 6 * B * T * D),
    "public notes: “6 * B * T * D”",
    "The MLP's FLOPs lack the factor F: each of its three products is D × F.",
)
wrong.add(
    "two_matrix_mlp",
    _predict(
        lambda B, T, S, D, F, N, K, H: 4 * B * T * D * F,
        lambda B, T, S, D, F, N, K, H: 2 * B * T * D + 2 * D * F,
    ),
    "formulas for the MLP of 2017",
    "The MLP is gated: three matrices, up, gate and down.",
)
wrong.add(
    "middle_stored",
    _predict(mlp_values=lambda B, T, S, D, F, N, K, H: 2 * B * T * D + 2 * B * T * F + 3 * D * F),
    "a public lecture, which writes up and gate to memory",
    "You stored the F-wide middle. In one fused kernel it never leaves the chip.",
)
wrong.add(
    "three_separate_products",
    _predict(mlp_values=lambda B, T, S, D, F, N, K, H: 3 * B * T * (D + F) + 3 * D * F),
    "adding up three matrix products",
    "You added up three separate products. In one fused kernel x is read once, the output written"
    " once, and nothing between.",
)
wrong.add(
    "mlp_weights_per_sequence",
    _predict(mlp_values=lambda B, T, S, D, F, N, K, H: 2 * B * T * D + 3 * B * D * F),
    "plausible",
    "You read the MLP's weights once for each sequence: the whole batch shares one reading.",
)
wrong.add(
    "width_for_heads",
    _predict(
        attention_flops=lambda B, T, S, D, F, N, K, H: 4 * B * T * S * D,
        attention_values=lambda B, T, S, D, F, N, K, H: 2 * B * T * D + 2 * B * S * D,
    ),
    "public notes: “4 * B * S * T * D”, “4 * B * S * D + 4 * B * T * D”",
    "You took D for attention's widths. Queries are N·H wide and keys K·H, and neither need be D.",
)
wrong.add(
    "query_heads_read",
    _predict(attention_values=lambda B, T, S, D, F, N, K, H: 2 * B * (T + S) * N * H),
    "KV calculators (modular handbook #131, LMCache #688)",
    "You read N heads of keys and values: there are K, each read once for its whole group.",
)
wrong.add(
    "kv_heads_computed",
    _predict(attention_flops=lambda B, T, S, D, F, N, K, H: 4 * B * T * S * K * H),
    "plausible",
    "You counted attention's FLOPs with K heads: each of the N query heads has scores of its own.",
)
wrong.add(
    "values_left_out",
    _predict(attention_flops=lambda B, T, S, D, F, N, K, H: 2 * B * T * S * N * H),
    "public notes that count Q·K only",
    "These are half of the FLOPs. There are two products, the scores and the weighted sum of the"
    " values, and this meter counts all T·S pairs of both.",
)
wrong.add(
    "mask_saves_work",
    _predict(
        attention_flops=lambda B, T, S, D, F, N, K, H: 4 * B * N * H * (T * S - T * (T - 1) // 2)
    ),
    "plausible",
    "You counted only the pairs that the mask lets through: a fair count, but this meter counts"
    " all T·S.",
)
wrong.add(
    "scores_stored",
    _predict(
        attention_values=lambda B, T, S, D, F, N, K, H: (
            2 * B * T * N * H + 2 * B * S * K * H + 4 * B * N * T * S
        )
    ),
    "attention without a fused kernel",
    "You counted the scores: in a fused kernel they never leave the chip.",
)
wrong.add(
    "queries_left_out",
    _predict(attention_values=lambda B, T, S, D, F, N, K, H: 2 * B * S * K * H),
    "the estimate for decode",
    "Queries and output are missing from attention's bytes: little in decode, and half of all in"
    " prefill.",
)


EXERCISE = Exercise(
    id="arithmetic_intensity-predict",
    title="Predict what the meter counts",
    kind="predict",
    points=4,
    minutes=15,
    entries=("predict",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        (
            "For each of the two kernels list what enters, what leaves, and which matrix products"
            " run inside."
        ),
        "MLP: x and y are [B, T, D], three D × F matrices, 2·B·T·D·F FLOPs each.",
        (
            "Attention: q and output [B, T, N, H], keys and values [B, S, K, H]; two products of"
            " 2·B·N·T·S·H FLOPs."
        ),
    ),
    ranges={"B": (1, 2053), "T": (1, 2053), "S": (2, 1e9), "bytes_per_value": (1, 8)},
    recall=(
        "Which of attention's two counts, FLOPs and bytes, does GQA change?",
        (
            "The bytes: K heads are read instead of N. The FLOPs stay, every query head has its own"
            " scores."
        ),
    ),
)
