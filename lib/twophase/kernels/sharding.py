"""One layer on n ranks: each way of cutting it, from one rank's side.

A rank gets a `Comm` and its own part of the weights, [outputs, inputs] as torch stores them, and of
the data. `columns` and `rows` cut a weight as the mathematics names it: `x W` with the columns of W
cut is a product whose outputs are cut. What the ranks send is what `theory.messages` lists.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.nn import functional

from twophase.kernels.attention import causal_attention
from twophase.kernels.collectives import Comm
from twophase.kernels.mlp import gated_mlp
from twophase.kernels.online_softmax import Partial, merge, partial_attention
from twophase.kernels.span import whole
from twophase.theory.layout import heads_of_chip


def columns(w: torch.Tensor, rank: int, n: int) -> torch.Tensor:
    """`W[D, F_n]` of a weight stored as [F, D]: [F / n, D]. The first ranks have one more where n
    does not divide. ValueError unless the rank is one of 0 to n − 1."""
    return _part(w, 0, rank, n)  # [F / n, D]


def rows(w: torch.Tensor, rank: int, n: int) -> torch.Tensor:
    """`W[F_n, D]` of a weight stored as [D, F]: [D, F / n]."""
    return _part(w, 1, rank, n)  # [D, F / n]


def _part(w: torch.Tensor, dim: int, rank: int, n: int) -> torch.Tensor:
    if whole("a rank", rank, 0) >= whole("the number of ranks", n, 1):
        raise ValueError(f"{n} ranks are counted from 0 to {n - 1}; there is no rank {rank}.")
    return w.tensor_split(n, dim)[rank]


def tensor_mlp(
    comm: Comm,
    x: torch.Tensor,
    w_gate: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """A gated MLP, its columns cut and then its rows (Shoeybi et al. 2019, section 3): x [..., D],
    w_gate and w_up [F / n, D], w_down [D, F / n]; the whole [..., D] on every rank.

    Nothing is sent in between: the activation works on each column alone. The bias [D] is added
    once, behind the sum.
    """
    total = comm.all_reduce(gated_mlp(x, w_gate, w_up, w_down))  # [..., D]
    return total if bias is None else total + bias


def gathered_mlp(
    comm: Comm, x: torch.Tensor, w_gate: torch.Tensor, w_up: torch.Tensor, w_down: torch.Tensor
) -> torch.Tensor:
    """The same with weights gathered before use (FSDP): x [..., D] are this rank's tokens only, and
    so is the result."""
    whole = (comm.all_gather(w, dim) for w, dim in ((w_gate, 0), (w_up, 0), (w_down, 1)))
    return gated_mlp(x, *whole)


class HeadParts(NamedTuple):
    """A rank's projections: of its query heads, of the KV heads that those read."""

    wq: torch.Tensor  # [own N · H, D]
    wk: torch.Tensor  # [own K · H, D]
    wv: torch.Tensor  # [own K · H, D]
    wo: torch.Tensor  # [D, own N · H]


