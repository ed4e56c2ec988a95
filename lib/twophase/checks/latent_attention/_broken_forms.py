"""Latent attention in right forms, and broken in each way that the shapes of
latent_attention-shapes must catch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from twophase.checks.misconceptions import replaced

Tensor = torch.Tensor


@dataclass(frozen=True)
class Inputs:
    """Queries [B, T, N, ...], what is cached [B, S, ...], both up-projections [N, ..., R]."""

    q_nope: Tensor
    q_rope: Tensor
    latent: Tensor
    k_rope: Tensor
    w_uk: Tensor
    w_uv: Tensor


Attend = Callable[[Inputs], Tensor]


def absorbed(x: Inputs) -> Tensor:
    """The absorbed form: [B, T, N, v_dim]."""
    T, nope_dim = x.q_nope.shape[1], x.q_nope.shape[3]
    S, rope_dim = x.k_rope.shape[1:]
    q = torch.einsum("btnd,ndr->btnr", x.q_nope, x.w_uk)  # [B, T, N, R]
    scores = torch.einsum("btnr,bsr->bnts", q, x.latent)  # [B, N, T, S]
    rotated = torch.einsum("btnd,bsd->bnts", x.q_rope, x.k_rope)  # [B, N, T, S]
    last = S - T + torch.arange(T)[:, None]  # [T, 1]
    seen = (scores + rotated).masked_fill(torch.arange(S) > last, -math.inf)  # [B, N, T, S]
    weights = (seen / math.sqrt(nope_dim + rope_dim)).softmax(-1)  # [B, N, T, S]
    summed = torch.einsum("bnts,bsr->btnr", weights, x.latent)  # [B, T, N, R]
    return torch.einsum("btnr,ndr->btnd", summed, x.w_uv)  # [B, T, N, v_dim]


def expanded(x: Inputs) -> Tensor:
    """The expanded form, one sequence, head and query at a time."""
    B, T, N, nope_dim = x.q_nope.shape
    S, rope_dim = x.k_rope.shape[1:]
    out = torch.empty(B, T, N, x.w_uv.shape[1])
    for b in range(B):
        for n in range(N):
            keys = torch.cat([x.latent[b] @ x.w_uk[n].T, x.k_rope[b]], -1)  # [S, nope + rope]
            values = x.latent[b] @ x.w_uv[n].T  # [S, v_dim]
            for t in range(T):
                query = torch.cat([x.q_nope[b, t, n], x.q_rope[b, t, n]])
                scores = keys[: S - T + t + 1] @ query / math.sqrt(nope_dim + rope_dim)
                out[b, t, n] = scores.softmax(0) @ values[: S - T + t + 1]
    return out


def _first_values(x: Inputs, width: int) -> Tensor:
    """Values cut, or filled up with zeros, where they are wider than this."""
    out = absorbed(x)
    return torch.cat([out[..., :width], torch.zeros_like(out[..., width:])], -1)


def _first_positions(x: Inputs) -> Tensor:
    """What a buffer of 64 positions sees, while there is room for the queries."""
    if x.latent.shape[1] <= 64:
        return absorbed(x)
    T = x.q_nope.shape[1]
    kept = torch.arange(max(64, T))
    kept[-T:] += x.latent.shape[1] - len(kept)
    return absorbed(replace(x, latent=x.latent[:, kept], k_rope=x.k_rope[:, kept]))


def _one_latent_for_all(x: Inputs) -> Tensor:
    return absorbed(
        replace(x, latent=x.latent[:1].expand_as(x.latent), k_rope=x.k_rope[:1].expand_as(x.k_rope))
    )


def _mean_of_rotated_queries(x: Inputs) -> Tensor:
    return absorbed(replace(x, q_rope=x.q_rope.mean(2, keepdim=True).expand_as(x.q_rope)))


BROKEN: dict[str, Attend] = {
    "divides by the root of R + rope_dim": replaced(
        absorbed, {"nope_dim + rope_dim)": "x.latent.shape[2] + rope_dim)"}
    ),
    "divides by the root of v_dim + rope_dim": replaced(
        absorbed, {"nope_dim + rope_dim)": "x.w_uv.shape[1] + rope_dim)"}
    ),
    "masks nothing": replaced(absorbed, {"> last": "> S"}),
    "masks from the top left": replaced(absorbed, {"S - T + torch": "torch"}),
    "masks blocks from the top left": replaced(
        absorbed, {"S - T + torch": "(0 if T > 1 else S - T) + torch"}
    ),
    "masks no prompt": replaced(absorbed, {"> last": "> (S if T == S else last)"}),
    "reads the first sequence's latents": _one_latent_for_all,
    "has one rotated query for all heads": _mean_of_rotated_queries,
    "takes heads for queries": replaced(
        absorbed,
        {
            'torch.einsum("btnr,ndr->btnd", summed, x.w_uv)': (
                'torch.einsum("btnr,ndr->bntd", summed, x.w_uv).reshape(*summed.shape[:3], -1)'
            )
        },
    ),
    "cuts values wider than nope_dim + rope_dim": lambda x: _first_values(
        x, x.q_nope.shape[3] + x.q_rope.shape[3]
    ),
    "has values as wide as the unrotated keys": lambda x: absorbed(
        replace(x, w_uv=x.w_uv[:, : x.q_nope.shape[3]])
    ),
    "sees 64 positions": _first_positions,
    "drops the axis of a single query": lambda x: absorbed(x).squeeze(1),
    "drops the axis of a single head": lambda x: absorbed(x).squeeze(2),
}
