"""Prefill with the prompt's positions cut over the ranks: each runs its tokens through all layers,
and keys and values are gathered (Korthikanti et al., 2022, arXiv 2205.05198, cut only the parts
between; here attention is cut as well).

A rank's tokens are neighbors, so that the last ranks, whose tokens see more, attend longer. Decode
has one position, and nothing to cut: every rank runs it alike, on caches that are whole.
"""

from __future__ import annotations

from typing import Any

import torch

from twophase.kernels.attention import causal_attention
from twophase.kernels.collectives import Comm
from twophase.kernels.span import Span, span_counts
from twophase.measure.collectives import Tracer
from twophase.models.blank import blank
from twophase.models.cache import Cache, Counts
from twophase.models.step import PassKV, Step, among_real
from twophase.models.transformer import Transformer
from twophase.parallel.cut_caches import check_keys_and_values
from twophase.parallel.shares import share, sizes
from twophase.parallel.tensor import mark_places
from twophase.parallel.weights import Source, fill


class GatheredKV(PassKV):
    """Keys and values of all positions of one pass; the queries are those of this rank's."""

    def __init__(self, comm: Comm, T: int) -> None:
        super().__init__(causal=True)
        self.comm, self.counts = comm, sizes(T, comm.size)
        self.end = share(T, comm.rank, comm.size).stop

    def write(self, first: torch.Tensor, second: torch.Tensor, span: Span) -> None:
        """k and v of this rank's tokens, [B, own T, K, H], to all."""
        both = self.comm.all_gather(torch.cat([first, second], 2), 1, self.counts)
        self.keys, self.values = both.chunk(2, 2)  # [B, T, K, H] each

    def attend(
        self, q: torch.Tensor, span: Span, *, window: int | None = None, **options: Any
    ) -> torch.Tensor:
        """q [B, own T, N, H], the last before `end`: what they find, [B, own T, N, H]."""
        keys, values = self.keys[:, : self.end], self.values[:, : self.end]
        return causal_attention(q, keys, values, window=window, **options)


class GatheringStep(Step):
    """A pass whose layers gather their keys and values, and keep all of them until its end."""

    def prepare(self, comm: Comm, T: int) -> None:
        """Say who gathers, and how many positions there are."""
        self.comm, self.T = comm, T

    def keys_values(self, layer: int, read_later: bool) -> GatheredKV:
        """Where a layer's keys and values are."""
        if layer not in self.shared:
            self.shared[layer] = GatheredKV(self.comm, self.T)
        store = self.shared[layer]
        assert isinstance(store, GatheredKV)
        return store


class SequenceParallel:
    """A whole model on every rank, that cuts the positions of a prompt. `generate` runs it as a
    Transformer."""

    def __init__(self, model: Transformer, comm: Comm) -> None:
        self.model, self.comm = model, comm
        self.config, self.device, self.new_cache = model.config, model.device, model.new_cache

    def __call__(
        self,
        tokens: torch.Tensor,
        cache: Cache | None = None,
        *,
        n_new: Counts | None = None,
        at: int | None = None,
    ) -> torch.Tensor:
        """As a Transformer's. Passes of fewer tokens than ranks, and those that continue a cache,
        are not cut."""
        B, T = tokens.shape
        if self.comm.size > T or (cache is not None and any(cache.lengths)):
            return self.model(tokens, cache, n_new=n_new, at=at)  # type: ignore[no-any-return]
        counts = span_counts(n_new, B, T)
        whole = (
            Span((0,) * B, counts, T, self.device) if cache is None else cache.begin(B, T, counts)
        )
        own = share(T, self.comm.rank, self.comm.size)
        x, step = self._hidden(tokens[:, own.start : own.stop], own, T)
        if cache is not None:
            for layer, store in cache.stores.items():
                held = step.shared[layer]
                store.write(held.keys, held.values, whole)  # type: ignore[attr-defined]
            cache.commit()
        if at is None:
            return self.comm.all_gather(self.model.logits(x), 1, sizes(T, self.comm.size))
        return self._logits_at(x, own, torch.as_tensor(among_real(at, whole)).expand(B) % T)

    def _hidden(
        self, tokens: torch.Tensor, own: range, T: int
    ) -> tuple[torch.Tensor, GatheringStep]:
        """The stream of this rank's positions after the last norm, [B, own T, D], and what its
        layers gathered."""
        positions = torch.arange(own.start, own.stop, device=self.device)  # [own T]
        span = Span.of(len(tokens), len(own), device=self.device)
        step = GatheringStep(span, self.model.rope(positions))
        step.prepare(self.comm, T)
        x = self.model.embed(tokens, positions)  # [B, own T, D]
        if isinstance(self.comm, Tracer):  # also where a rank has one token only
            self.comm.at(phase="prefill")
        for block in self.model.layers:
            x = block(x, step)  # [B, own T, D]
        return self.model.norm(x), step

    def _logits_at(self, x: torch.Tensor, own: range, at: torch.Tensor) -> torch.Tensor:
        """Logits [B, V] of one token of each sequence: each from the rank that has it."""
        here = [b for b, t in enumerate(at.tolist()) if t in own]
        logits = torch.zeros(len(at), self.config.V, dtype=x.dtype, device=self.device)
        if here:
            logits[here] = self.model.logits(x[here], at[here] - own.start)
        return self.comm.all_reduce(logits)


def sequence_parallel(
    source: Source,
    comm: Comm,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> SequenceParallel:
    """The whole model on every rank. ValueError for layers without keys and values."""
    check_keys_and_values(source.config)
    model = blank(source.config)
    fill(model, source, lambda name: [], dtype, device)
    mark_places(model, comm)
    return SequenceParallel(model, comm)
