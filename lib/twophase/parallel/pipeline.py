"""A pipeline: layers dealt out to the ranks, a batch cut into micro-batches that follow each other
through them (Huang et al., 2019, arXiv 1811.06965).

A rank sends what a micro-batch is after its layers, and goes on with the next one while the rank
behind it works. The last rank has the logits, and tells them to all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from twophase.kernels.collectives import Comm
from twophase.kernels.span import Span, span_counts
from twophase.measure.collectives import Tracer
from twophase.models.blank import blank
from twophase.models.cache import Cache, Counts
from twophase.models.config import Config
from twophase.models.hugging_face.names import layer_of
from twophase.models.hugging_face.plan import layers_of
from twophase.models.step import Step, among_real
from twophase.models.stores import new_cache
from twophase.parallel.shares import share, sizes
from twophase.parallel.tensor import tensor_part
from twophase.parallel.weights import Renamed, Source, fill


class StageCache:
    """The caches of a stage's layers, one for each micro-batch."""

    def __init__(self, parts: Sequence[Cache]) -> None:
        self.parts = parts

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of each sequence of the batch."""
        return tuple(n for part in self.parts for n in part.lengths)


class Pipeline:
    """A rank's layers; all ranks together are what `generate` runs as a Transformer.

    `n_microbatches`: into how many parts a batch is cut; as many as there are ranks, if not said,
    or as there are sequences, where these are fewer. `inside`: a group of ranks that share this
    stage, tensor parallel.
    """

    def __init__(
        self,
        source: Source,
        comm: Comm,
        dtype: torch.dtype | None = None,
        device: torch.device | str = "cpu",
        n_microbatches: int | None = None,
        inside: Comm | None = None,
    ) -> None:
        self.comm, self.n_microbatches = comm, n_microbatches or comm.size
        self.config, self.device = source.config, torch.device(device)
        self.dtype, self._step = dtype or source.dtype, 0
        layers = share(self.config.L, comm.rank, comm.size)

        def rename(name: str) -> str:
            number = layer_of(name)
            if number is None:
                return name
            return name.replace(f"layers.{number}.", f"layers.{number + layers.start}.", 1)

        stage = Renamed(source, stage_config(self.config, layers), rename)
        self.first, self.last = comm.rank == 0, comm.rank == comm.size - 1
        if inside is None:
            self.model = blank(stage.config)
            self._keep_own_ends()
            fill(self.model, stage, lambda name: [], dtype, device)
        else:
            self.model = tensor_part(stage, inside, dtype, device)
            self._keep_own_ends()

    def _keep_own_ends(self) -> None:
        """Only the first stage embeds, only the last has the final norm and the head."""
        if not self.first:
            self.model.embed_tokens = nn.Module()  # type: ignore[assignment]
            if self.config.learned_positions:
                self.model.embed_positions = nn.Module()  # type: ignore[assignment]
        if not self.last:
            self.model.norm, self.model.lm_head = nn.Module(), nn.Module()  # type: ignore[assignment]

    def new_cache(
        self, B: int, S_max: int, *, rollback: int = 0, dtype: torch.dtype | None = None
    ) -> StageCache:
        """As a Transformer's, for the layers of this stage."""
        kept = (rollback, dtype or self.dtype, self.device)
        return StageCache(
            [new_cache(self.model.config, n, S_max, *kept) for n in self._microbatches(B)]
        )

    def __call__(
        self,
        tokens: torch.Tensor,
        cache: StageCache | None = None,
        *,
        n_new: Counts | None = None,
        at: int | None = None,
    ) -> torch.Tensor:
        """As a Transformer's: logits of all sequences, on every rank."""
        B, T = tokens.shape
        if isinstance(self.comm, Tracer):
            phase = "prefill" if T > 1 else "decode"
            self.comm.at(step=self._step, phase=phase, layer=None)
        self._step += 1
        counts, first, found = span_counts(n_new, B, T), 0, []
        for i, rows in enumerate(self._microbatches(B)):
            own = slice(first, first + rows)
            part = None if cache is None else cache.parts[i]
            found += self._run(tokens[own], part, counts[own], at)
            first += rows
        shape = (B, self.config.V) if at is not None else (B, T, self.config.V)
        logits = torch.cat(found) if self.last else torch.empty(shape, dtype=self.dtype)
        return self.comm.broadcast(logits.to(self.device), self.comm.size - 1)

    def _run(
        self, tokens: torch.Tensor, cache: Cache | None, n_new: Sequence[int], at: int | None
    ) -> list[torch.Tensor]:
        """One micro-batch through this stage: its logits where this is the last."""
        B, T = tokens.shape
        alone = Span.of(B, T, device=self.device)
        span = alone if cache is None else cache.begin(B, T, n_new)
        step = Step(span, self.model.rope(span.positions), cache, self.config.causal)
        if self.first:
            x = self.model.embed(tokens, span.positions)  # [b, T, D]
            if span.real is not None:
                x = x.masked_fill(~span.real[..., None], 0.0)
        else:
            x = self.comm.receive(self.comm.rank - 1)  # [b, T, D]
        for block in self.model.layers:
            x = block(x, step)  # [b, T, D]
        if cache is not None:
            cache.commit()
        if not self.last:
            self.comm.send(x, self.comm.rank + 1)
            return []
        return [self.model.logits(self.model.norm(x), None if at is None else among_real(at, span))]

    def _microbatches(self, B: int) -> list[int]:
        """Sequences of each micro-batch."""
        return sizes(B, min(B, self.n_microbatches))


def pipeline(
    source: Source,
    comm: Comm,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> Pipeline:
    """This rank's stage. ValueError, in one sentence, for fewer layers than ranks, or layers that
    read the keys of another stage's."""
    return Pipeline(source, comm, dtype, device)


def stage_config(config: Config, layers: range) -> Config:
    """The config of a stage: some of a model's layers, one after the other."""
    if not layers:
        raise ValueError(
            f"{config.L} layers cannot be dealt out to so many ranks: take at most {config.L}."
        )
    sources = [config.source(layer) for layer in layers]
    if min(sources) < layers.start:
        raise ValueError(
            f"layers {layers.start} to {layers.stop - 1} read the keys of layer {min(sources)},"
            " which is in another stage: take fewer ranks, or another --layout."
        )
    plain = layers_of(replace(config, kv_source=None, widths=None), layers)
    kv_source = config.kv_source and tuple(s - layers.start for s in sources)
    widths = config.widths and config.widths[layers.start : layers.stop]
    return replace(plain, kv_source=kv_source, widths=widths)
