"""grouped_query_attention-pool: a projection of N key heads becomes one of K, by the mean."""

from __future__ import annotations

import random

import torch

from twophase.checks import edges
from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case, Exercise
from twophase.checks.kv_cache._data import normal
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Tensor = torch.Tensor


def reference(weight: Tensor, N: int, K: int) -> Tensor:
    """The right answer."""
    H, D = weight.shape[0] // N, weight.shape[1]
    groups = weight.reshape(K, N // K, H, D)  # [K, G, H, D]
    return groups.mean(1).reshape(K * H, D)


wrong.add(
    "groups_in_turn",
    replaced(
        reference,
        {
            "reshape(K, N // K, H, D)": "reshape(N // K, K, H, D)",
            "groups.mean(1)": "groups.mean(0)",
        },
    ),
    "h % K for h // G",
    "You averaged every K-th head. Query heads n to n + G − 1 will read one KV head: average the"
    " heads of neighbors.",
)
wrong.add(
    "sum_for_mean",
    replaced(reference, {"mean(1)": "sum(1)"}),
    "plausible",
    "You added the heads of a group up: keys G times as long make the softmax G times as sharp."
    " Divide by G.",
)
wrong.add(
    "first_head_kept",
    replaced(reference, {"groups.mean(1)": "groups[:, 0]"}),
    "the paper's second way (Ainslie et al., 2023, section 2.1)",
    "You kept the first head of each group: what the others knew is lost. Average them.",
)
wrong.add(
    "neighboring_rows",
    replaced(
        reference,
        {
            "reshape(K, N // K, H, D)": "reshape(K, H, N // K, D)",
            "groups.mean(1)": "groups.mean(2)",
        },
    ),
    "average pooling over rows",
    "You averaged neighboring rows. Number i of the pooled head is the mean of the numbers i of the"
    " group's heads, which lie H rows apart.",
)
wrong.add(
    "all_heads_pooled",
    replaced(reference, {"groups.mean(1)": "groups.mean((0, 1)).repeat(K, 1, 1)"}),
    "plausible",
    "You averaged all heads and repeated the result: groups are averaged one by one.",
)
wrong.add(
    "transposed",
    replaced(
        reference,
        {
            "weight.shape[0] // N, weight.shape[1]": "weight.shape[0], weight.shape[1] // N",
            "reshape(K, N // K, H, D)": "reshape(H, K, N // K, D)",
            "mean(1).reshape(K * H, D)": "mean(2).reshape(H, K * D)",
        },
    ),
    "weights taken for [in, out]",
    "You pooled the columns. A linear layer keeps its weights as [out, in]: heads are rows.",
)


@wrong(
    "buffers without a dtype",
    "The dtype is lost: float64 weights come back as float64.",
)
def always_float32(weight: Tensor, N: int, K: int) -> Tensor:
    return reference(weight.float(), N, K)


@wrong(
    "computed in float32, and cast back",
    "You compute in float32: float64 weights lose half their digits on the way.",
)
def through_float32(weight: Tensor, N: int, K: int) -> Tensor:
    return reference(weight.float(), N, K).to(weight.dtype)


def _case(
    rng: random.Random,
    N: int,
    K: int,
    H: int,
    D: int,
    dtype: str = "float32",
    says: str = "",
    public: bool = True,
) -> Case:
    weight = normal(rng, N * H, D, dtype=dtype)
    return Case(f"N={N}, K={K}, H={H}, D={D}, {dtype}{says}", (weight, N, K), public=public)


def _cancelling(rng: random.Random) -> Case:
    """Two heads whose mean is small, of numbers near ±2³⁰: exact in float64, lost in float32."""
    weight = normal(rng, 4, 3, dtype="float64")  # [N·H, D]
    weight[:2] += 2.0**30
    weight[2:] -= 2.0**30
    return Case("N=2, K=1, H=2, D=3, float64, numbers near ±2³⁰", (weight, 2, 1))


def _eight_rows() -> list[Case]:
    """Calls that differ in one argument alone: whoever remembers by the others is wrong here."""
    weight = torch.arange(16.0).reshape(8, 2) ** 2
    return [
        Case("8 rows of squares, N=4, K=2", (weight, 4, 2)),
        Case("the same rows, N=8", (weight, 8, 2)),
        Case("the same rows, K=1", (weight, 4, 1)),
        Case("the same rows, the last one first", (weight.flip(0), 4, 2)),
    ]


def cases(rng: random.Random) -> list[Case]:
    """One head; groups of two, three and four; MHA, which stays as it is; MQA; H = D and N·H ≠ D;
    both dtypes, float64 to its last digits; more of each size than any constant; fresh ones."""
    return [
        _case(rng, 2, 1, 1, 1),
        _case(rng, 4, 2, 1, 2),
        # of the same sizes: whoever keeps results by shape is wrong here
        _case(rng, 4, 2, 1, 2, says=", other numbers"),
        *_eight_rows(),
        _case(rng, 4, 2, 3, 5),
        _case(rng, 6, 3, 2, 12),
        _case(rng, 6, 2, 6, 6),
        _case(rng, 4, 4, 3, 5),
        _case(rng, 5, 1, 2, 3),
        _case(rng, 8, 2, 4, 32),
        _case(rng, 6, 2, 3, 4, "float64"),
        _cancelling(rng),
        _case(rng, 3 * edges.past(64), edges.past(64), 2, 3),
        _case(rng, 2 * edges.past(512), edges.past(512), 1, 2),
        _case(rng, edges.past(64), 1, 2, 3),
        _case(rng, 4, 2, edges.past(256), 3),
        _case(rng, 4, 2, 2, edges.past(2048)),
        _case(rng, 12, 4, rng.randrange(2, 9), rng.randrange(3, 20), public=False),
        _case(rng, 10, 2, rng.randrange(2, 9), rng.randrange(3, 20), public=False),
    ]


EXERCISE = Exercise(
    id="grouped_query_attention-pool",
    title="Few heads out of many",
    kind="kernel",
    points=3,
    minutes=12,
    entries=("pool_heads",),
    cases=cases,
    reference=reference,
    compare=Tolerance(
        rtol=1e-5,
        atol=1e-6,
        dtype=True,
        why="a mean of fp32 numbers in another order differs by 1e-7; wrong ones by 1e-1",
    ),
    misconceptions=tuple(wrong),
    hints=(
        "Which rows belong to head 0, which to head 1? Which heads are averaged with each other?",
        "Read the N·H rows as [K, G, H, D]: KV heads to be, members of their groups, numbers.",
        "weight.reshape(K, N // K, H, D).mean(1).reshape(K·H, D).",
    ),
    recall=(
        "A trained multi-head model gets fewer KV heads. Which of its weights change, and how?",
        "Only the key and value projections: the heads of each group are averaged.",
    ),
)
