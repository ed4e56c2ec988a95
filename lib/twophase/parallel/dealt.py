"""Layouts in which sequences are dealt out to the ranks: replicas, which send nothing, and experts
that are dealt out as well, to which tokens travel (Lepikhin et al., 2020, arXiv 2006.16668)."""

from __future__ import annotations

from typing import Any

import torch

from twophase.kernels.collectives import Comm
from twophase.kernels.span import span_counts
from twophase.models.blank import WithoutInitialization, blank
from twophase.models.cache import Cache, Counts
from twophase.models.hugging_face.names import layer_of
from twophase.models.mixture_of_experts import Experts, MixtureOfExperts
from twophase.models.transformer import Transformer
from twophase.parallel.shares import share, sizes
from twophase.parallel.tensor import mark_places
from twophase.parallel.weights import Box, Source, fill


class DealtCache:
    """The cache of a rank's sequences, and the lengths of all."""

    def __init__(self, inner: Cache, B: int) -> None:
        self.inner, self.lengths = inner, (0,) * B


class Dealt:
    """A model whose ranks run their own sequences of a batch; logits are gathered, so that every
    rank knows the next token of all. `generate` runs it as a Transformer."""

    def __init__(self, model: Transformer, comm: Comm) -> None:
        self.model, self.comm = model, comm
        self.config, self.device = model.config, model.device

    def new_cache(self, B: int, S_max: int, **more: Any) -> DealtCache:
        """As a Transformer's. ValueError for fewer sequences than ranks."""
        return DealtCache(self.model.new_cache(len(self._rows(B)), S_max, **more), B)

    def __call__(
        self,
        tokens: torch.Tensor,
        cache: DealtCache | None = None,
        *,
        n_new: Counts | None = None,
        at: int | None = None,
    ) -> torch.Tensor:
        """As a Transformer's: logits of all sequences, on every rank."""
        B, T = tokens.shape
        counts, rows = span_counts(n_new, B, T), self._rows(B)
        own = None if cache is None else cache.inner
        own_new = None if cache is None else counts[rows.start : rows.stop]
        logits = self.model(tokens[rows.start : rows.stop], own, n_new=own_new, at=at)
        if cache is not None:
            cache.lengths = tuple(a + n for a, n in zip(cache.lengths, counts, strict=True))
        return self.comm.all_gather(logits, 0, sizes(B, self.comm.size))

    def _rows(self, B: int) -> range:
        if self.comm.size > B:
            raise ValueError(
                f"{B} sequences cannot be dealt out to {self.comm.size} ranks: give each at least"
                " one."
            )
        return share(B, self.comm.rank, self.comm.size)


class ExpertShare(Experts):
    """A rank's experts. Tokens of all ranks come to them, each once for every expert that it
    chose, and what they give goes back."""

    def __init__(self, E: int, F: int, D: int, activation: str, comm: Comm) -> None:
        self.counts, self.comm = sizes(E, comm.size), comm
        super().__init__(self.counts[comm.rank], F, D, activation)

    def forward(
        self, x: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """x: [tokens, D]; experts, weights: [tokens, k], numbered over all ranks; the weighted sum,
        [tokens, D]."""
        tokens, k = experts.shape
        chosen, order = experts.flatten().sort(stable=True)  # [tokens·k], by expert
        visits = torch.bincount(chosen, minlength=sum(self.counts))  # [E]
        given = torch.split(visits, self.counts)  # of each rank's experts
        sent = torch.split(x[order // k], [int(part.sum()) for part in given])  # n of [visits, D]
        asked = self.comm.all_to_all(given)  # n of [own E]
        came = self.comm.all_to_all(sent)  # n of [visits, D]
        own = torch.arange(self.counts[self.comm.rank], device=x.device).repeat(self.comm.size)
        expert = own.repeat_interleave(torch.cat(asked))[:, None]  # [all visits, 1]
        ones = torch.ones(expert.shape, dtype=weights.dtype, device=x.device)
        made = torch.cat(came)  # [all visits, D]
        if len(made):
            made = super().forward(made, expert, ones)
        back = self.comm.all_to_all(torch.split(made, [len(part) for part in came]))
        results = torch.empty_like(x[order // k])
        results[order] = torch.cat(back)  # [tokens·k, D]
        weighted = results.view(tokens, k, -1) * weights[..., None].to(x.dtype)  # [tokens, k, D]
        return weighted.sum(1)


def replicas(
    source: Source,
    comm: Comm,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> Dealt:
    """The whole model on every rank, sequences dealt out."""
    model = blank(source.config)
    fill(model, source, lambda name: [], dtype, device)
    mark_places(model, comm)
    return Dealt(model, comm)


def expert_parallel(
    source: Source,
    comm: Comm,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> Dealt:
    """Experts dealt out whole, the rest of the model on every rank, sequences dealt out. ValueError
    for a model without experts, or with fewer than ranks."""
    c = source.config
    if c.moe is None:
        raise ValueError("a model without experts has none to deal out: take another --layout.")
    if comm.size > c.moe.E:
        raise ValueError(f"{c.moe.E} experts cannot be dealt out to {comm.size} ranks.")
    own, model = share(c.moe.E, comm.rank, comm.size), blank(c)
    with torch.device("meta"), WithoutInitialization():
        for block in model.layers:
            if isinstance(mlp := block.get_submodule("mlp"), MixtureOfExperts):
                mlp.experts = ExpertShare(c.moe.E, c.moe.F, c.D, c.activation, comm)

    def cut(name: str) -> Box:
        dealt = layer_of(name) is not None and ".experts." in name
        return [(0, own.start, own.stop)] if dealt else []

    fill(model, source, cut, dtype, device)
    mark_places(model, comm)
    return Dealt(model, comm)
