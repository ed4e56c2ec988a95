"""Causal attention with grouped query heads (Vaswani et al., 2017, eq. 1; Ainslie et al., 2023, arXiv 2305.13245).

Shapes, here and everywhere: queries [B, T, N, H], keys and values [B, S, K, H], with N = G·K. Query head n reads KV
head n // G. The T queries are the *last* T of the S positions: query t sits at S − T + t and sees the keys up to its
own. (Aligning them to the left instead is the classic mistake: with a cache, T = 1 and S = 100, the query would see
one key.)
"""

import math

import torch
from torch.nn import functional

from twophase.kernels.attention_training import attention_with_gradient


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

    q: [B, T, N, H]; k: [B, S, K, H]; v: [B, S, K, Hv], mostly Hv = H; returns [B, T, N, Hv].
    Ragged batches: `lengths` [B] counts the valid keys of each sequence (the rest of S is padding), `starts` [B] is
    the key index of its first query; by default the queries end with the keys, `starts = lengths − T`. A query before
    the first key (padding on the left) returns zeros.
    `window`: a query sees at most the last so many keys, its own included. `scale`: what scores are multiplied with,
    in place of 1/sqrt(H). `softcap`: scores become `softcap·tanh(score/softcap)` before the mask (Gemma 2).
    Raises ValueError if shapes do not fit, or if T > S: a query without its own key has no meaning.
    """
    check_shapes(q, k, v)
    check_options(window, softcap)
    T, S = q.shape[1], k.shape[1]
    if T == S and lengths is None and starts is None and softcap is None and _is_training(q):
        return attention_with_gradient(q, k, v, window=window, scale=scale or q.shape[3] ** -0.5)
    if lengths is not None or starts is not None:
        return _attend(q, k, v, visible(T, S, lengths, starts, q.device, window), softcap, scale)
    if window is not None and window < S:
        return _in_blocks(q, k, v, window, softcap, scale)
    if T == S and T > 1 and softcap is None:
        return _prefill(q, k, v, scale)
    mask = None if T == 1 else visible(T, S, device=q.device)  # a lone last query sees every key
    return _attend(q, k, v, mask, softcap, scale)


def full_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float | None = None, softcap: float | None = None
) -> torch.Tensor:
    """Attention without a mask: every query sees every key, in both directions. Shapes as above; T and S are free."""
    check_shapes(q, k, v, causal=False)
    check_options(None, softcap)
    if q.shape[1] == k.shape[1] and softcap is None and _is_training(q):
        return attention_with_gradient(q, k, v, window=None, scale=scale or q.shape[3] ** -0.5, causal=False)
    return _attend(q, k, v, None, softcap, scale)


def _is_training(q: torch.Tensor) -> bool:
    """On a CPU torch's fused kernel has a slow backward pass."""
    return q.requires_grad and torch.is_grad_enabled() and q.device.type == "cpu"


