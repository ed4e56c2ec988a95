"""One new token on its way through the layers."""

from functools import cached_property
from typing import cast
from weakref import WeakKeyDictionary

import numpy as np
import torch

from twophase.kernels.compiled.loops import as_numpy
from twophase.kernels.compiled.tables import block_tokens, share_out, slot_table
from twophase.kernels.kv_cache import KVCache
from twophase.kernels.latent_attention import LatentCache
from twophase.kernels.local_attention import RingKVCache
from twophase.kernels.span import Span
from twophase.kernels.state import State
from twophase.kernels.store import Store
from twophase.models.cache import Cache
from twophase.models.step import Step, Tables
from twophase.models.transformer import KINDS, Transformer

Rows = tuple[np.ndarray, ...]


class Workspace:
    """What outlives a token: tables of RoPE, and the tensors of stores as loops see them."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.workers = 1  # cores that share the work
        self._tables: dict[str, Rows] = {}
        self._known = 0  # positions in these tables
        self._held: WeakKeyDictionary[Store, Rows] = WeakKeyDictionary()

    def held(self, store: Store) -> Rows:
        """The tensors of a store for one sequence, [slots, ...] each. ValueError where its dtype is
        one that loops do not read."""
        if store not in self._held:
            self._held[store] = tuple(as_numpy(tensor)[0] for tensor in store.held)
        return self._held[store]

    def rope(self, kind: str, position: int) -> Rows:
        """Cosines and sines of one position for a kind of layer, [H/2] each; empty where nothing is
        turned."""
        if position >= self._known:
            self._known = max(256, 2 * position)
            for name, tables in self.model.rope(torch.arange(self._known)).items():
                rows = (
                    (torch.zeros(self._known, 0, dtype=torch.float32),) * 2
                    if tables is None
                    else tables
                )
                self._tables[name] = tuple(table.numpy() for table in rows)
        cos, sin = self._tables[kind]
        return cos[position], sin[position]


class Token:
    """The stream x, fp32 [D], of one token of one sequence, and where it goes in the cache."""

    def __init__(self, x: np.ndarray, span: Span, cache: Cache, work: Workspace) -> None:
        self.x, self.span, self.cache, self.work = x, span, cache, work
        self._tables: dict[tuple[int, int | None, int], tuple[np.ndarray, ...]] = {}

    @property
    def position(self) -> int:
        """Its place in its sequence."""
        return self.span.starts[0]

    def rope(self, kind: str) -> Rows:
        """Cosines and sines for a kind of layer, [H/2] each, or of length 0."""
        return self.work.rope(kind, self.position)

    def tables(
        self, slots: int, window: int | None, token_bytes: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What it sees of a store, shared out among cores, as attention takes it; made once for all
        layers of one kind. `token_bytes`: of the keys of a token."""
        key = slots, window, token_bytes
        if key not in self._tables:
            length = np.array([self.span.end])
            table, starts = slot_table(length, slots, window or 0, block_tokens(token_bytes))
            self._tables[key] = table, *share_out(starts, self.work.workers)
        return self._tables[key]  # type: ignore[return-value]

    def keys_values(
        self, layer: int, K: int, H: int, window: int | None
    ) -> tuple[KVCache, np.ndarray, np.ndarray]:
        """The store of a layer, and its keys and values [slots, K, H]. ValueError if the cache was
        made for another model."""
        store = self.cache.stores.get(layer)
        if not isinstance(store, KVCache):
            store = self.step.keys_values(layer, read_later=False)  # raises, and says what is wrong
        if type(store) is RingKVCache and window not in (None, store.window):
            raise ValueError(
                f"layer {layer} has a window of {window} tokens, and this cache a ring for"
                f" {store.window}: make one with `new_cache` of this model."
            )
        keys, values = self.work.held(store)
        if keys.shape[1:] != (K, H):
            raise ValueError(
                f"layer {layer} has keys of {K} heads of {H}; this cache holds {keys.shape[1]} of"
                f" {keys.shape[2]}: make one with `new_cache` of this model."
            )
        return store, keys, values

    def latents(self, layer: int, R: int, rope_dim: int) -> tuple[int, np.ndarray, np.ndarray]:
        """Of a layer of latents: the token's slot, latents [slots, R] and keys [slots, rope_dim].
        ValueError if the cache was made for another model."""
        store = self.cache.stores.get(layer)
        if not isinstance(store, LatentCache):
            self.step.latents(layer)  # raises, and says what is wrong
        latents, rope_keys = self.work.held(cast(LatentCache, store))
        if (latents.shape[1], rope_keys.shape[1]) != (R, rope_dim):
            raise ValueError(
                f"layer {layer} has latents of {R} numbers and keys of {rope_dim}; this cache holds"
                f" {latents.shape[1]} and {rope_keys.shape[1]}: make one with `new_cache` of this"
                " model."
            )
        return self.position, latents, rope_keys

    def state(self, layer: int, *shapes: tuple[int, ...]) -> State:
        """The state of a layer, tensors of these shapes. ValueError if the cache was made for
        another model."""
        store = self.cache.stores.get(layer)
        if not isinstance(store, State):
            store = cast(State, self.step.state(layer))  # raises, and says what is wrong
        found = tuple(tuple(held.shape[2:]) for held in store.held)
        if found != shapes:
            raise ValueError(
                f"layer {layer} has a state of {shapes}; this cache holds {found}: make one with"
                " `new_cache` of this model."
            )
        return store

    @property
    def tensor(self) -> torch.Tensor:
        """The stream as plain layers take it: [1, 1, D], in the dtype of the weights."""
        return torch.from_numpy(self.x)[None, None].to(self.work.model.embed_tokens.weight.dtype)

    @cached_property
    def step(self) -> Step:
        """The same for the layers that run in plain torch."""
        tables: dict[str, Tables | None] = {}
        for kind in KINDS:
            cos, sin = (torch.from_numpy(row)[None] for row in self.rope(kind))  # [1, H/2]
            tables[kind] = (cos, sin) if cos.numel() else None
        return Step(self.span, tables, self.cache)
