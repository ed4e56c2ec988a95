"""Causal attention with grouped query heads (Vaswani et al., 2017, eq. 1; Ainslie et al., 2023, arXiv 2305.13245).

Shapes, here and everywhere: queries [B, T, N, H], keys and values [B, S, K, H], with N = G·K. Query head n reads KV
head n // G. The T queries are the *last* T of the S positions: query t sits at S − T + t and sees the keys up to its
own. (Aligning them to the left instead is the classic mistake: with a cache, T = 1 and S = 100, the query would see
one key.)
"""

import math

import torch
from torch.nn import functional


def causal_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    lengths: torch.Tensor | None = None,
    starts: torch.Tensor | None = None,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """`softmax(q kᵀ / sqrt(H) + mask) v` for any T ≤ S, without ever copying a key or a value.

    q: [B, T, N, H]; k, v: [B, S, K, H]; returns [B, T, N, H].
    Ragged batches: `lengths` [B] counts the valid keys of each sequence (the rest of S is padding), `starts` [B] is
    the key index of its first query; by default the queries end with the keys, `starts = lengths − T`. A query before
    the first key (padding on the left) returns zeros.
    Raises ValueError if shapes do not fit, or if T > S: a query without its own key has no meaning.
    """
    check_shapes(q, k, v)
    B, T, N, H = q.shape
    S, K = k.shape[1], k.shape[2]
    if T == S and T > 1 and lengths is None and starts is None:
        return _prefill(q, k, v)
    # Fold the G query heads that share a KV head into the query length: nothing is repeated, one call for all heads.
    G = N // K
    folded = q.reshape(B, T, K, G, H).permute(0, 2, 3, 1, 4).reshape(B, K, G * T, H)  # [B, K, G·T, H]
    keys, values = k.transpose(1, 2), v.transpose(1, 2)  # [B, K, S, H], views
    if T == 1 and lengths is None and starts is None:  # a lone last query sees every key
        out = functional.scaled_dot_product_attention(folded, keys, values)  # [B, K, G·T, H]
    else:
        mask = visible(T, S, lengths, starts, q.device)  # [1 or B, T, S]
        mask = mask[:, None, None].expand(-1, 1, G, T, S).reshape(-1, 1, G * T, S)  # [1 or B, 1, G·T, S]
        out = functional.scaled_dot_product_attention(folded, keys, values, attn_mask=mask)  # [B, K, G·T, H]
        out = torch.where(mask.any(-1, keepdim=True), out, 0.0)  # a query that sees no key: NaN becomes 0
    return out.view(B, K, G, T, H).permute(0, 3, 1, 2, 4).reshape(B, T, N, H)  # [B, T, N, H]


def _prefill(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """T = S: torch's fused kernel, which never stores the T × S scores; one call per member of the group, keys shared."""
    B, T, N, H = q.shape
    K = k.shape[2]
    grouped = q.reshape(B, T, K, N // K, H)  # [B, T, K, G, H]
    keys, values = k.transpose(1, 2), v.transpose(1, 2)  # [B, K, S, H]
    heads = [
        functional.scaled_dot_product_attention(grouped[:, :, :, g].transpose(1, 2), keys, values, is_causal=True)
        for g in range(N // K)
    ]  # G times [B, K, T, H]
    return torch.stack(heads, dim=2).permute(0, 3, 1, 2, 4).reshape(B, T, N, H)  # [B, T, N, H]


def naive_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    lengths: torch.Tensor | None = None,
    starts: torch.Tensor | None = None,
) -> torch.Tensor:
    """The same by the book: keys repeated for every query head, the score matrix stored. The reference of tests and chapters."""
    check_shapes(q, k, v)
    T, N, H, S = q.shape[1], q.shape[2], q.shape[3], k.shape[1]
    G = N // k.shape[2]
    k, v = k.repeat_interleave(G, dim=2), v.repeat_interleave(G, dim=2)  # [B, S, N, H]: head n reads KV head n // G
    scores = torch.einsum("btnh,bsnh->bnts", q, k) / math.sqrt(H)  # [B, N, T, S]
    mask = visible(T, S, lengths, starts, q.device)[:, None]  # [1 or B, 1, T, S]
    weights = scores.masked_fill(~mask, float("-inf")).softmax(-1).nan_to_num(0.0)  # [B, N, T, S]
    return torch.einsum("bnts,bsnh->btnh", weights, v)  # [B, T, N, H]


def visible(
    T: int,
    S: int,
    lengths: torch.Tensor | None = None,
    starts: torch.Tensor | None = None,
    device: torch.device | None = None,
) -> torch.Tensor:
    """Which key each query may see: bool [1 or B, T, S], true where `s <= start + t` and `s < length`."""
    if lengths is None:
        lengths = torch.tensor([S], device=device)  # [1]
    if starts is None:
        starts = lengths - T  # [1 or B]
    key = torch.arange(S, device=device)  # [S]
    position = starts[:, None] + torch.arange(T, device=device)  # [1 or B, T]
    return (key <= position[..., None]) & (key < lengths[:, None, None])  # [1 or B, T, S]


def check_shapes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Raise ValueError with one sentence unless q [B, T, N, H] and k, v [B, S, K, H] fit and T ≤ S."""
    if q.ndim != 4 or k.ndim != 4 or k.shape != v.shape:
        raise ValueError(
            f"attention needs q [B, T, N, H] and k, v [B, S, K, H]; got {list(q.shape)}, {list(k.shape)}, {list(v.shape)}."
        )
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(f"q and k must agree in B and H; got q {list(q.shape)} and k {list(k.shape)}.")
    if q.shape[2] % k.shape[2]:
        raise ValueError(f"the {q.shape[2]} query heads cannot be shared evenly among {k.shape[2]} KV heads.")
    if q.shape[1] > k.shape[1]:
        raise ValueError(
            f"{q.shape[1]} queries but {k.shape[1]} keys: each query needs its own key, so append keys before attending."
        )


def full_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **_: float | None) -> torch.Tensor:
    """To come."""
    raise NotImplementedError
