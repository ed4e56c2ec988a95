"""Causal attention with grouped query heads (Vaswani et al., 2017, eq. 1; Ainslie et al., 2023,
arXiv 2305.13245).

Shapes, here and everywhere: queries [B, T, N, H], keys and values [B, S, K, H], with N = G·K. Query
head n reads KV head n // G. The T queries are the *last* T of the S positions: query t sits at S −
T + t and sees the keys up to its own. (Aligning them to the left instead is the classic mistake:
with a cache, T = 1 and S = 100, the query would see one key.)
"""

import math

import torch
from torch.nn import functional

from twophase.kernels.attention_inputs import check_mask, check_options, check_shapes
from twophase.kernels.attention_training import attention_with_gradient

# Queries per call where a window or stored scores make blocks worthwhile. At most this many are
# faster in one call with one mask, forward and backward, than in smaller blocks, on a CPU; more
# lose to the masked scores that are computed.
BLOCK = 256


def causal_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    lengths: torch.Tensor | None = None,
    starts: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """`softmax(q kᵀ / sqrt(H) + mask) v` for any T ≤ S, without ever copying a key or a value of a
    cache.

    q: [B, T, N, H]; k: [B, S, K, H]; v: [B, S, K, Hv], where mostly Hv = H; returns [B, T, N, Hv].
    Ragged batches: `lengths` [B] counts the valid keys of each sequence (the rest of S is padding),
    `starts` [B] is the key index of its first query; by default the queries end with the keys,
    `starts = lengths − T`. A query before the first key (padding on the left) returns zeros.
    `mask`: bool [1 or B, T, S], which keys each query sees, in place of all these rules (keys in
    another order, a tree of drafts); one that sees none returns zeros.
    `window`: a query sees at most the last so many keys, its own included (Mistral, Gemma).
    `scale`: what scores are multiplied with, in place of 1/sqrt(H). `softcap`: scores become
    `softcap·tanh(score/softcap)` before the mask (Gemma 2, arXiv 2408.00118, section 2); no fused
    kernel of torch does that, so it stores scores, block by block. Raises ValueError if shapes do
    not fit, or if T > S: a query without its own key has no meaning.
    """
    check_shapes(q, k, v, causal=mask is None, same_width=False)
    check_options(window, softcap, scale)
    T, S = q.shape[1], k.shape[1]
    if mask is not None:
        check_mask(mask, q, k, lengths, starts, window)
        return _attend(q, k, v, mask, softcap, scale)
    if T == S and lengths is None and starts is None and softcap is None and _is_training(q):
        return attention_with_gradient(q, k, v, window=window, scale=_factor(q, scale))
    if lengths is not None or starts is not None:
        return _attend(q, k, v, visible(T, S, lengths, starts, q.device, window), softcap, scale)
    if window is None or window >= S:
        if T == S and T > 1 and softcap is None:
            return _prefill(q, k, v, scale)
        if softcap is None or T == 1:
            mask = (
                None if T == 1 else visible(T, S, device=q.device)
            )  # a lone last query sees every key
            return _attend(q, k, v, mask, softcap, scale)
    return _in_blocks(q, k, v, window or S, softcap, scale)


def full_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """Attention without a mask: every query sees every key, those behind it too. T and S are free
    of each other.

    Shapes, `scale`, `softcap` and errors as in `causal_attention`. What masked diffusion and
    encoders use.
    """
    check_shapes(q, k, v, causal=False, same_width=False)
    check_options(None, softcap, scale)
    if q.shape[1] == k.shape[1] and softcap is None and _is_training(q):
        return attention_with_gradient(q, k, v, window=None, scale=_factor(q, scale), causal=False)
    return _attend(q, k, v, None, softcap, scale)


def _is_training(q: torch.Tensor) -> bool:
    """On a CPU torch's fused kernel has a slow backward pass in bf16."""
    return (
        q.requires_grad
        and torch.is_grad_enabled()
        and q.dtype == torch.bfloat16
        and q.device.type == "cpu"
    )


def _factor(q: torch.Tensor, scale: float | None) -> float:
    """What scores are multiplied with."""
    return 1 / math.sqrt(q.shape[3]) if scale is None else scale


