"""Caches of a tensor-parallel model that are cut otherwise than by heads: by sequence (Pope et al.,
2022, arXiv 2211.05102, section 3.3), or by position.

Every rank projects its own heads. What it writes travels to where it is kept, its queries to where
their keys are, and what they found comes back: all inside the store, so that no layer knows of it.
With more ranks than KV heads a head that is copied is sent by the first rank that has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from twophase.kernels.collectives import Comm
from twophase.kernels.kv_cache import KVCache, check_room
from twophase.kernels.online_softmax import NEG_INF, Partial, merge, partial_attention
from twophase.kernels.span import Span
from twophase.kernels.store import Store
from twophase.models.cache import Cache
from twophase.models.config import Config
from twophase.models.stores import new_store
from twophase.models.transformer import Transformer
from twophase.parallel.shares import head_shares, share
from twophase.parallel.tensor import tensor_parallel
from twophase.parallel.weights import Source


class Heads:
    """Which heads of a layer the ranks have, and how they come together: [B, T, own heads, H] of
    each to [B, T, heads, H]."""

    def __init__(self, N: int, K: int, comm: Comm) -> None:
        shares = [head_shares(N, K, rank, comm.size) for rank in range(comm.size)]
        self.queries = [len(queries) for queries, _ in shares]
        first: set[int] = set()
        self.kept: list[list[int]] = []  # of each rank's KV heads, those that it sends
        for _, keys in shares:
            self.kept.append([i for i, head in enumerate(keys) if head not in first])
            first.update(keys)
        self.own = self.kept[comm.rank]

    def sent(self, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """What a rank sends of its keys and values: [B, T, 2 · heads, H]."""
        return torch.cat([k[:, :, self.own], v[:, :, self.own]], 2)  # [B, T, 2 · heads, H]

    def joined(self, parts: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """What all ranks sent, as keys and values of all heads: [B, T, K, H] each."""
        halves = [part.chunk(2, 2) for part in parts if part.shape[2]]
        keys, values = (torch.cat(half, 2) for half in zip(*halves, strict=True))
        return keys, values


class BatchSplitKV(KVCache):
    """All heads of this rank's sequences, in a store `inner` of its own."""

    _pass: tuple[Span, Span] | None

    def __init__(self, comm: Comm, inner: KVCache, B: int, heads: Heads) -> None:
        self.comm, self.inner, self.heads, self.held = comm, inner, heads, inner.held
        self.counts = [len(share(B, rank, comm.size)) for rank in range(comm.size)]
        self.rows = share(B, comm.rank, comm.size)
        self.unlimited, self._pass = inner.unlimited, None

    def write(self, first: torch.Tensor, second: torch.Tensor, span: Span) -> None:
        """k and v of the rank's heads and all sequences, [B, T, own K, H], to where they are
        kept."""
        sent = self.heads.sent(first, second)  # [B, T, 2 · heads, H]
        came = self.comm.all_to_all(torch.split(sent, self.counts))  # n of [own B, T, 2 · heads, H]
        self.inner.write(*self.heads.joined(came), self._own(span))

    def attend(self, q: torch.Tensor, span: Span, **options: Any) -> torch.Tensor:
        """q [B, T, own N, H] → what they find, [B, T, own N, H]."""
        came = self.comm.all_to_all(torch.split(q, self.counts))  # n of [own B, T, heads, H]
        out = self.inner.attend(torch.cat(came, 2), self._own(span), **options)
        back = self.comm.all_to_all(
            torch.split(out, self.heads.queries, 2)
        )  # n of [rows, T, own, H]
        return torch.cat(back)  # [B, T, own N, H]

    def commit(self, span: Span, kept: Sequence[int]) -> None:
        """As `Store` has it, of the rank's sequences."""
        self.inner.commit(self._own(span), kept[self.rows.start : self.rows.stop])

    def move(self, span: Span, paths: Sequence[Sequence[int]]) -> None:
        """As `Store` has it, of the rank's sequences."""
        self.inner.move(self._own(span), paths[self.rows.start : self.rows.stop])

    def take_back(self, gone: Span) -> None:
        """As `Store` has it, of the rank's sequences."""
        self.inner.take_back(self._own(gone))

    def clear(self, row: int) -> None:
        """Forget one sequence."""
        if row in self.rows:
            self.inner.clear(row - self.rows.start)

    def copy_row(self, source: int, target: int) -> None:
        """Never: the two may be on different ranks."""
        raise ValueError("sequences of a cache that is cut by sequence cannot be copied.")

    def _own(self, span: Span) -> Span:
        """The span of this rank's sequences: the same one for the same pass, by which a ring knows
        what it holds back."""
        if self._pass is None or self._pass[0] is not span:
            own = slice(self.rows.start, self.rows.stop)
            part = Span(span.starts[own], span.n_new[own], span.T, span.device, span.tree)
            self._pass = span, part
        return self._pass[1]


