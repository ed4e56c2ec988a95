"""kv_cache-cached_attention: causal attention for any T ≤ S, with grouped heads."""

from __future__ import annotations

import math
import random

import torch

from twophase.checks import edges
from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case, Exercise
from twophase.checks.kv_cache._data import alike, normal, scored
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Tensor = torch.Tensor


def reference(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The right answer."""
    T, N, H = q.shape[1:]
    S, G = k.shape[1], N // k.shape[2]
    head = torch.arange(N) // G  # [N]: the KV head that each query head reads
    k, v = k[:, :, head], v[:, :, head]  # [B, S, N, H] each
    scores = torch.einsum("btnh,bsnh->bnts", q, k) / math.sqrt(H)  # [B, N, T, S]
    last = S - T + torch.arange(T)[:, None]  # [T, 1]: the last key that query t sees
    hidden = torch.arange(S) > last  # [T, S]
    seen = scores.masked_fill(hidden, -math.inf)  # [B, N, T, S]
    weights = seen.softmax(-1)  # [B, N, T, S]
    return torch.einsum("bnts,bsnh->btnh", weights, v)  # [B, T, N, H]


wrong.add(
    "mask_top_left",
    replaced(reference, {"S - T + torch": "torch"}),
    "F.scaled_dot_product_attention(is_causal=True) with T < S",
    "Your mask starts at the top left: query 0 sees key 0 only. The T queries are the last of"
    " S: query t sees keys up to S − T + t.",
)
wrong.add(
    "mask_top_left_of_blocks",
    replaced(reference, {"S - T + torch": "(0 if T > 1 else S - T) + torch"}),
    "is_causal=T > 1 in F.scaled_dot_product_attention",
    "Right for a prompt and for one token. A block after a cache (1 < T < S) wants the mask at"
    " the bottom right: query t sees keys up to S − T + t.",
)
wrong.add(
    "no_mask_behind_a_cache",
    replaced(reference, {"S - T + torch": "(0 if T == S else S) + torch"}),
    "is_causal=(T == S) in F.scaled_dot_product_attention",
    "Right for a prompt and for one token. A block after a cache (1 < T < S) has no mask with you:"
    " its earlier queries see keys of their own future.",
)
wrong.add(
    "overflows",
    replaced(
        reference,
        {
            "seen.softmax(-1)": "scores.exp() * ~hidden",
            "weights, v)": "weights / weights.sum(-1, keepdim=True), v)",
        },
    ),
    "softmax written as exp over sum",
    "Large scores overflow in the exponential: subtract each query's largest score first, as"
    " torch.softmax does.",
)
wrong.add(
    "no_mask",
    replaced(reference, {"> last": "> S"}),
    "decode code used for a prompt",
    "Nothing is masked: with T > 1 the earlier queries see keys of their own future.",
)
wrong.add(
    "one_ahead",
    replaced(reference, {"S - T + torch": "S - T + 1 + torch"}),
    "torch.triu with diagonal one too large",
    "Each query sees one key of its future: the mask is off by one.",
)
wrong.add(
    "itself_hidden",
    replaced(reference, {"S - T + torch": "S - T - 1 + torch"}),
    "the cached step that excluded the current token",
    "Each query is kept from its own key: the mask is off by one, and the very first token has"
    " nothing to look at (NaN).",
)
wrong.add(
    "heads_in_turn",
    replaced(
        reference,
        {"arange(N) // G": "arange(N) % k.shape[2]"},
    ),
    "h % K for h // G; torch.Tensor.repeat for repeat_interleave",
    "Query head n was given KV head n % K. Heads of one group are neighbors: it is n // G.",
)
wrong.add(
    "scaled_by_width",
    replaced(reference, {"math.sqrt(H)": "math.sqrt(N * H)"}),
    "√D read for √H",
    "You divided by the root of all heads' width: each head's scores are divided by the root of"
    " its own width H.",
)
wrong.add(
    "not_scaled",
    replaced(reference, {" / math.sqrt(H)": ""}),
    "plausible",
    "The scores are not divided by √H: softmax becomes too sharp.",
)
wrong.add(
    "root_forgotten",
    replaced(reference, {"math.sqrt(H)": "H"}),
    "plausible",
    "You divided by H instead of √H: softmax becomes too flat.",
)
wrong.add(
    "softmax_over_queries",
    replaced(reference, {"softmax(-1)": "softmax(-2)"}),
    "softmax on the wrong axis",
    "The weights sum to 1 over the queries: each query's weights must sum to 1 over its keys.",
)
wrong.add(
    "hidden_at_minus_100",
    replaced(reference, {"-math.inf": "-100.0"}),
    "masked_fill(hidden, -100)",
    "You set hidden scores to −100. Visible ones may be lower, and then the future wins: use"
    " float('-inf').",
)
wrong.add(
    "one_maximum_for_all",
    replaced(
        reference,
        {
            "seen.softmax(-1)": "(seen - seen.max()).exp()",
            "weights, v)": "weights / weights.sum(-1, keepdim=True), v)",
        },
    ),
    "softmax written by hand, with scores.max()",
    "You subtracted one largest score from all. A row far below it underflows to 0/0: take the"
    " largest of each row, scores.max(-1).",
)
wrong.add(
    "masked_after_softmax",
    replaced(
        reference,
        {
            "seen.softmax(-1)": "scores.softmax(-1) * ~hidden",
            "weights, v)": "weights / weights.sum(-1, keepdim=True), v)",
        },
    ),
    "softmax before the mask",
    "You masked after softmax: where the future has the larger scores, next to nothing is left"
    " of the weights. Mask the scores first.",
)


def _case(
    rng: random.Random, B: int, T: int, S: int, N: int, K: int, H: int, public: bool = True
) -> Case:
    q, k, v = normal(rng, B, T, N, H), normal(rng, B, S, K, H), normal(rng, B, S, K, H)
    return Case(f"B={B}, T={T}, S={S}, N={N}, K={K}, H={H}", (q, k, v), public=public)


def _scored(rng: random.Random, name: str, *sequences: list[list[float]]) -> Case:
    """A sequence for each table of scores, [T][S]: one head of width 16, scores exact in float32
    wherever √H divides: q, k, their product, or q and k by √√H each."""
    scores = torch.tensor(sequences)  # [B, T, S]
    B, T, S = scores.shape
    q, k = (x[:, :, None] for x in scored(scores, 16))  # [B, T, 1, 16] and [B, S, 1, 16]
    return Case(f"B={B}, T={T}, S={S}, N=1, K=1, H=16, {name}", (q, k, alike(rng, B, S, 1, 16)))


def _hardly_hidden() -> Case:
    """A visible score as low as may be, and a large value hidden: a score of −910 in the place of
    −∞ gives it a weight of exp(−10)."""
    q, k = (x[:, :, None] for x in scored(torch.tensor([[[-900.0, 900.0], [900.0, -900.0]]]), 16))
    v = torch.stack([torch.ones(1, 1, 16), torch.full((1, 1, 16), 1e6)], 1)  # [1, 2, 1, 16]
    return Case("B=1, T=2, S=2, N=1, K=1, H=16, a value of a million hidden", (q, k, v))


def _extremes(rng: random.Random) -> list[Case]:
    """Scores at which a softmax overflows, underflows, or sees the future through its mask."""
    low, high = [-899.0, -898.5, -900.0], [899.5, 898.5, 900.0]
    return [
        _scored(rng, "equal scores", [[7.0, 7.0, 7.0], [7.0, 7.0, 7.0]]),
        _scored(rng, "the two largest scores equal", [[1.0, 3.0, 3.0]], [[3.0, 3.0, 1.0]]),
        _scored(rng, "scores of 150", [[150.0, 149.0, 0.0]]),
        _scored(rng, "a first score of −200, then 200", [[-200.0, 200.0, 0.0, 199.5]]),
        _scored(rng, "scores of −150", [[-150.0, -149.0, -151.0]]),
        _scored(rng, "300 in the future of −120", [[-120.0, 300.0], [-121.0, -120.0]]),
        _scored(rng, "900 in the future of −900", [[-900.0, 900.0], [900.0, -900.0]]),
        _hardly_hidden(),
        _scored(rng, "one row of −900, one of 900", [low, high], [high, low]),
        _scored(rng, "one sequence of −900, one of 900", [low], [high]),
    ]


def cases(rng: random.Random) -> list[Case]:
    """One query over a cache, each argument changed alone, a prompt, a block after a cache; one
    head, grouped heads, one KV head; N·H like no other size; extreme scores; more of each size than
    any constant."""
    own = random.Random(36)
    one, other = (_case(own, 1, 1, 3, 2, 1, 2) for _ in range(2))
    between = [0.0] * (edges.past(4096) - 3)
    far = [9.0, *between, 9.0, 0.0]
    rising = [i / 4096 for i in range(len(far))]
    return [
        _case(rng, 1, 1, 1, 1, 1, 3),
        _case(rng, 1, 1, 4, 1, 1, 2),
        *edges.crossed(one, other, "other q", "other k", "other v"),
        _case(own, 2, 2, 5, 6, 3, 1),
        _case(rng, 1, 3, 3, 2, 2, 5),
        _case(rng, 2, 1, 6, 6, 2, 4),
        _case(rng, 2, 2, 5, 6, 3, 4),
        *_extremes(rng),
        _case(rng, edges.past(8), 2, 3, 2, 1, 2),
        _case(rng, 1, 2, 3, 2 * edges.past(8), 2, 2),
        _case(rng, 1, 2, 3, edges.past(32), 1, 2),
        _case(rng, 1, 1, 3, 2, 1, edges.past(256)),
        _case(rng, 1, edges.past(64), edges.past(64) + 2, 1, 1, 2),
        _scored(rng, "the first and the last weigh most, or all nearly alike", [far, rising]),
        _case(rng, 1, 4, rng.randrange(6, 12), 4, 1, 7, public=False),
        _case(rng, 3, rng.randrange(2, 5), rng.randrange(7, 12), 8, 4, 6, public=False),
    ]


EXERCISE = Exercise(
    id="kv_cache-cached_attention",
    title="Causal attention with a cache",
    kind="kernel",
    points=5,
    minutes=25,
    entries=("cached_attention",),
    cases=cases,
    reference=reference,
    compare=Tolerance(
        rtol=1e-4,
        atol=1e-5,
        dtype=True,
        why="fp32 sums in another order differ by 1e-6; wrong answers by 3e-4 and more",
    ),
    misconceptions=tuple(wrong),
    hints=(
        (
            "Draw the mask for T = 2, S = 5 on paper: two rows, five columns. Which crosses does"
            " each row have?"
        ),
        (
            "Query t stands at position S − T + t and sees keys up to there. Query head n reads KV"
            " head n // G with G = N // K."
        ),
        (
            "k.repeat_interleave(G, dim=2) gives every query head its keys; then scores [B, N, T,"
            " S], divide by √H, mask, softmax over S, weights times values."
        ),
    ),
    ranges={"k": (-900, 900)},
    recall=(
        "Four new tokens, a cache of 96: which keys does the second new token see?",
        "Keys 0 to 97: all 96 cached ones, the first new one and itself.",
    ),
)
