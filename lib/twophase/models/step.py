"""What all layers of one forward pass share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from twophase.kernels.attention import full_attention
from twophase.kernels.kv_cache import KVCache, check_queries
from twophase.kernels.latent_attention import LatentCache
from twophase.kernels.local_attention import RingKVCache
from twophase.kernels.span import Span
from twophase.kernels.state import State
from twophase.models.cache import Cache

Tables = tuple[torch.Tensor, torch.Tensor]  # cosines and sines
_Kind = TypeVar("_Kind")


class PassKV(KVCache):
    """Keys and values of one pass without a cache: a store that is gone when the pass is over.

    `causal`: whether a query sees only the keys up to its own.
    """

    def __init__(self, causal: bool) -> None:
        self.causal = causal

    def write(self, first: torch.Tensor, second: torch.Tensor, span: Span) -> None:
        """Keep k and v [B, T, K, H] as they are."""
        self.keys, self.values = first, second

    def attend(
        self, q: torch.Tensor, span: Span, *, window: int | None = None, **options: Any
    ) -> torch.Tensor:
        """What the queries q [B, T, N, H] find among them: [B, T, N, H]. ValueError unless
        each token of the span has a query."""
        check_queries(span, q)
        if self.causal:
            return super().attend(q, span, window=window, **options)
        if span.tree is not None:
            raise ValueError("a model that reads both ways sees every token: it has no tree.")
        return full_attention(q, self.keys, self.values, **options)


@dataclass
class Step:
    """The new tokens, their rotations, and the stores that layers write to and attend through."""

    span: Span
    rope: Mapping[str, Tables | None]  # by kind of layer
    cache: Cache | None = None
    causal: bool = True
    shared: dict[int, PassKV] = field(default_factory=dict)  # without a cache: what is read again
    in_pages: bool = False  # the sequences lie in one row, and their keys in blocks

    def latents(self, layer: int) -> LatentCache | None:
        """The store of a layer of latents; None without a cache."""
        return None if self.cache is None else self._stored(layer, LatentCache, "latents")

    def state(self, layer: int) -> State | None:
        """The state of a layer; None without a cache. ValueError for a tree."""
        if self.span.tree is not None:
            raise ValueError(
                "a layer with a state reads its tokens one after the other, and cannot read a tree."
            )
        return None if self.cache is None else self._stored(layer, State, "a state")

    def keys_values(self, layer: int, read_later: bool) -> KVCache:
        """Where the keys and values of a layer are: with a cache in its store, else in one that
        lives as long as this pass, if they are read later, or as the caller."""
        if self.cache is not None:
            return self._stored(layer, KVCache, "keys and values")
        store = self.shared.get(layer) or PassKV(self.causal)
        if read_later:
            self.shared[layer] = store
        return store

    def _stored(self, layer: int, kind: type[_Kind], keeps: str) -> _Kind:
        """What the cache has for a layer. ValueError if that is of another kind."""
        store = None if self.cache is None else self.cache.stores.get(layer)
        if not isinstance(store, kind):
            found = "nothing" if store is None else f"a {type(store).__name__}"
            raise ValueError(
                f"layer {layer} keeps {keeps}: it needs a cache from `new_cache` of its own model;"
                f" this one has {found} there."
            )
        return store


def check_window(store: KVCache, layer: int, window: int | None) -> None:
    """ValueError for the ring of another window than the layer's (None: it sees every token)."""
    if isinstance(store, RingKVCache) and store.window != window:
        sees = "every token" if window is None else f"a window of {window} tokens"
        raise ValueError(
            f"layer {layer} sees {sees}, and this cache keeps the last {store.window} for it: make"
            " one with `new_cache` of this model."
        )


def check_positions(positions: torch.Tensor, span: Span, table: int) -> None:
    """ValueError for what are no positions of the tokens of a span, or for one beyond the `table`
    of those that were learned (0: there is none)."""
    if positions is span.positions:
        if not table or positions.is_meta:
            return
        # known without asking the device, but for a tree
        last = span.end - 1 if span.tree is None else int(positions.max())
    else:
        shape, dtype = getattr(positions, "shape", ()), getattr(positions, "dtype", type(positions))
        ints = (torch.int64, torch.int32)
        if shape not in ((span.T,), (span.B, span.T)) or dtype not in ints:
            raise ValueError(
                f"positions are int64 [{span.T}], or [{span.B}, {span.T}] where sequences differ;"
                f" got {dtype} {list(shape)}."
            )
        if positions.device != span.positions.device:
            raise ValueError(
                f"positions on {positions.device} for tokens on {span.positions.device}: move them"
                " there first."
            )
        if positions.device.type == "cpu" and int(positions.min()) < 0:
            raise ValueError(f"positions count from 0; got {int(positions.min())}.")
        last = int(positions.max()) if table and not positions.is_meta else -1
    if table and last >= table:
        raise ValueError(f"this model has learned {table} positions and cannot read further.")


def check_at(at: torch.Tensor | int, B: int, T: int) -> None:
    """ValueError unless `at` is the number of one of T tokens, or holds one for each of B
    sequences (of those on another device only that one knows whether they are below T)."""
    if isinstance(at, torch.Tensor):
        fits = at.shape in ((), (B,)) and at.dtype in (torch.int32, torch.int64)
        if fits and at.is_cpu:
            fits = not bool(((at < -T) | (at >= T)).any())
    else:
        fits = isinstance(at, int) and not isinstance(at, bool) and -T <= at < T
    if not fits:
        raise ValueError(
            f"`at` is a token's number, -{T} to {T - 1}, or int64 [{B}], one for each sequence; got"
            f" {at}."
        )


def among_real(at: torch.Tensor | int, span: Span) -> torch.Tensor | int:
    """`at` as a place among all T tokens, where -1 was the last real one of each sequence.

    ValueError as in `check_at`, or if a sequence has new tokens, but not that many.
    """
    check_at(at, span.B, span.T)
    if set(span.n_new) == {span.T}:
        return at
    if isinstance(at, int):
        for b, n in enumerate(span.n_new):
            if n and not -n <= at < n:
                raise ValueError(f"`at` is {at}, but sequence {b} has {n} new tokens.")
    counts = torch.tensor(span.n_new, device=span.device)  # [B]
    at = torch.as_tensor(at, device=span.device).expand(span.B)  # [B]
    return torch.where(at < 0, at + counts, at).clamp(min=0)
