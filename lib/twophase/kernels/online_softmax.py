"""Softmax in one pass, and the FlashAttention that follows from it.

A softmax needs the largest score before it can add up exponentials, so it seems to need all scores
at once. It does not (Milakov and Gimelshein, 2018, arXiv 1805.02867, algorithm 3): keep a running
maximum m and a running sum l of exp(score − m); when a larger maximum turns up, multiply the old
sum by exp(m_old − m_new). Values can be carried along in the same way, so attention over a block of
keys is a triple (out, m, l), triples merge, and the T × S scores are never stored (Dao et al.,
2022, arXiv 2205.14135, algorithm 1).

A row whose scores are all −inf attends to nothing: it returns zeros, where torch's softmax returns
NaN.
"""

import math
from typing import NamedTuple

import torch

from twophase.kernels.attention_inputs import check_shapes
from twophase.kernels.span import whole

NEG_INF = float("-inf")


def online_softmax(scores: torch.Tensor, block_size: int = 64) -> torch.Tensor:
    """Softmax over the last axis, [..., S] → [..., S]; maximum and sum come from one pass over
    blocks of `block_size` scores. ValueError for a block size below 1."""
    block_size = whole("the number of scores in a block", block_size, 1)
    m = torch.full(scores.shape[:-1], NEG_INF, dtype=scores.dtype, device=scores.device)  # [...]
    l = torch.zeros_like(m)  # [...]
    for block in torch.split(scores, block_size, dim=-1):  # [..., at most block_size]
        m_new = torch.maximum(m, block.amax(-1))
        l = l * torch.exp(m - finite(m_new)) + torch.exp(block - finite(m_new)[..., None]).sum(-1)
        m = m_new
    weights = torch.exp(scores - finite(m)[..., None])  # [..., S]
    return weights / torch.where(l == 0, 1.0, l)[..., None]


class Partial(NamedTuple):
    """Attention over some of the keys, not yet divided by its sum."""

    out: torch.Tensor  # sum of exp(score − m)·value, [..., T, H]
    m: torch.Tensor  # largest score, [..., T]
    l: torch.Tensor  # sum of exp(score − m), [..., T]

    def value(self) -> torch.Tensor:
        """The attention output, [..., T, H]."""
        return self.out / torch.where(self.l == 0, 1.0, self.l)[..., None]


def partial_attention(scores: torch.Tensor, v: torch.Tensor) -> Partial:
    """Attention over one block of keys: scores [..., T, S], masked ones −inf; values v [..., S,
    H]."""
    m = scores.amax(-1)  # [..., T]
    weights = torch.exp(scores - finite(m)[..., None])  # [..., T, S]
    return Partial(weights @ v, m, weights.sum(-1))


def merge(a: Partial, b: Partial) -> Partial:
    """Attention over the keys of a and b together. Associative and commutative: blocks may come in
    any order, from any machine."""
    m = torch.maximum(a.m, b.m)  # [..., T]
    from_a, from_b = torch.exp(a.m - finite(m)), torch.exp(b.m - finite(m))  # [..., T]
    return Partial(
        a.out * from_a[..., None] + b.out * from_b[..., None], m, a.l * from_a + b.l * from_b
    )


def flash_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block_q: int = 64, block_k: int = 64
) -> torch.Tensor:
    """Causal attention block by block: q [B, T, N, H], k and v [B, S, K, H], T ≤ S, aligned at the
    end; returns [B, T, N, H].

    Holds at most block_q × block_k scores per head at a time, in fp32. Blocks of keys wholly in a
    query block's future are skipped. Raises ValueError if shapes do not fit, or for blocks of no
    queries or no keys.
    """
    check_shapes(q, k, v)
    block_q = whole("the number of queries in a block", block_q, 1)
    block_k = whole("the number of keys in a block", block_k, 1)
    B, T, N, H = q.shape
    S, K = k.shape[1], k.shape[2]
    G, dtype = N // K, q.dtype
    q = q.reshape(B, T, K, G, H).permute(0, 2, 3, 1, 4).float()  # [B, K, G, T, H]
    k, v = (x.transpose(1, 2)[:, :, None].float() for x in (k, v))  # [B, K, 1, S, H]
    position = torch.arange(S - T, S, device=q.device)  # [T]: where each query sits among the keys
    rows = []
    for t in range(0, T, block_q):
        q_block, at = (
            q[..., t : t + block_q, :],
            position[t : t + block_q],
        )  # [B, K, G, t', H], [t']
        shape = q_block.shape[:-1]
        m = torch.full(shape, NEG_INF, device=q.device)  # [B, K, G, t']
        total = Partial(torch.zeros_like(q_block), m, torch.zeros_like(m))
        for s in range(0, int(at[-1]) + 1, block_k):
            scores = (
                q_block @ k[..., s : s + block_k, :].transpose(-1, -2) / math.sqrt(H)
            )  # [B, K, G, t', s']
            future = (
                torch.arange(s, s + scores.shape[-1], device=q.device) > at[:, None]
            )  # [t', s']
            total = merge(
                total,
                partial_attention(scores.masked_fill(future, NEG_INF), v[..., s : s + block_k, :]),
            )
        rows.append(total.value())
    return (
        torch.cat(rows, dim=-2).permute(0, 3, 1, 2, 4).reshape(B, T, N, H).to(dtype)
    )  # [B, T, N, H]


def finite(m: torch.Tensor) -> torch.Tensor:
    """A maximum that may be subtracted: where no score was seen yet it is 0, since −inf − (−inf) is
    NaN."""
    return torch.where(m == NEG_INF, 0.0, m)