def _prefill(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None) -> torch.Tensor:
    """T = S: torch's fused kernel, which never stores the T × S scores; one call per member of the group, keys shared."""
    B, T, N, H = q.shape
    K = k.shape[2]
    grouped = q.reshape(B, T, K, N // K, H)  # [B, T, K, G, H]
    keys, values = k.transpose(1, 2), v.transpose(1, 2)  # [B, K, S, H]
    heads = [
        functional.scaled_dot_product_attention(
            grouped[:, :, :, g].transpose(1, 2), keys, values, is_causal=True, scale=scale
        )
        for g in range(N // K)
    ]  # G times [B, K, T, Hv]
    return torch.stack(heads, dim=2).permute(0, 3, 1, 2, 4).reshape(B, T, N, v.shape[3])  # [B, T, N, Hv]


def _in_blocks(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int, softcap: float | None, scale: float | None
) -> torch.Tensor:
    """A window: block by block of queries, each with no more keys than its window reaches."""
    T, S = q.shape[1], k.shape[1]
    block, outs = max(window, 64), []
    for start in range(0, T, block):
        end = min(start + block, T)
        first, last = max(0, S - T + start - window + 1), S - T + end  # the keys that these queries may see
        some_q, some_k, some_v = q[:, start:end], k[:, first:last], v[:, first:last]
        mask = None if end - start == 1 else visible(end - start, last - first, device=q.device, window=window)
        outs.append(_attend(some_q, some_k, some_v, mask, softcap, scale))  # [B, end − start, N, Hv]
    return torch.cat(outs, dim=1)  # [B, T, N, Hv]


def _attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    softcap: float | None,
    scale: float | None,
) -> torch.Tensor:
    """Attention under a mask [1 or B, T, S], or none. The G query heads that share a KV head are folded into the query
    length: nothing is repeated, one call for all heads."""
    B, T, N, H = q.shape
    S, K = k.shape[1], k.shape[2]
    G = N // K
    folded = q.reshape(B, T, K, G, H).permute(0, 2, 3, 1, 4).reshape(B, K, G * T, H)  # [B, K, G·T, H]
    keys, values = k.transpose(1, 2), v.transpose(1, 2)  # [B, K, S, H], views
    if mask is not None:
        mask = mask[:, None, None].expand(-1, 1, G, T, S).reshape(-1, 1, G * T, S)  # [1 or B, 1, G·T, S]
    if softcap is None:
        out = functional.scaled_dot_product_attention(folded, keys, values, attn_mask=mask, scale=scale)
    else:
        scores = softcap * torch.tanh(folded @ keys.mT * (scale or H**-0.5) / softcap)  # [B, K, G·T, S]
        scores = scores if mask is None else scores.masked_fill(~mask, float("-inf"))
        out = scores.float().softmax(-1).to(v.dtype) @ values  # [B, K, G·T, Hv]
    if mask is not None:
        out = torch.where(mask.any(-1, keepdim=True), out, 0.0)  # a query that sees no key: NaN becomes 0
    return out.view(B, K, G, T, -1).permute(0, 3, 1, 2, 4).reshape(B, T, N, -1)  # [B, T, N, Hv]


def naive_attention(
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
    """The same by the book: keys repeated for every query head, the score matrix stored. The reference of tests and chapters."""
    check_shapes(q, k, v)
    T, N, H, S = q.shape[1], q.shape[2], q.shape[3], k.shape[1]
    G = N // k.shape[2]
    k, v = k.repeat_interleave(G, dim=2), v.repeat_interleave(G, dim=2)  # [B, S, N, H]: head n reads KV head n // G
    scores = torch.einsum("btnh,bsnh->bnts", q, k)  # [B, N, T, S]
    scores = scores / math.sqrt(H) if scale is None else scores * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    mask = visible(T, S, lengths, starts, q.device, window)[:, None]  # [1 or B, 1, T, S]
    weights = scores.masked_fill(~mask, float("-inf")).softmax(-1).nan_to_num(0.0)  # [B, N, T, S]
    return torch.einsum("bnts,bsnh->btnh", weights, v)  # [B, T, N, H]


def visible(
    T: int,
    S: int,
    lengths: torch.Tensor | None = None,
    starts: torch.Tensor | None = None,
    device: torch.device | None = None,
    window: int | None = None,
) -> torch.Tensor:
    """Which key each query may see: bool [1 or B, T, S], true where `s <= start + t` and `s < length`.

    With a window also `s > start + t − window`.
    """
    if lengths is None:
        lengths = torch.tensor([S], device=device)  # [1]
    if starts is None:
        starts = lengths - T  # [1 or B]
    key = torch.arange(S, device=device)  # [S]
    position = (starts[:, None] + torch.arange(T, device=device))[..., None]  # [1 or B, T, 1]
    seen = (key <= position) & (key < lengths[:, None, None])  # [1 or B, T, S]
    return seen if window is None else seen & (key > position - window)


def check_options(window: int | None, softcap: float | None) -> None:
    """Raise ValueError unless window and softcap are absent or positive."""
    if window is not None and window < 1:
        raise ValueError(f"a window holds at least the query's own key; got {window}.")
    if softcap is not None and softcap <= 0:
        raise ValueError(f"a soft cap bounds the scores and must be positive; got {softcap}.")


def check_shapes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = True) -> None:
    """Raise ValueError with one sentence unless q [B, T, N, H] and k, v [B, S, K, H] fit and, if causal, T ≤ S."""
    if q.ndim != 4 or k.ndim != 4 or k.shape[:3] != v.shape[:3]:
        raise ValueError(
            f"attention needs q [B, T, N, H] and k, v [B, S, K, H]; got {list(q.shape)}, {list(k.shape)}, {list(v.shape)}."
        )
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(f"q and k must agree in B and H; got q {list(q.shape)} and k {list(k.shape)}.")
    if q.shape[2] % k.shape[2]:
        raise ValueError(f"the {q.shape[2]} query heads cannot be shared evenly among {k.shape[2]} KV heads.")
    if causal and q.shape[1] > k.shape[1]:
        raise ValueError(
            f"{q.shape[1]} queries but {k.shape[1]} keys: each query needs its own key, so append keys before attending."
        )
