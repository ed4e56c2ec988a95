"""A decode step of several sequences: attention in compiled loops, and products in torch, but for
those that torch has no fast ones for (`batch_linear`).

A matrix that serves many tokens is worth a library's product; the caches of many sequences are
still read at the speed of memory only by loops.
"""

from typing import Any

import torch

from twophase.kernels.compiled.attention import compiled_attention
from twophase.kernels.kv_cache import KVCache
from twophase.kernels.span import Span
from twophase.models.cache import Cache, Counts
from twophase.models.step import Step, check_positions, check_window
from twophase.models.transformer import Transformer


class CompiledStore(KVCache):
    """The keys and values of a store of the cache, read in compiled loops."""

    def __init__(self, store: KVCache, layer: int) -> None:
        self.store, self.layer = store, layer

    def write(self, first: torch.Tensor, second: torch.Tensor, span: Span) -> None:
        """As the store does."""
        self.store.write(first, second, span)

    def attend(
        self, q: torch.Tensor, span: Span, *, window: int | None = None, **options: Any
    ) -> torch.Tensor:
        """What one query of each sequence finds, [B, 1, N, H]; zeros where it is not real."""
        check_window(self.store, self.layer, window)
        lengths = torch.tensor(
            [start + 1 if n else 0 for start, n in zip(span.starts, span.n_new, strict=True)],
            device="cpu",
        )
        keys, values = self.store.held
        return compiled_attention(q, keys, values, lengths, window=window, **options)


class CompiledStep(Step):
    """A step whose layers read keys and values in compiled loops; all else as in torch."""

    def keys_values(self, layer: int, read_later: bool) -> KVCache:
        """The store of a layer, read in compiled loops."""
        return CompiledStore(super().keys_values(layer, read_later), layer)


def batch_step(
    model: Transformer, tokens: torch.Tensor, cache: Cache, n_new: Counts | None
) -> torch.Tensor:
    """Logits [B, V] of one token of each sequence, int64 [B, 1]; the cache waits for its commit."""
    span = cache.begin(len(tokens), 1, n_new)
    try:
        check_positions(span.positions, span, model.config.learned_positions)
        step = CompiledStep(span, model.rope(span.positions), cache)
        x = model.embed(tokens, span.positions)  # [B, 1, D]
        if span.real is not None:
            x = x.masked_fill(~span.real[..., None], 0.0)
        for block in model.layers:
            x = block(x, step)  # [B, 1, D]
        return model.logits(model.norm(x), -1)
    except BaseException:
        cache.discard()
        raise
