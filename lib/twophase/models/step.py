"""What all layers of one forward pass share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from twophase.kernels.attention import causal_attention, full_attention
from twophase.kernels.kv_cache import KVCache
from twophase.kernels.latent_attention import LatentCache
from twophase.kernels.local_attention import RingKVCache
from twophase.kernels.span import Span
from twophase.kernels.state import State
from twophase.models.cache import Cache

Tables = tuple[torch.Tensor, torch.Tensor]  # cosines and sines


class PassKV:
    """Keys and values of one pass without a cache: a store that is gone when the pass is over.

    `causal`: whether a query sees only the keys up to its own.
    """

    def __init__(self, causal: bool) -> None:
        self.causal = causal

    def write(self, k: torch.Tensor, v: torch.Tensor, span: Span) -> None:
        """Keep k and v [B, T, K, H] as they are."""
        self.k, self.v = k, v

    def attend(
        self,
        q: torch.Tensor,
        span: Span,
        *,
        window: int | None = None,
        softcap: float | None = None,
        scale: float | None = None,
    ) -> torch.Tensor:
        """What the queries q [B, T, N, H] find among them: [B, T, N, H]."""
        if not self.causal:
            if span.tree is not None:
                raise ValueError("a model that reads both ways sees every token: it has no tree.")
            return full_attention(q, self.k, self.v, softcap=softcap, scale=scale)
        mask = span.mask_of_all(window)
        window = window if mask is None else None
        return causal_attention(
            q, self.k, self.v, mask=mask, window=window, softcap=softcap, scale=scale
        )


@dataclass
class Step:
    """The new tokens, their rotations, and the stores that layers write to and attend through."""

    span: Span
    rope: Mapping[str, Tables | None]  # by kind of layer
    cache: Cache | None = None
    causal: bool = True
    shared: dict[int, PassKV] = field(default_factory=dict)  # without a cache: what is read again

    def latents(self, layer: int) -> LatentCache | None:
        """The store of a layer of latents; None without a cache."""
        return None if self.cache is None else self._stored(layer, (LatentCache,), "latents")

    def state(self, layer: int) -> State | None:
        """The state of a layer; None without a cache. ValueError for a tree."""
        if self.span.tree is not None:
            raise ValueError(
                "a layer with a state reads its tokens one after the other, and cannot read a tree."
            )
        return None if self.cache is None else self._stored(layer, (State,), "a state")

    def keys_values(self, layer: int, read_later: bool) -> KVCache | RingKVCache | PassKV:
        """Where the keys and values of a layer are: with a cache in its store, else in one that
        lives as long as this pass, if they are read later, or as the caller."""
        if self.cache is not None:
            return self._stored(layer, (KVCache, RingKVCache), "keys and values")  # type: ignore[no-any-return]
        store = self.shared.get(layer) or PassKV(self.causal)
        if read_later:
            self.shared[layer] = store
        return store

    def _stored(self, layer: int, kinds: tuple[type, ...], keeps: str) -> Any:
        """What the cache has for a layer. ValueError if that is of another kind."""
        store = None if self.cache is None else self.cache.stores.get(layer)
        if not isinstance(store, kinds):
            found = "nothing" if store is None else f"a {type(store).__name__}"
            raise ValueError(
                f"layer {layer} keeps {keeps}: it needs a cache from `new_cache` of its own model;"
                f" this one has {found} there."
            )
        return store


def check_at(at: torch.Tensor | int, B: int, T: int) -> None:
    """ValueError unless `at` is the number of one of T tokens, or holds one for each of B
    sequences (whether those are below T, only the device knows)."""
    if isinstance(at, torch.Tensor):
        fits = at.shape in ((), (B,)) and at.dtype in (torch.int32, torch.int64)
    else:
        fits = isinstance(at, int) and not isinstance(at, bool) and -T <= at < T
    if not fits:
        raise ValueError(
            f"`at` is a token's number, -{T} to {T - 1}, or int64 [{B}], one for each sequence; got"
            f" {at}."
        )