def _prefill(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float | None
) -> torch.Tensor:
    """T = S: torch's fused kernel, which never stores the T × S scores; one call per member of the
    group, keys shared.

    That kernel wants one width for keys and values; zeros appended to the narrower change no score
    and no output.
    """
    B, T, N, H = q.shape
    K, Hv = k.shape[2], v.shape[3]
    if Hv != H:
        scale = _factor(q, scale)
        q, k, v = (functional.pad(x, (0, max(H, Hv) - x.shape[3])) for x in (q, k, v))
    grouped = q.reshape(B, T, K, N // K, -1)  # [B, T, K, G, H]
    keys, values = k.transpose(1, 2), v.transpose(1, 2)  # [B, K, S, H]
    heads = [
        functional.scaled_dot_product_attention(
            grouped[:, :, :, g].transpose(1, 2), keys, values, is_causal=True, scale=scale
        )
        for g in range(N // K)
    ]  # G times [B, K, T, H]
    out = torch.stack(heads, dim=2).permute(0, 3, 1, 2, 4).reshape(B, T, N, -1)  # [B, T, N, H]
    return out if Hv == H else out[..., :Hv]  # [B, T, N, Hv]


def _in_blocks(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    window: int,
    softcap: float | None,
    scale: float | None,
) -> torch.Tensor:
    """Block by block of queries, each with those keys only that its windows reach: work grows with
    T·window, not T·S."""
    T, S = q.shape[1], k.shape[1]
    outs = []
    for start in range(0, T, BLOCK):
        end = min(start + BLOCK, T)
        first, last = (
            max(0, S - T + start - window + 1),
            S - T + end,
        )  # the keys that these queries see
        mask = (
            None
            if end - start == 1
            else visible(end - start, last - first, device=q.device, window=window)
        )
        outs.append(
            _attend(q[:, start:end], k[:, first:last], v[:, first:last], mask, softcap, scale)
        )
    return outs[0] if len(outs) == 1 else torch.cat(outs, dim=1)  # [B, T, N, Hv]


def _attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    softcap: float | None,
    scale: float | None,
) -> torch.Tensor:
    """Attention under a mask [1 or B, T, S], or under none. A query that sees no key returns
    zeros."""
    B, T, N, H = q.shape
    S, K, Hv = k.shape[1], k.shape[2], v.shape[3]
    # Fold the G query heads that share a KV head into the query length: nothing is repeated, one
    # call for all heads.
    G = N // K
    folded = (
        q.reshape(B, T, K, G, H).permute(0, 2, 3, 1, 4).reshape(B, K, G * T, H)
    )  # [B, K, G·T, H]
    keys, values = k.transpose(1, 2), v.transpose(1, 2)  # [B, K, S, H], views
    if mask is not None:
        mask = (
            mask[:, None, None].expand(-1, 1, G, T, S).reshape(-1, 1, G * T, S)
        )  # [1 or B, 1, G·T, S]
    if softcap is None and Hv == H:
        out = functional.scaled_dot_product_attention(
            folded, keys, values, attn_mask=mask, scale=scale
        )
        if mask is not None:
            out = torch.where(
                mask.any(-1, keepdim=True), out, 0.0
            )  # some kernels say NaN where no key is seen
    else:
        out = _spelled_out(folded, keys, values, mask, softcap, _factor(q, scale))
    return out.view(B, K, G, T, Hv).permute(0, 3, 1, 2, 4).reshape(B, T, N, Hv)  # [B, T, N, Hv]


def _spelled_out(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    softcap: float | None,
    scale: float,
) -> torch.Tensor:
    """The same for what torch has no fused kernel for; scores are stored, in fp32 or wider.

    q: [B, K, G·T, H]; k: [B, K, S, H]; v: [B, K, S, Hv]; mask: [1 or B, 1, G·T, S]; returns [B, K,
    G·T, Hv].
    """
    outs, wide = [], torch.promote_types(q.dtype, torch.float32)
    for head in range(
        k.shape[1]
    ):  # one by one: a product over both B and K would first copy a cache's keys together
        scores = (
            k[:, head] @ q[:, head].mT
        ).mT  # [B, G·T, S]; q kᵀ says the same, 20 times slower in bf16 on a CPU
        scores = scores.to(wide) * scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        if mask is None:
            weights = scores.softmax(-1)  # [B, G·T, S]
        else:
            weights = scores.masked_fill(~mask[:, 0], float("-inf")).softmax(-1)  # [B, G·T, S]
            weights = weights.masked_fill(~mask[:, 0], 0.0)  # no key seen: NaN becomes 0
        outs.append(weights.to(v.dtype) @ v[:, head])  # [B, G·T, Hv]
    return torch.stack(outs, dim=1)  # [B, K, G·T, Hv]


def naive_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    lengths: torch.Tensor | None = None,
    starts: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """The same by the book: keys repeated for every query head, the score matrix stored. The
    reference of tests and chapters."""
    check_shapes(q, k, v, causal=mask is None, same_width=False)
    check_options(window, softcap, scale)
    if mask is not None:
        check_mask(mask, q, k, lengths, starts, window)
    T, N, S = q.shape[1], q.shape[2], k.shape[1]
    G = N // k.shape[2]
    k, v = (
        k.repeat_interleave(G, dim=2),
        v.repeat_interleave(G, dim=2),
    )  # [B, S, N, H]: head n reads KV head n // G
    scores = torch.einsum("btnh,bsnh->bnts", q, k) * _factor(q, scale)  # [B, N, T, S]
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is None:
        mask = visible(T, S, lengths, starts, q.device, window)
    mask = mask[:, None]  # [1 or B, 1, T, S]
    weights = scores.masked_fill(~mask, float("-inf")).softmax(-1).nan_to_num(0.0)  # [B, N, T, S]
    return torch.einsum("bnts,bsnh->btnh", weights, v)  # [B, T, N, Hv]


def visible(
    T: int,
    S: int,
    lengths: torch.Tensor | None = None,
    starts: torch.Tensor | None = None,
    device: torch.device | None = None,
    window: int | None = None,
) -> torch.Tensor:
    """Which key each query may see: bool [1 or B, T, S], true where `s <= start + t` and `s <
    length`.

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
