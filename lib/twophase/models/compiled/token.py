"""One new token on its way through the layers."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch

from twophase.kernels.compiled.codes import Packed
from twophase.kernels.compiled.loops import STORED, Loop, as_numpy
from twophase.kernels.compiled.pages import use_large_pages
from twophase.kernels.compiled.tables import lone_work
from twophase.kernels.kv_cache import KVCache
from twophase.kernels.latent_attention import LatentCache
from twophase.kernels.span import Span
from twophase.kernels.state import State
from twophase.kernels.store import Store
from twophase.models.cache import Cache
from twophase.models.step import Step, Tables, check_window
from twophase.models.transformer import KINDS, Transformer

Arrays = tuple[np.ndarray, ...]
Shape = tuple[int, int, int, int | None]  # of a store: its layer, KV heads, width, and window
Stored = tuple[KVCache, np.ndarray, np.ndarray]


class Workspace:
    """What outlives a token: tables of RoPE, the tensors of stores as loops see them, and scratch.

    `parallel`: whether loops run on all cores; `workers`: how many these are.
    """

    def __init__(self, model: Transformer, parallel: bool) -> None:
        self.model, self.parallel, self.workers = model, parallel, 1
        self.codes: dict[tuple[Any, ...], Packed] = {}  # of quantized layers, as loops read them
        self._scratch: dict[tuple[str, tuple[int, ...]], np.ndarray] = {}
        self._tables: dict[str, Arrays] = {}
        self._of_kinds: dict[tuple[str, ...], np.ndarray] = {}
        self._known = 0  # positions in these tables
        self._held: WeakKeyDictionary[Store, Arrays] = WeakKeyDictionary()
        self._checked: WeakKeyDictionary[Cache, dict[Shape, Stored]] = WeakKeyDictionary()

    def checked(self, cache: Cache) -> dict[Shape, Stored]:
        """The stores of a cache that were found to be as a layer wants them. ValueError for a cache
        on another device, or of a dtype that loops do not read."""
        if cache not in self._checked:
            tensors = [held for store in cache.stores.values() for held in store.held]
            for tensor in tensors:
                if tensor.device.type != "cpu":
                    raise ValueError(
                        f"the compiled path runs on the CPU, and this cache is on {tensor.device}:"
                        " make one with `new_cache` of this model."
                    )
                if tensor.dtype not in STORED:
                    raise ValueError(
                        f"compiled loops read float32 and bfloat16; got {tensor.dtype} in the"
                        " cache: take the plain path, or a cache of the weights' dtype."
                    )
            use_large_pages(*tensors)
            self._checked[cache] = {}
        return self._checked[cache]

    def choose(self, loop: Loop) -> Callable[..., Any]:
        """A loop on all cores, or on one."""
        return loop.parallel if self.parallel else loop.serial

    def scratch(self, name: str, *shape: int) -> np.ndarray:
        """Room for fp32 numbers that one layer leaves to its own next call. All layers share it:
        weights drive out of the caches what is touched once in a token."""
        return self._scratch.setdefault((name, shape), np.empty(shape, np.float32))

    def held(self, store: Store) -> Arrays:
        """The tensors of a store for one sequence, [slots, ...] each. ValueError where its dtype is
        one that loops do not read."""
        if store not in self._held:
            self._held[store] = tuple(as_numpy(tensor)[0] for tensor in store.held)
        return self._held[store]

    def rope(self, kind: str, position: int) -> Arrays:
        """Cosines and sines of one position for a kind of layer, [H/2] each; empty where nothing is
        turned."""
        cos, sin = self.rope_tables(kind, position)
        return cos[position], sin[position]

    def rope_tables(self, kind: str, position: int) -> Arrays:
        """The same for all positions that are known, this one among them: [positions, H/2]."""
        if position >= self._known:
            known = max(256, 2 * position)
            positions = torch.arange(known, device="cpu")
            none = torch.zeros(known, 0, dtype=torch.float32, device="cpu")
            for name, tables in self.model.rope(positions).items():
                rows = (none, none) if tables is None else tables
                self._tables[name] = tuple(table.numpy() for table in rows)
            self._of_kinds.clear()
            self._known = known  # now that all are there: loops read them unasked
        return self._tables[kind]

    def rope_of_kinds(self, kinds: tuple[str, ...], position: int) -> np.ndarray:
        """The same for several kinds of layers at once: [kinds, 2, positions, H/2]."""
        if position >= self._known or kinds not in self._of_kinds:
            tables = [self.rope_tables(kind, position) for kind in kinds]
            self._of_kinds[kinds] = np.array(tables)
        return self._of_kinds[kinds]


class Token:
    """The stream x, fp32 [D], of one token of one sequence, and where it goes in the cache."""

    def __init__(self, x: np.ndarray, span: Span, cache: Cache, work: Workspace) -> None:
        self.x, self.span, self.cache, self.work = x, span, cache, work
        self.workers = work.workers
        self._checked = work.checked(cache)
        self._tables: dict[tuple[int, int | None, int], tuple[np.ndarray, ...]] = {}
        self._rope: dict[str, Arrays] = {}

    @property
    def position(self) -> int:
        """Its place in its sequence."""
        return self.span.starts[0]

    def rope(self, kind: str) -> Arrays:
        """Cosines and sines for a kind of layer, [H/2] each, or of length 0."""
        if kind not in self._rope:
            self._rope[kind] = self.work.rope(kind, self.position)
        return self._rope[kind]

    def tables(
        self, slots: int, window: int | None, token_bytes: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What it sees of a store, shared out among cores, as attention takes it; made once for all
        layers of one kind. `token_bytes`: of the keys of a token."""
        key = slots, window, token_bytes
        if key not in self._tables:
            self._tables[key] = lone_work(
                self.position + 1, slots, window or 0, token_bytes, self.workers
            )
        return self._tables[key]  # type: ignore[return-value]

    def keys_values(self, wanted: Shape) -> tuple[Any, ...]:
        """Keys and values [slots, K, H] of a layer, the slot of this token, and the blocks that it
        sees (three arrays), as attention takes them. ValueError if the cache was made for another
        model."""
        store, keys, values = self.store(wanted)
        window, token_bytes = wanted[3], keys.strides[0]
        return keys, values, store.slot(self.span), *self.tables(len(keys), window, token_bytes)

    def store(self, wanted: Shape) -> Stored:
        """The store of a layer with its keys and values [slots, K, H], the same tuple as long as it
        is the same. ValueError as `keys_values`."""
        found = self._checked.get(wanted)
        if found is None or found[0] is not self.cache.stores.get(wanted[0]):
            found = self._checked[wanted] = self._find_keys_values(*wanted)
        return found

    def _find_keys_values(self, layer: int, K: int, H: int, window: int | None) -> Stored:
        """What `store` finds the first time."""
        store = self.step.keys_values(layer, read_later=False)
        check_window(store, layer, window)
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
        if found != shapes or any(held.dtype != torch.float32 for held in store.held):
            raise ValueError(
                f"layer {layer} has a state of {shapes} in float32; this cache holds {found} in"
                f" {store.held[0].dtype}: make one with `new_cache` of this model."
            )
        return store

    @property
    def tensor(self) -> torch.Tensor:
        """The stream as plain layers take it: [1, T, D], T being 1, in the dtype of the weights."""
        x = torch.from_numpy(np.atleast_2d(self.x))[None]  # [1, T, D]
        return x.to(self.work.model.embed_tokens.weight.dtype)

    @cached_property
    def step(self) -> Step:
        """The same for the layers that run in plain torch."""
        tables: dict[str, Tables | None] = {}
        for kind in KINDS:
            cos, sin = (torch.from_numpy(np.atleast_2d(x)) for x in self.rope(kind))  # [T, H/2]
            tables[kind] = (cos, sin) if cos.numel() else None
        return Step(self.span, tables, self.cache)
