"""The cache of a stack whose layers differ: one store per layer that keeps anything, in its own
shape.

A uniform stack of full attention has a `KVCache`, one block of memory for all layers. Every other
stack has this: full layers keep every key, sliding layers the last `window` of them, latent layers
one latent per token, linear and state-space layers a state whose size does not grow. A layer that
reads another's keys keeps nothing.
"""

from typing import Any, Protocol

import torch

from twophase.kernels.kv_cache import KVCache
from twophase.kernels.latent_attention import LatentCache
from twophase.kernels.linear_attention import LinearState
from twophase.kernels.local_attention import RingKVCache
from twophase.kernels.state_space import StateSpaceState
from twophase.models.config import Config


class Store(Protocol):
    """What every layer's store can do, whatever it holds."""

    @property
    def length(self) -> int:
        """Tokens seen so far."""

    @property
    def nbytes(self) -> int:
        """Bytes taken."""

    def truncate(self, length: int) -> None:
        """Forget every token from position `length` on; ValueError where that cannot be undone."""


class LayerCaches:
    """The stores of a model's layers, for B sequences of one common length of at most S_max
    tokens."""

    def __init__(
        self,
        config: Config,
        B: int,
        S_max: int,
        dtype: torch.dtype,
        device: torch.device | str | None = None,
    ) -> None:
        self.S_max = S_max
        owners = [layer for layer in range(config.L) if config.source(layer) == layer]
        self.stores: dict[int, Any] = {
            layer: new_store(config, layer, B, S_max, dtype, device) for layer in owners
        }

    def append(
        self, layer: int, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store k and v [B, T, K, H] in a full or sliding layer; return all that its queries may
        see, [B, S, K, H]."""
        store = self.stores[layer]
        return store.append(0, k, v) if isinstance(store, KVCache) else store.append(k, v)

    def check_room(self, T: int) -> None:
        """Raise ValueError if T more tokens do not fit: asked before any layer takes them, since
        states cannot go back."""
        seen = max(store.length for store in self.stores.values())
        if seen + T > self.S_max:
            raise ValueError(
                f"the cache has room for {self.S_max} tokens and has seen {seen}: {T} more do not"
                " fit; take a larger S_max."
            )

    @property
    def length(self) -> int:
        """Tokens that every layer has seen."""
        return int(min(store.length for store in self.stores.values()))

    @property
    def nbytes(self) -> int:
        """Bytes taken by all layers."""
        return int(sum(store.nbytes for store in self.stores.values()))

    def truncate(self, length: int) -> None:
        """Forget every token from position `length` on, in all layers; ValueError, and nothing
        changed, if one cannot."""
        for store in self.stores.values():
            store.check_truncate(length) if hasattr(store, "check_truncate") else None
        for store in self.stores.values():
            store.truncate(length)


def new_store(
    config: Config,
    layer: int,
    B: int,
    S_max: int,
    dtype: torch.dtype,
    device: torch.device | str | None,
) -> Any:
    """An empty store for one layer, by its kind."""
    c, place = config, {"dtype": dtype, "device": device}
    state = {
        "dtype": torch.float32,
        "device": device,
    }  # a running sum: bf16 would stop counting at 256 tokens
    kind = c.mixers[layer]
    if kind == "sliding" and c.window is not None:
        return RingKVCache(B, min(c.window, S_max), c.K, c.H, **place)  # type: ignore[arg-type]
    if kind == "mla" and c.mla is not None:
        return LatentCache(B, S_max, c.mla.R, c.mla.rope_dim, **place)  # type: ignore[arg-type]
    if kind == "linear" and c.linear is not None:
        return LinearState(B, c.N, c.linear.feature_dim, c.H, **state)  # type: ignore[arg-type]
    if kind == "ssm" and c.ssm is not None:
        return StateSpaceState(B, c.ssm.d_inner, c.ssm.d_state, c.ssm.conv_width, **state)  # type: ignore[arg-type]
    return KVCache(1, B, S_max, c.K, c.H, **place)  # type: ignore[arg-type]
