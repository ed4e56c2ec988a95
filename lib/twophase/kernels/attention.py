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
from twophase.kernels.attention_on_cards import (
    fuses_groups,
    in_one_call,
    wants_split,
    with_keys_split,
)
from twophase.kernels.attention_training import attention_with_gradient
from twophase.kernels.span import whole

# Queries per call where a window or stored scores make blocks worthwhile. At most this many are
# faster in one call with one mask, forward and backward, than in smaller blocks, on a CPU; more
# lose to the masked scores that are computed.
BLOCK = 256


def causal_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """`softmax(q kᵀ / sqrt(H) + mask) v` for any T ≤ S, without ever copying a key or a value of a
    cache.

    q: [B, T, N, H]; k: [B, S, K, H]; v: [B, S, K, Hv], where mostly Hv = H; returns [B, T, N, Hv].
    `mask`: bool [1 or B, T, S], which keys each query sees (sequences of different lengths, a tree
    of drafts), in place of the rule that the queries end with the keys; one that sees none returns
    zeros. `window`: a query sees at most the last so many keys, its own included (Mistral, Gemma).
    `scale`: what scores are multiplied with, in place of 1/sqrt(H). `softcap`: scores become
    `softcap·tanh(score/softcap)` before the mask (Gemma 2, arXiv 2408.00118, section 2); no fused
    kernel of torch does that, so it stores scores, block by block. Raises ValueError if shapes do
    not fit, or if T > S: a query without its own key has no meaning.
    """
    check_shapes(q, k, v, causal=mask is None, same_width=False)
    check_options(window, softcap, scale)
    T, S = q.shape[1], k.shape[1]
    if mask is not None:
        check_mask(mask, q, k, window)
        return _attend(q, k, v, mask, softcap, scale)
    if T == S and softcap is None and _is_training(q):
        return attention_with_gradient(q, k, v, window=window, scale=_factor(q, scale))
    if window is None or window >= S:
        if T == 1:  # a lone last query sees every key
            return _attend(q, k, v, None, softcap, scale)
        if softcap is None:
            if T == S:
                return _prefill(q, k, v, scale)
            return _attend(q, k, v, visible(T, S, q.device), softcap, scale)
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
    group, keys shared, or one for all where the kernel of a card knows of groups.

    That kernel wants one width for keys and values; zeros appended to the narrower change no score
    and no output.
    """
    B, T, N, H = q.shape
    K, Hv = k.shape[2], v.shape[3]
    if Hv != H:
        scale = _factor(q, scale)
        q, k, v = (functional.pad(x, (0, max(H, Hv) - x.shape[3])) for x in (q, k, v))
    keys, values = k.transpose(1, 2), v.transpose(1, 2)  # [B, K, S, H]
    if fuses_groups(q.transpose(1, 2), keys, values):
        return in_one_call(q, keys, values, scale)[..., :Hv]  # [B, T, N, Hv]
    grouped = q.reshape(B, T, K, N // K, -1)  # [B, T, K, G, H]
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
        # the keys that these queries see
        first, last = max(0, S - T + start - window + 1), S - T + end
        mask = None if end - start == 1 else visible(end - start, last - first, q.device, window)
        some = q[:, start:end], k[:, first:last], v[:, first:last]
        outs.append(_attend(*some, mask, softcap, scale))
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
    folded = q.reshape(B, T, K, G, H).permute(0, 2, 3, 1, 4)  # [B, K, G, T, H]
    folded = folded.reshape(B, K, G * T, H)  # [B, K, G·T, H]
    keys, values = k.transpose(1, 2), v.transpose(1, 2)  # [B, K, S, H], views
    if mask is not None:
        mask = mask[:, None, None].expand(-1, 1, G, T, S)  # [1 or B, 1, G, T, S]
        mask = mask.reshape(-1, 1, G * T, S)  # [1 or B, 1, G·T, S]
    if softcap is None and Hv == H and mask is None and wants_split(folded, keys, values):
        out = with_keys_split(folded, keys, values, scale)  # [B, K, G·T, Hv]
    elif softcap is None and Hv == H:
        out = functional.scaled_dot_product_attention(
            folded, keys, values, attn_mask=mask, scale=scale
        )  # [B, K, G·T, Hv]
        if mask is not None:  # some kernels say NaN where no key is seen
            out = torch.where(mask.any(-1, keepdim=True), out, 0.0)
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
    # One by one: a product over both B and K would first copy a cache's keys together.
    for head in range(k.shape[1]):
        # q kᵀ says the same, 20 times slower in bf16 on a CPU
        scores = (k[:, head] @ q[:, head].mT).mT.to(wide) * scale  # [B, G·T, S]
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
    mask: torch.Tensor | None = None,
    window: int | None = None,
    softcap: float | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """The same by the book: keys repeated for every query head, the score matrix stored. The
    reference of tests and chapters."""
    check_shapes(q, k, v, causal=mask is None, same_width=False)
    check_options(window, softcap, scale)
    if mask is None:
        mask = visible(q.shape[1], k.shape[1], q.device, window)  # [1, T, S]
    else:
        check_mask(mask, q, k, window)
    G = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(G, dim=2) for x in (k, v))  # [B, S, N, H]: n reads n // G
    scores = torch.einsum("btnh,bsnh->bnts", q, k) * _factor(q, scale)  # [B, N, T, S]
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~mask[:, None], float("-inf"))  # [B, N, T, S]
    weights = scores.softmax(-1).masked_fill(~mask[:, None], 0.0)  # [B, N, T, S]; no key: NaN is 0
    return torch.einsum("bnts,bsnh->btnh", weights, v)  # [B, T, N, Hv]


def visible(
    T: int, S: int, device: torch.device | None = None, window: int | None = None
) -> torch.Tensor:
    """Which key each of the last T queries of S may see: bool [1, T, S], true where `s <= S − T +
    t`; with a window also `s > S − T + t − window`. ValueError if T > S, for a window below
    1, and for what is no whole number."""
    check_options(window, None, None)
    T, S = whole("the number of queries", T, 0), whole("the number of keys", S, 0)
    if T > S:
        raise ValueError(f"{T} queries but {S} keys: each query needs its own key.")
    key = torch.arange(S, device=device)  # [S]
    position = torch.arange(S - T, S, device=device)[:, None]  # [T, 1]
    seen = key <= position  # [T, S]
    if window is not None:
        seen &= key > position - window
    return seen[None]