def head_parts(
    wq: torch.Tensor,
    wk: torch.Tensor,
    wv: torch.Tensor,
    wo: torch.Tensor,
    H: int,
    rank: int,
    n: int,
) -> HeadParts:
    """A rank's part of attention's projections [N H, D], [K H, D], [K H, D], [D, N H]. With more
    ranks than KV heads each of these is on several. ValueError unless all divides evenly."""
    H = whole("the width of a head", H, 1)
    fits = wq.ndim == wo.ndim == 2 and wq.shape[0] == wo.shape[1] and wk.shape == wv.shape
    if not fits or wk.shape[1:] != wq.shape[1:] or wq.shape[0] % H or wk.shape[0] % H:
        raise ValueError(
            f"heads of width {H} are cut from wq [N·H, D], wk and wv [K·H, D] and wo [D, N·H]; got"
            f" {', '.join(str(list(w.shape)) for w in (wq, wk, wv, wo))}."
        )
    queries, held = heads_of_chip(rank, n, wq.shape[0] // H, wk.shape[0] // H)
    q = slice(queries.start * H, queries.stop * H)
    kv = slice(held.start * H, held.stop * H)
    return HeadParts(wq[q], wk[kv], wv[kv], wo[:, q])


def tensor_attention(comm: Comm, x: torch.Tensor, parts: HeadParts, H: int) -> torch.Tensor:
    """Causal attention with heads cut: x [B, T, D] on every rank, [B, T, D] on every rank; one
    sum."""
    B, T, _ = x.shape
    q, k, v = (
        functional.linear(x, w).view(B, T, -1, H)  # [B, T, own heads, H]
        for w in parts[:3]
    )
    out = causal_attention(q, k, v).reshape(B, T, -1)  # [B, T, own N · H]
    return comm.all_reduce(functional.linear(out, parts.wo))  # [B, T, D]


class Projected(NamedTuple):
    """A rank's columns of the queries, keys and values of B new tokens."""

    q: torch.Tensor  # [B, N · H / n]
    k: torch.Tensor  # [B, K · H / n]
    v: torch.Tensor  # [B, K · H / n]


def batch_split_decode(
    comm: Comm, new: Projected, k_cache: torch.Tensor, v_cache: torch.Tensor, H: int
) -> torch.Tensor:
    """A decode step on a cache cut by sequence (Pope et al. 2022, section 3.3): k_cache and v_cache
    [B / n, S, K, H] are those of this rank's sequences, the last position free for the new token.
    Returns this rank's columns of the outputs, [B, N · H / n].

    n must divide B, N and K · H.
    """
    n, joined = comm.size, torch.cat(new, -1)  # [B, (N + 2 K) · H / n]
    came = comm.all_to_all(joined.chunk(n))  # n of [B / n, (N + 2 K) · H / n]
    widths = [x.shape[1] for x in new]
    q, k, v = (
        torch.cat(cut, -1).view(len(cut[0]), 1, -1, H)  # [B / n, 1, heads, H]
        for cut in zip(*(torch.split(x, widths, -1) for x in came), strict=True)
    )
    k_cache[:, -1:], v_cache[:, -1:] = k, v
    out = causal_attention(q, k_cache, v_cache).flatten(1)  # [B / n, N · H]
    return torch.cat(comm.all_to_all(out.chunk(n, -1)))  # [B, N · H / n]


def length_split_decode(
    comm: Comm,
    new: Projected,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    H: int,
    holds_new: bool,
) -> torch.Tensor:
    """A decode step on a cache cut by position: k_cache and v_cache [B, own S, K, H]; the rank that
    `holds_new` has its last position free for the new token. Returns this rank's columns of the
    outputs, [B, N · H / n].

    Each rank attends to its positions in fp32 with all N heads; partial outputs, maxima and sums go
    to the rank of their head, and merge there. n must divide N and K · H. A rank may hold no
    position at all.
    """
    n, B = comm.size, new.q.shape[0]
    joined = comm.all_gather(torch.cat(new, -1), -1)  # [B, (N + 2 K) · H], rank after rank
    widths = [x.shape[1] for x in new]
    q, k, v = (
        torch.cat(cut, -1).view(B, -1, H)  # [B, heads, H]
        for cut in zip(*(torch.split(x, widths, -1) for x in joined.chunk(n, -1)), strict=True)
    )
    if holds_new:
        k_cache[:, -1], v_cache[:, -1] = k, v
    N, K = q.shape[1], k.shape[1]
    grouped = q.view(B, K, N // K, H).float()  # [B, K, G, H]
    keys, values = (x.transpose(1, 2).float() for x in (k_cache, v_cache))  # [B, K, own S, H]
    part = _attend_own(grouped, keys, values)
    packed = torch.cat([part.out, part.m[..., None], part.l[..., None]], -1)  # [B, K, G, H + 2]
    came = comm.all_to_all(packed.view(B, N, H + 2).chunk(n, 1))  # n of [B, N / n, H + 2]
    return merged(came).flatten(1).to(new.q.dtype)  # [B, N · H / n]


def _attend_own(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Partial:
    """Attention of q [..., G, H] to a rank's own positions; to none at all, if it has none."""
    if not k.shape[-2]:
        none = torch.full(q.shape[:-1], float("-inf"), device=q.device)  # [..., G]
        return Partial(torch.zeros_like(q), none, torch.zeros_like(none))
    return partial_attention(q @ k.mT * q.shape[-1] ** -0.5, v)


def merged(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Attention over all positions from each rank's [..., H + 2]: the sum of exp(score − m)·value,
    m, and the sum of exp(score − m). Returns [..., H]."""
    total, *others = (Partial(p[..., :-2], p[..., -2], p[..., -1]) for p in parts)
    for other in others:
        total = merge(total, other)
    return total.value()


def mesh(comm: Comm, X: int) -> tuple[Comm, Comm]:
    """The groups of rank x·YZ + yz on a mesh of X by YZ: along X (the same yz), along YZ (the same
    x). ValueError unless X divides the number of ranks."""
    if comm.size % X:
        raise ValueError(f"{comm.size} ranks make no mesh with {X} along X: take a divisor.")
    yz = comm.size // X
    along_x = comm.split([[x * yz + i for x in range(X)] for i in range(yz)], "X")
    return along_x, comm.split([[x * yz + i for i in range(yz)] for x in range(X)], "YZ")


def stationary_mlp(
    along_x: Comm,
    along_yz: Comm,
    x: torch.Tensor,
    w_gate: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
) -> torch.Tensor:
    """A gated MLP cut both ways (Pope et al. 2022, section 3.2.2): `Win[D_X, F_YZ]`, stored as
    [F / YZ, D / X], and `Wout[F_YZ, D_X]`, stored as [D / X, F / YZ]. x [tokens, D / XYZ] is cut
    over X, then over YZ, and so is the result. All must divide evenly."""
    x = along_yz.all_gather(x, -1)  # [tokens, D / X]
    gate, up = (
        along_x.reduce_scatter(functional.linear(x, w), -1)  # [tokens, F / XYZ]
        for w in (w_gate, w_up)
    )
    inner = along_x.all_gather(functional.silu(gate) * up, -1)  # [tokens, F / YZ]
    return along_yz.reduce_scatter(functional.linear(inner, w_down), -1)  # [tokens, D / XYZ]
