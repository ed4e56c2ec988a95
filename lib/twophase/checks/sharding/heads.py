"""sharding-heads: one rank's part of attention, its heads cut, KV heads copied where needed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch

from twophase.checks import edges
from twophase.checks.answer import Answer
from twophase.checks.exercise import Case, Exercise
from twophase.checks.kv_cache._data import normal
from twophase.checks.misconceptions import Misconceptions, replaced
from twophase.checks.sharding._ranks import SUMS, AllReduce, unlike

wrong = Misconceptions()

Tensor = torch.Tensor
Sum = Callable[[Tensor], Tensor]


def reference(
    q: Tensor, k: Tensor, v: Tensor, w_o: Tensor, rank: int, n: int, all_reduce: Sum
) -> Tensor:
    """The right answer."""
    (T, N, H), (S, K, _) = q.shape, k.shape
    heads = range(rank * N // n, (rank + 1) * N // n)
    hidden = torch.arange(S) > torch.arange(S - T, S)[:, None]  # [T, S]
    part = torch.zeros(T, w_o.shape[1])
    for h in heads:
        kv = h // (N // K)
        scores = q[:, h] @ k[:, kv].T / math.sqrt(H)  # [T, S]
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1)  # [T, S]
        part = part + weights @ v[:, kv] @ w_o[h * H : (h + 1) * H]  # [T, D]
    return all_reduce(part)


wrong.add(
    "kv_heads_modulo",
    replaced(reference, {"kv = h // (N // K)": "kv = h % K"}),
    "GQA mapping h % K",
    "Query head h reads KV head h // (N/K), not h mod K.",
)
wrong.add(
    "kv_heads_counted_from_the_rank",
    replaced(reference, {"kv = h // (N // K)": "kv = (h - heads[0]) // (N // K)"}),
    "local and global numbers of heads confused",
    "You number the KV heads from this rank's first query head: h counts from the first of all N.",
)
wrong.add(
    "one_kv_head_for_each_rank",
    replaced(reference, {"kv = h // (N // K)": "kv = rank % K"}),
    "“n ranks, n KV heads”",
    "You took one KV head for each rank. With K > n a rank has several, with K < n several ranks"
    " share one.",
)
wrong.add(
    "as_many_kv_heads_as_query_heads",
    replaced(reference, {"kv = h // (N // K)": "kv = min(h, K - 1)"}),
    "MHA assumed",
    "There are K KV heads, each read by N/K query heads: head h reads number h // (N/K).",
)
wrong.add(
    "every_nth_head",
    replaced(reference, {"range(rank * N // n, (rank + 1) * N // n)": "range(rank, N, n)"}),
    "heads dealt out like cards",
    "You deal heads out like cards: then a rank needs KV heads of all groups. Rank r has heads"
    " r·N/n to (r + 1)·N/n.",
)
wrong.add(
    "all_heads",
    replaced(reference, {"range(rank * N // n, (rank + 1) * N // n)": "range(N)"}),
    "plausible",
    "You compute all N heads on this rank; the sum then has them n times.",
)
wrong.add(
    "first_rows_of_w_o",
    replaced(
        reference,
        {"w_o[h * H : (h + 1) * H]": "w_o[(h - heads[0]) * H : (h - heads[0] + 1) * H]"},
    ),
    "local and global numbers of heads confused",
    "You use the first rows of w_o on each rank: head h has rows h·H to (h + 1)·H.",
)
wrong.add(
    "reduced_before_w_o",
    replaced(reference, {"return all_reduce(part)": "return all_reduce(all_reduce(part))"}),
    "all-reduce twice",
    "You reduce twice: after the first sum every rank has all of it.",
)
wrong.add(
    "not_reduced",
    replaced(reference, {"return all_reduce(part)": "return part"}),
    "plausible",
    "You never call all_reduce: the output projection sums over all heads, and this rank has some.",
)
wrong.add(
    "mask_top_left",
    replaced(reference, {"torch.arange(S - T, S)": "torch.arange(T)"}),
    "F.scaled_dot_product_attention(is_causal=True) with T < S",
    "Your mask starts at the top left: the T queries are the last of S positions.",
)
wrong.add(
    "no_mask",
    replaced(reference, {"torch.arange(S - T, S)": "torch.full((T,), S)"}),
    "attention written for one query",
    "Nothing is masked: with T > 1 the earlier queries see keys of their future.",
)
wrong.add(
    "not_scaled",
    replaced(reference, {" / math.sqrt(H)": ""}),
    "plausible",
    "The scores are not divided by √H.",
)

wrong.add(
    "no_maximum",
    replaced(
        reference,
        {
            "scores.masked_fill(hidden, -math.inf).softmax(-1)  # [T, S]": (
                "scores.masked_fill(hidden, -math.inf).exp()\n"
                "        weights = weights / weights.sum(-1, keepdim=True)"
            )
        },
    ),
    "softmax written from its formula",
    "exp of a score of 100 is more than float32 holds: subtract the largest score first.",
)
wrong.add(
    "masked_at_minus_100",
    replaced(reference, {"masked_fill(hidden, -math.inf)": "masked_fill(hidden, -100.0)"}),
    "masks of −100 for −inf",
    "You hide a key with a score of −100. Where all scores that are seen lie below that, the hidden"
    " keys get the weight: use −inf.",
)
wrong.add(
    "mask_of_minus_100",
    replaced(
        reference,
        {"scores.masked_fill(hidden, -math.inf)": "(scores - 100.0 * hidden)"},
    ),
    "a mask of −100 added to the scores",
    "A mask of −100 hides a key only while scores are small: hidden is −∞.",
)


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """One rank among others that do as they should. With `unlike` they have other numbers than
    those that this rank is given in their places."""
    q, k, v, w_o, rank, n = case.args
    others = torch.zeros(q.shape[0], w_o.shape[1])
    for other in range(n):
        if other != rank:
            others = others + reference(q, k, v, w_o, other, n, lambda part: part)
    others = -others if case.kwargs.get("unlike") else others
    all_reduce = AllReduce(others, n)
    found = answer.call("attention_rank", q, k, v, w_o, rank, n, all_reduce)
    return {**all_reduce.seen(), "the result": found}


def cases(rng: random.Random) -> list[Case]:
    """More KV heads than ranks, as many, fewer; one query and blocks; first, middle, last ranks."""

    def case(
        T: int, S: int, N: int, K: int, H: int, D: int, rank: int, n: int, public: bool = True
    ) -> Case:
        shapes = (T, N, H), (S, K, H), (S, K, H), (N * H, D)
        given = tuple(normal(rng, *shape) for shape in shapes)
        name = f"T={T}, S={S}, N={N}, K={K}, H={H}, D={D}, rank {rank} of {n}"
        return Case(name, (*given, rank, n), public=public)

    def large_scores(first: float, second: float, third: float) -> Case:
        """One score of each key, for all queries; the last key is hidden from all but the last."""
        q = torch.tensor([1.0, 0.0]).expand(3, 2, 2).contiguous()
        k = normal(rng, 3, 1, 2)
        k[:, 0, 0] = math.sqrt(2) * torch.tensor([first, second, third])
        given = q, k, normal(rng, 3, 1, 2), normal(rng, 4, 2)
        said = f"{first:g}, {second:g} and {third:g}".replace("-", "−")
        return Case(f"scores of {said}, T=3, S=3, rank 1 of 2", (*given, 1, 2))

    one, two = torch.tensor([[[1.0]], [[1.0]]]), torch.tensor([[[1.0]], [[2.0]]])  # [2, 1, 1]
    keys, large = torch.tensor([[[-200.0]], [[200.0]]]), torch.tensor([[[1.0]], [[1e6]]])
    H = edges.past(256)
    alike = torch.full((2, 1, H), -199 / math.sqrt(H))  # scores of −199, from queries of ones
    wide = torch.ones(2, 1, H), alike, torch.cat([torch.ones(1, 1, H), -torch.ones(1, 1, H)])
    return [
        case(1, 3, 2, 1, 2, 3, 0, 1),
        case(1, 4, 4, 2, 3, 2, 1, 2),
        unlike(case(1, 4, 4, 2, 3, 2, 1, 2)),
        case(3, 3, 4, 4, 2, 3, 1, 2),
        case(2, 5, 8, 2, 3, 4, 3, 4),
        case(2, 5, 8, 2, 3, 4, 1, 4),
        case(1, 6, 8, 1, 2, 3, 7, 8),
        case(1, 3, 8, 8, 2, 3, 5, 8),
        case(1, 3, 12, 6, 1, 2, 2, 3),
        case(2, 4, 6, 2, 4, 3, 0, 3),
        case(2, 4, 6, 2, 4, 3, 1, 3),
        case(2, 4, 6, 2, 4, 3, 2, 3),
        case(edges.past(64), edges.past(128), 2, 1, 2, 2, 1, 2),
        case(1, 2, 2, 2, edges.past(256), 2, 0, 2),
        case(1, 2, 2, 2, 2, edges.past(512), 1, 2),
        case(1, 2, 2 * edges.past(64), 2, 1, 2, edges.past(64) - 1, edges.past(64)),
        large_scores(-20.0, 10.0, 150.0),
        large_scores(-190.0, -160.0, -100.0),
        large_scores(100.0, 150.0, 190.0),
        large_scores(-199.0, -196.0, -100.0),
        large_scores(199.0, 196.0, 100.0),
        # a mask of −300 leaves 200 above −200
        Case("a score of −200, and 200 hidden, T=2", (one, keys, two, one[0], 0, 1)),
        # nor may it get the weight that a score of −210 in the place of −∞ gives it, exp(−10)
        Case("a score of −200, and a value of a million hidden", (one, keys, large, one[0], 0, 1)),
        # a mask of −1,000 before the division by √H is one of −62 behind it
        Case(f"scores of −199, H={H}, T=2", (*wide, torch.ones(H, 1) / H, 0, 1)),
        case(1, 2, edges.past(64), edges.past(64), 1, 2, 0, 1),
        case(2, rng.randrange(3, 9), 12, 4, 3, 5, 4, 6, public=False),
    ]


EXERCISE = Exercise(
    id="sharding-heads",
    title="One rank's part of attention",
    kind="kernel",
    points=5,
    minutes=25,
    entries=("attention_rank",),
    cases=cases,
    observe=observe,
    reference={"attention_rank": reference},
    compare=SUMS,
    misconceptions=tuple(wrong),
    hints=(
        "Which query heads are this rank's? Which KV head does each of them read, counted among all"
        " K?",
        (
            "Heads r·N/n to (r + 1)·N/n; head h reads KV head h // (N/K) and meets rows h·H to"
            " (h + 1)·H of w_o."
        ),
        "Sum weights @ v[:, kv] @ w_o[rows] over the rank's heads: [T, D]. One all_reduce.",
    ),
    ranges={"n": (1, 67)},
    recall=(
        "Eight KV heads on sixteen chips: what becomes of the cache?",
        "Each KV head lies on two chips: all chips together keep the cache twice.",
    ),
)
