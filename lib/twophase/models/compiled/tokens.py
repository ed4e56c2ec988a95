"""A few new tokens of one sequence on their way through the layers."""

from typing import cast

import numpy as np
import torch

from twophase.kernels.compiled.several_attention import shared_work
from twophase.kernels.local_attention import RingKVCache
from twophase.kernels.span import Span
from twophase.models.cache import Cache
from twophase.models.compiled.token import Arrays, Token, Workspace

Array = np.ndarray


class Tokens(Token):
    """The stream x, fp32 [T, D], of some tokens of one sequence, and where they go in the cache."""

    def __init__(self, x: Array, span: Span, cache: Cache, work: Workspace) -> None:
        super().__init__(x, span, cache, work)
        self.new: dict[int, Arrays] = {}  # keys and values [T, K, H] of layers that have their own

    def rope(self, kind: str) -> Arrays:
        """Cosines and sines for a kind of layer, [T, H/2] each, or of width 0."""
        if kind not in self._rope:
            first, last = self.position, self.position + len(self.x)
            cos, sin = self.work.rope_tables(kind, last - 1)
            self._rope[kind] = cos[first:last], sin[first:last]
        return self._rope[kind]

    def shared(self, slots: int, window: int | None, token_bytes: int) -> tuple[Array, ...]:
        """What they see of a store, and who sees it (`shared_work`)."""
        sizes = slots, window or 0, token_bytes
        return shared_work(self.position, len(self.x), *sizes, self.workers)

    def room(self, layer: int, keys: Array) -> Arrays:
        """For the new keys and values of a layer, [T, K, H] each, in the numbers of its store's
        keys [slots, K, H]."""
        made = np.empty((2, len(self.x), *keys.shape[1:]), keys.dtype)
        self.new[layer] = made[0], made[1]
        return self.new[layer]

    def slot(self, layer: int) -> int:
        """Where the first of them goes in a store, or -1: a ring takes them when they are
        committed."""
        return self.position if self.cache.stores[layer].unlimited else -1

    def hold_back(self, layer: int) -> None:
        """Hand a ring what it takes when it is committed."""
        store = cast(RingKVCache, self.cache.stores[layer])
        new = [torch.from_numpy(x[None]).view(store.held[0].dtype) for x in self.new[layer]]
        store.write(new[0], new[1], self.span)
