"""grouped_query_attention-one_read: attention that reads every KV head once, and repeats none."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch

from twophase.checks import edges
from twophase.checks.answer import Answer
from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case, Exercise
from twophase.checks.kv_cache._data import alike, normal
from twophase.checks.misconceptions import Misconceptions, replaced
from twophase.protocol.arguments import lent

wrong = Misconceptions()

Tensor = torch.Tensor
Read = Callable[[int], tuple[Tensor, Tensor]]


def reference(q: Tensor, read: Read, K: int) -> Tensor:
    """The right answer."""
    T, N, H = q.shape
    G = N // K
    out = torch.empty(T, N, H)
    for j in range(K):
        keys, values = read(j)  # [S, H] each
        group = q[:, j * G : (j + 1) * G]  # [T, G, H]
        scores = torch.einsum("tgh,sh->tgs", group, keys) / math.sqrt(H)  # [T, G, S]
        S = keys.shape[0]
        hidden = torch.arange(S) > torch.arange(S - T, S)[:, None]  # [T, S]
        scores = scores.masked_fill(hidden[:, None], -math.inf)
        weights = scores.softmax(-1)
        out[:, j * G : (j + 1) * G] = torch.einsum("tgs,sh->tgh", weights, values)
    return out


@wrong(
    "attention head by head over query heads",
    "You read a KV head for each of its query heads: the same bytes G times. Read it once, and use"
    " it for the whole group.",
)
def read_by_every_query_head(q: Tensor, read: Read, K: int) -> Tensor:
    N = q.shape[1]
    heads = [
        reference(q[:, n : n + 1], lambda _, n=n: read(n // (N // K)), 1)  # type: ignore[misc]
        for n in range(N)
    ]
    return torch.cat(heads, dim=1)


wrong.add(
    "heads_in_turn",
    replaced(
        reference,
        {
            "group = q[:, j * G : (j + 1) * G]": "group = q[:, j::K]",
            "out[:, j * G : (j + 1) * G] =": "out[:, j::K] =",
        },
    ),
    "h % K for h // G",
    "You gave KV head j to every K-th query head. The heads of its group are neighbors: j·G to j·G"
    " + G − 1.",
)
wrong.add(
    "mask_top_left",
    replaced(reference, {"arange(S - T, S)": "arange(T)"}),
    "F.scaled_dot_product_attention(is_causal=True) with T < S",
    "Your mask starts at the top left. The T queries are the last of S: query t sees keys up to"
    " S − T + t.",
)
wrong.add(
    "no_mask",
    replaced(reference, {"masked_fill(hidden[:, None], -math.inf)": "clone()"}),
    "decode code used for a block of queries",
    "Nothing is masked: with T > 1 the earlier queries see keys of their own future.",
)

wrong.add(
    "finite_mask",
    replaced(reference, {"-math.inf)": "-100.0)"}),
    "a mask of −100",
    "Your mask is a finite number. Visible scores may be as low, and then hidden keys count, too:"
    " hide with −∞.",
)


@wrong(
    "the group folded into the query length, the mask left as it was",
    "The group is folded into the query length, but row r of the mask is not row r of the folded"
    " queries: repeat the mask as you folded.",
)
def mask_not_folded(q: Tensor, read: Read, K: int) -> Tensor:
    T, N, H = q.shape
    G, outs = N // K, []
    for j in range(K):
        keys, values = read(j)  # [S, H] each
        S = keys.shape[0]
        folded = q[:, j * G : (j + 1) * G].reshape(T * G, H)  # [T·G, H]
        hidden = torch.arange(S) > torch.arange(S - T, S)[:, None]  # [T, S]
        hidden = hidden.repeat(G, 1)  # [G·T, S]: the queries change fastest here
        scores = (folded @ keys.T / math.sqrt(H)).masked_fill(hidden, -math.inf)  # [T·G, S]
        outs.append((scores.softmax(-1) @ values).view(T, G, H))
    return torch.cat(outs, dim=1)  # [T, N, H]


@wrong(
    "the group folded into the query length, and unfolded the other way",
    "You folded the group into the query length in one order and unfolded it in the other: heads"
    " and queries are mixed up.",
)
def unfolded_the_other_way(q: Tensor, read: Read, K: int) -> Tensor:
    T, N, H = q.shape
    G = N // K
    right = reference(q, read, K).view(T, K, G, H)  # [T, K, G, H]
    return right.transpose(1, 2).reshape(T, N, H)


wrong.add(
    "scaled_by_all_heads",
    replaced(reference, {"math.sqrt(H)": "math.sqrt(N * H)"}),
    "√D read for √H",
    "You divided by the root of all heads' width: a score is divided by the root of its own head's"
    " width H.",
)
wrong.add(
    "not_scaled",
    replaced(reference, {" / math.sqrt(H)": ""}),
    "plausible",
    "The scores are not divided by √H: softmax becomes too sharp.",
)
wrong.add(
    "softmax_over_the_group",
    replaced(reference, {"scores.softmax(-1)": "scores.softmax(1)"}),
    "softmax on the wrong axis",
    "The weights sum to 1 over the heads of a group: each query's weights must sum to 1 over its"
    " keys.",
)


@wrong(
    "pooling taken for sharing",
    "You averaged the queries of a group. They share keys and values, not questions: every query"
    " head has an output of its own.",
)
def queries_pooled(q: Tensor, read: Read, K: int) -> Tensor:
    T, N, H = q.shape
    one = q.view(T, K, N // K, H).mean(2)  # [T, K, H]
    return reference(one, read, K).repeat_interleave(N // K, dim=1)


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """What comes back, and which KV heads were read, each as often as it was."""
    q, k, v = case.args
    reads: list[int] = []

    @lent
    def read(j: int) -> tuple[Tensor, Tensor]:
        reads.append(j)
        return k[:, j], v[:, j]

    out = answer.call("shared_attention", q, read, k.shape[1])
    return {"the output": out, "KV heads read": sorted(reads)}


def _case(
    rng: random.Random, T: int, S: int, N: int, K: int, H: int, public: bool = True, by: float = 1
) -> Case:
    q, k, v = by * normal(rng, T, N, H), normal(rng, S, K, H), normal(rng, S, K, H)
    large = ", scores in the hundreds" if by > 1 else ""
    return Case(f"T={T}, S={S}, N={N}, K={K}, H={H}{large}", (q, k, v), public=public)


def _large() -> Case:
    """Scores in the hundreds. In every row the largest stands so clear of the next that it makes no
    difference how they are rounded."""
    case = _case(random.Random(23), 2, 3, 4, 2, 4, by=300)
    q, k, v = case.args
    found, nearly = (reference(x, lambda j: (k[:, j], v[:, j]), 2) for x in (q, 0.99 * q))
    assert torch.allclose(found, nearly, atol=1e-6)
    return case


def _far_apart(rng: random.Random) -> Case:
    """Scores of head 0: −998 and −998.5 where query 0 looks, 896 where it must not; of head 1 the
    same with the other sign. All are exact in float32, in whichever order √H = 4 divides."""
    H, scores = 16, torch.tensor([-998.0, -998.5, 896.0])  # [S]
    q, k = torch.zeros(2, 2, H), torch.zeros(3, 1, H)
    q[:, 0, 0], q[:, 1, 0] = 32.0, -32.0
    k[:, 0, 0] = scores * math.sqrt(H) / 32
    assert torch.equal(32 * k[:, 0, 0] / math.sqrt(H), scores)
    args = (q, k, alike(rng, 3, 1, H))
    return Case(f"T=2, S=3, N=2, K=1, H={H}, scores near −1,000 and 900", args)


def cases(rng: random.Random) -> list[Case]:
    """One query, a block of them, a whole prompt; one KV head, as many as query heads, groups of
    two, three and five; large scores, the largest of them hidden; more of each size than any
    constant."""
    return [
        _case(rng, 1, 1, 1, 1, 2),
        _case(rng, 1, 4, 2, 1, 3),
        _case(rng, 1, 5, 4, 2, 3),
        _case(rng, 2, 5, 6, 2, 4),
        _case(rng, 3, 3, 6, 3, 2),
        _case(rng, 3, 7, 4, 4, 5),
        _case(rng, 2, 6, 10, 2, 3),
        _case(rng, 4, 6, 5, 1, 3),
        _large(),
        _far_apart(rng),
        _case(rng, 1, 3, 2 * edges.past(32), edges.past(32), 2),
        _case(rng, 2, 3, edges.past(64), 1, 2),
        _case(rng, 1, 2, 2, 1, edges.past(256)),
        _case(rng, edges.past(64), edges.past(64) + 1, 2, 1, 2),
        _case(rng, 1, edges.past(4096), 2, 1, 2),
        _case(rng, 2, rng.randrange(4, 9), 12, 4, 6, public=False),
        _case(rng, rng.randrange(2, 5), 9, 9, 3, 4, public=False),
    ]


EXERCISE = Exercise(
    id="grouped_query_attention-one_read",
    title="Attention that reads every KV head once",
    kind="kernel",
    points=5,
    minutes=25,
    entries=("shared_attention",),
    cases=cases,
    observe=observe,
    reference=reference,
    compare=Tolerance(
        rtol=1e-4,
        atol=1e-5,
        dtype=True,
        why="fp32 sums in another order differ by 1e-6; wrong answers by 1e-3 and more",
    ),
    misconceptions=tuple(wrong),
    hints=(
        "Loop over the KV heads, not over the query heads. Which query heads does KV head j serve?",
        (
            "q[:, j·G : (j + 1)·G] is the group, [T, G, H]. Its scores are [T, G, S]; the mask is"
            " the same for every head of the group."
        ),
        (
            'scores = torch.einsum("tgh,sh->tgs", group, keys) / √H; hide keys s > S − T + t;'
            ' softmax over s; torch.einsum("tgs,sh->tgh", weights, values).'
        ),
    ),
    recall=(
        "Eight query heads share one KV head. How often must its keys be read in a decode step?",
        "Once: all eight are scored while the keys are on the chip.",
    ),
)
