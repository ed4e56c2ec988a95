"""kv_cache-cached_attention: causal attention for any T ≤ S, with grouped heads."""

from __future__ import annotations

import math
import random

import torch

from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case, Exercise
from twophase.checks.kv_cache._data import normal
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

Tensor = torch.Tensor


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    first: int | None = None,
    ahead: int = 0,
    scale: float | None = None,
    neighbors: bool = True,
    axis: int = -1,
) -> Tensor:
    """The right answer, with a switch for each way to get it wrong. `first`: position of the first
    query."""
    T, N, H, S = q.shape[1], q.shape[2], q.shape[3], k.shape[1]
    first = S - T if first is None else first
    group = (
        torch.arange(N) // (N // k.shape[2]) if neighbors else torch.arange(N) % k.shape[2]
    )  # [N]
    k, v = k[:, :, group], v[:, :, group]  # [B, S, N, H]
    scores = torch.einsum("btnh,bsnh->bnts", q, k) * (
        H**-0.5 if scale is None else scale
    )  # [B, N, T, S]
    hidden = torch.arange(S) > first + ahead + torch.arange(T)[:, None]  # [T, S]
    return torch.einsum(
        "bnts,bsnh->btnh", scores.masked_fill(hidden, -math.inf).softmax(axis), v
    )  # [B, T, N, H]


def reference(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The right answer."""
    return _attend(q, k, v)


@wrong(
    "F.scaled_dot_product_attention(is_causal=True) with T < S",
    "Your mask starts at the top left: query 0 sees key 0 only. The T queries are the last of S:"
    " query t sees keys up to S − T + t.",
)
def mask_top_left(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _attend(q, k, v, first=0)


@wrong(
    "is_causal=T > 1 in F.scaled_dot_product_attention",
    "Right for a prompt and for one token. A block after a cache (1 < T < S) wants the mask at the"
    " bottom right: query t sees keys up to S − T + t.",
)
def mask_top_left_of_blocks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _attend(q, k, v, first=0) if q.shape[1] > 1 else _attend(q, k, v)


@wrong(
    "softmax written as exp over sum",
    "Large scores overflow in the exponential: subtract each query's largest score first, as"
    " torch.softmax does.",
)
def overflows(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    G = q.shape[2] // k.shape[2]
    scores = torch.einsum("btnh,bsnh->bnts", q, k.repeat_interleave(G, 2)) / math.sqrt(
        q.shape[3]
    )  # [B, N, T, S]
    weights = scores.exp() * torch.ones(scores.shape[2:]).tril(
        scores.shape[3] - scores.shape[2]
    )  # [B, N, T, S]
    return torch.einsum(
        "bnts,bsnh->btnh", weights / weights.sum(-1, keepdim=True), v.repeat_interleave(G, 2)
    )


@wrong(
    "decode code used for a prompt",
    "Nothing is masked: with T > 1 the earlier queries see keys of their own future.",
)
def no_mask(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _attend(q, k, v, ahead=k.shape[1])


@wrong(
    "torch.triu with diagonal one too large",
    "Each query sees one key of its future: the mask is off by one.",
)
def one_ahead(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _attend(q, k, v, ahead=1)


@wrong(
    "the cached step that excluded the current token",
    "Each query is kept from its own key: the mask is off by one, and the very first token has"
    " nothing to look at (NaN).",
)
def itself_hidden(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _attend(q, k, v, ahead=-1)


@wrong(
    "h % K for h // G; torch.Tensor.repeat for repeat_interleave",
    "Query head n was given KV head n % K. Heads of one group are neighbors: it is n // G.",
)
def heads_in_turn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _attend(q, k, v, neighbors=False)


@wrong(
    "√D read for √H",
    "You divided by the root of all heads' width: each head's scores are divided by the root of"
    " its own width H.",
)
def scaled_by_width(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _attend(q, k, v, scale=(q.shape[2] * q.shape[3]) ** -0.5)


@wrong("plausible", "The scores are not divided by √H: softmax becomes too sharp.")
def not_scaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _attend(q, k, v, scale=1.0)


@wrong("plausible", "You divided by H instead of √H: softmax becomes too flat.")
def root_forgotten(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _attend(q, k, v, scale=1.0 / q.shape[3])


@wrong(
    "softmax on the wrong axis",
    "The weights sum to 1 over the queries: each query's weights must sum to 1 over its keys.",
)
def softmax_over_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _attend(q, k, v, axis=-2)


def _case(
    rng: random.Random, B: int, T: int, S: int, N: int, K: int, H: int, public: bool = True
) -> Case:
    q, k, v = normal(rng, B, T, N, H), normal(rng, B, S, K, H), normal(rng, B, S, K, H)
    return Case(f"B={B}, T={T}, S={S}, N={N}, K={K}, H={H}", (q, k, v), public=public)


def _large_scores(rng: random.Random, B: int, T: int, S: int, N: int, K: int, H: int) -> Case:
    """The largest score is 150: too much for float32's exponential, and a mask of -10 is no
    mask."""
    q, k, v = normal(rng, B, T, N, H), normal(rng, B, S, K, H), normal(rng, B, S, K, H)
    scores = torch.einsum("btnh,bskh->btnks", q, k) / math.sqrt(H)  # [B, T, N, K, S]
    return Case(
        f"B={B}, T={T}, S={S}, N={N}, K={K}, H={H}, large scores", (q * (150 / scores.max()), k, v)
    )


def cases(rng: random.Random) -> list[Case]:
    """One query over a cache, a prompt, a block after a cache; one head, grouped heads, one KV
    head; N·H like no other size."""
    return [
        _case(rng, 1, 1, 1, 1, 1, 3),
        _case(rng, 1, 1, 4, 1, 1, 2),
        _case(rng, 1, 3, 3, 2, 2, 5),
        _case(rng, 2, 1, 6, 6, 2, 4),
        _case(rng, 2, 2, 5, 6, 3, 4),
        _large_scores(rng, 1, 3, 5, 2, 1, 4),
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
        rtol=1e-3,
        atol=1e-4,
        dtype=True,
        why="fp32 sums in another order differ by 1e-6; wrong answers by 1e-2 and more",
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
    recall=(
        "Four new tokens, a cache of 96: which keys does the second new token see?",
        "Keys 0 to 97: all 96 cached ones, the first new one and itself.",
    ),
    withholds=(
        "twophase.kernels.attention.causal_attention",
        "twophase.kernels.attention.naive_attention",
        "twophase.kernels.online_softmax.flash_attention",
    ),
)
