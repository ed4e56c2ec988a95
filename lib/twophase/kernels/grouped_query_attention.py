"""Sharing keys and values among query heads (Ainslie et al., 2023, arXiv 2305.13245): a decode step
that fetches each KV head once, and the pooling that makes few KV heads of many.

K = N is multi-head attention, K = 1 multi-query attention (Shazeer, 2019, arXiv 1911.02150). Query
head n reads KV head n // G, G = N / K: heads of one group are neighbors. `attention.py` has the
kernel that models use; the loop here shows what it does about memory.
"""

import math

import torch

from twophase.kernels.attention_inputs import check_tensors
from twophase.kernels.span import whole

POOLINGS = ("mean", "first")


def decode_by_head(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
) -> torch.Tensor:
    """A decode step, query head by query head.

    q is [N, H], k and v are [S, K, H]; returns [N, H]. A KV head stays on the
    chip until the next one is fetched, so the G neighbors that share it fetch
    it once. Raises ValueError if shapes do not fit.
    """
    check_decode(q, k, v)
    G = q.shape[0] // k.shape[1]
    outs = []
    for n, query in enumerate(q):
        if n % G == 0:
            keys, values = fetch(k, v, n // G)  # [S, H] each
        outs.append(attend(query, keys, values))
    return torch.stack(outs)  # [N, H]


def fetch(
    k: torch.Tensor,
    v: torch.Tensor,
    kv_head: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One head's keys and values, [S, H] each, read from memory."""
    return k[:, kv_head], v[:, kv_head]


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
) -> torch.Tensor:
    """One query [H] over keys and values [S, H] on the chip; returns [H]."""
    weights = (keys @ query / math.sqrt(len(query))).softmax(-1)  # [S]
    return weights @ values


def pool_heads(weight: torch.Tensor, N: int, K: int, how: str = "mean") -> torch.Tensor:
    """The projection of N key (or value) heads, [N·H, ...], as one of K heads, [K·H, ...].

    "mean" averages the heads of each group, "first" keeps the first of each (Ainslie et al., 2023,
    section 2.1). Raises ValueError unless both are positive, K divides N, and N the rows.
    """
    if how not in POOLINGS:
        raise ValueError(f"heads are pooled by one of {', '.join(POOLINGS)}; got {how!r}.")
    check_tensors("pooling", weight)
    if (
        not weight.ndim
        or min(N, K) < 1
        or whole("N", N, 1) % whole("K", K, 1)
        or weight.shape[0] % N
    ):
        raise ValueError(
            f"{weight.shape[0]} rows of {N} heads cannot be pooled to {K}: K must divide N, and N"
            " the rows."
        )
    H, rest = weight.shape[0] // N, weight.shape[1:]
    groups = weight.reshape(K, N // K, H, *rest)  # [K, G, H, ...]
    pooled = groups.mean(1) if how == "mean" else groups[:, 0]  # [K, H, ...]
    return pooled.reshape(K * H, *rest)  # [K·H, ...]


def check_decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Raise ValueError unless q [N, H] and k, v [S, K, H] fit, and K divides N."""
    check_tensors("a decode step", q, k, v, one_dtype=True)
    fits = q.ndim == 2 and k.ndim == 3 and k.shape == v.shape and q.shape[1] == k.shape[2]
    if not fits or 0 in (*q.shape, *k.shape):
        raise ValueError(
            f"a decode step needs q [N, H] and k, v [S, K, H], none of these 0; got"
            f" {list(q.shape)}, {list(k.shape)}, {list(v.shape)}."
        )
    if q.shape[0] % k.shape[1]:
        raise ValueError(
            f"the {q.shape[0]} query heads cannot be shared evenly among {k.shape[1]} KV heads."
        )