class LengthSplitKV(KVCache):
    """All heads of every n-th position: position p is on rank p mod n, in slot p // n, so that each
    rank has as many, of a prompt's triangle too (Brandon et al., 2023, arXiv 2311.09431)."""

    def __init__(self, comm: Comm, B: int, S_max: int, K: int, H: int, heads: Heads, **more: Any):
        super().__init__(B, -(-S_max // comm.size), K, H, **more)
        self.comm, self.heads, self.S_max = comm, heads, S_max

    def write(self, first: torch.Tensor, second: torch.Tensor, span: Span) -> None:
        """k and v of the rank's heads, [B, T, own K, H], to all; the rank's positions stay."""
        check_room(span, self.S_max)
        sent = self.heads.sent(first, second)  # [B, T, 2 · heads, H]
        counts = [2 * len(kept) for kept in self.heads.kept]
        parts = torch.split(self.comm.all_gather(sent, 2, counts), counts, 2)
        rows, tokens, slots = self._here(span)
        for held, new in zip(self.held, self.heads.joined(parts), strict=True):
            held[rows, slots] = new[rows, tokens].to(held.dtype)

    def attend(
        self,
        q: torch.Tensor,
        span: Span,
        *,
        window: int | None = None,
        softcap: float | None = None,
        scale: float | None = None,
    ) -> torch.Tensor:
        """q [B, T, own N, H] → what they find, [B, T, own N, H]: every rank attends with all heads
        to its positions, in fp32, and the rank of a head merges what was found for it."""
        q = self.comm.all_gather(q, 2, self.heads.queries)  # [B, T, N, H]
        found = self._found(q, span, window, softcap, scale)
        packed = torch.cat([found.out, found.m[..., None], found.l[..., None]], -1)
        came = self.comm.all_to_all(torch.split(packed, self.heads.queries, 2))
        total: Partial | None = None
        for part in came:  # [B, T, own N, H + 2]
            one = Partial(part[..., :-2], part[..., -2], part[..., -1])
            total = one if total is None else merge(total, one)
        assert total is not None
        return total.value().to(q.dtype)  # [B, T, own N, H]

    def _found(
        self,
        q: torch.Tensor,
        span: Span,
        window: int | None,
        softcap: float | None,
        scale: float | None,
    ) -> Partial:
        """Attention over the rank's positions: out [B, T, N, H], m and l [B, T, N]."""
        B, T, N, H = q.shape
        n, K = self.comm.size, self.keys.shape[2]
        slots = -(-(span.end - self.comm.rank) // n)  # that hold a position before the end
        if slots < 1:
            out = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
            m = torch.full((B, T, N), NEG_INF, device=q.device)
            return Partial(out, m, torch.zeros_like(m))
        k, v = (held[:, :slots].float().permute(0, 2, 3, 1) for held in self.held)  # [B, K, H, S]
        grouped = q.float().view(B, T, K, N // K, H).permute(0, 2, 3, 1, 4)  # [B, K, G, T, H]
        scores = grouped @ k[:, :, None] * (H**-0.5 if scale is None else scale)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)  # [B, K, G, T, S]
        key_at = torch.arange(slots, device=q.device) * n + self.comm.rank  # [S]
        query_at = span.positions.expand(B, T)[..., None]  # [B, T, 1]
        seen = key_at <= query_at if window is None else (
            (key_at <= query_at) & (key_at > query_at - window)
        )  # fmt: skip
        scores = scores.masked_fill(~seen[:, None, None], NEG_INF)
        found = partial_attention(scores, v.transpose(-1, -2)[:, :, None])
        out = found.out.permute(0, 3, 1, 2, 4).reshape(B, T, N, H)  # [B, T, N, H]
        m, l = (x.permute(0, 3, 1, 2).reshape(B, T, N) for x in (found.m, found.l))  # [B, T, N]
        return Partial(out, m, l)

    def take_back(self, gone: Span) -> None:
        """Write zeros over these tokens."""
        rows, _, slots = self._here(gone)
        for held in self.held:
            held[rows, slots] = 0

    def move(self, span: Span, paths: Sequence[Sequence[int]]) -> None:
        """Never: the tokens of a tree are on different ranks."""
        raise ValueError("a cache that is cut by position takes no tree of drafts.")

    def _here(self, span: Span) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The real tokens that are kept here: whose, which of the T, and their slots."""
        if span.tree is not None:
            raise ValueError("a cache that is cut by position takes no tree of drafts.")
        rows, tokens, slots = span.index  # [m] each
        here = slots % self.comm.size == self.comm.rank  # [m]
        return rows[here], tokens[here], slots[here] // self.comm.size


def batch_split(
    source: Source,
    comm: Comm,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> Transformer:
    """A tensor-parallel model whose caches are cut by sequence. A batch has at least as many as
    there are ranks. ValueError as in `tensor_parallel`, and for layers without keys and values."""
    return _with_cut_cache(source, comm, dtype, device, "batch")


def length_split(
    source: Source,
    comm: Comm,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> Transformer:
    """A tensor-parallel model whose caches are cut by position; layers with a window keep every
    position, too. ValueError as in `batch_split`."""
    return _with_cut_cache(source, comm, dtype, device, "length")


def _with_cut_cache(
    source: Source,
    comm: Comm,
    dtype: torch.dtype | None,
    device: torch.device | str,
    cut: str,
) -> Transformer:
    check_keys_and_values(source.config)
    model = tensor_parallel(source, comm, dtype, device)

    def new_cache(
        B: int, S_max: int, *, rollback: int = 0, dtype: torch.dtype | None = None
    ) -> Cache:
        c, kept = source.config, dtype or model.embed_tokens.weight.dtype
        if cut == "batch" and comm.size > B:
            raise ValueError(
                f"{B} sequences cannot be dealt out to {comm.size} ranks: give each at least one."
            )
        stores: dict[int, Store] = {}
        for layer in range(c.L):
            if c.source(layer) != layer:
                continue
            own = c.at(layer)
            heads = Heads(own.N, own.K, comm)
            if cut == "length":
                stores[layer] = LengthSplitKV(
                    comm, B, S_max, own.K, own.H, heads, dtype=kept, device=model.device
                )
            else:
                rows = len(share(B, comm.rank, comm.size))
                inner = new_store(c, layer, rows, S_max, rollback, kept, model.device)
                assert isinstance(inner, KVCache)
                stores[layer] = BatchSplitKV(comm, inner, B, heads)
        return Cache(stores, B, S_max, rollback=rollback, device=model.device)

    model.new_cache = new_cache  # type: ignore[method-assign]
    return model


def check_keys_and_values(config: Config) -> None:
    """ValueError for a model with layers that keep something else, or that reads both ways."""
    if not config.causal or set(config.mixers) - {"gqa", "sliding"}:
        raise ValueError(
            "this layout moves keys and values of causal attention: a model with latents, states,"
            " or that reads both ways has others; take --layout tensor, pipeline or replicas."
        )
