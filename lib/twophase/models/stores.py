"""Which store each layer of a model gets, by its kind."""

import torch

from twophase.kernels.kv_cache import KVCache
from twophase.kernels.latent_attention import LatentCache
from twophase.kernels.linear_attention import sums_shape
from twophase.kernels.local_attention import RingKVCache
from twophase.kernels.span import whole
from twophase.kernels.state import State
from twophase.kernels.store import Store
from twophase.models.cache import Cache
from twophase.models.config import Config


def new_store(
    config: Config,
    layer: int,
    B: int,
    S_max: int,
    rollback: int,
    dtype: torch.dtype,
    device: torch.device | str | None,
) -> Store:
    """An empty store for one layer, by its kind."""
    c, kind = config.at(layer), config.mixers[layer]
    if kind == "mla" and c.mla is not None:
        return LatentCache(B, S_max, c.mla.R, c.mla.rope_dim, dtype, device)
    if shapes := state_shapes(c, kind):
        return State(B, shapes, device=device, rollback=rollback)
    if kind == "sliding" and c.window is not None and c.window + rollback < S_max:
        return RingKVCache(B, c.window, c.K, c.H, dtype, device, spare=rollback)
    return KVCache(B, S_max, c.K, c.H, dtype, device)  # a ring of S_max slots never goes round


def state_shapes(config: Config, kind: str) -> list[tuple[int, ...]]:
    """Of what a layer's state consists, for one sequence; nothing for a layer that keeps tokens.

    A state is a running sum, in fp32 always: bf16 would stop counting at 256 tokens.
    """
    if kind == "linear" and config.linear is not None:
        return [sums_shape(config.N, config.linear.feature_dim, config.H)]
    if kind == "ssm" and (s := config.ssm) is not None:
        return [(s.d_inner, s.conv_width), (s.d_inner, s.d_state)]
    return []


def new_cache(
    config: Config,
    B: int,
    S_max: int,
    rollback: int,
    dtype: torch.dtype,
    device: torch.device | str | None,
) -> Cache:
    """An empty cache with a store for each layer that keeps something of its own. ValueError for a
    model that reads both ways, or sizes and a dtype that no cache can have."""
    if not config.causal:
        raise ValueError(
            "a model that reads both ways has no cache: every new token changes what all others"
            " see."
        )
    for name, n, least in (("B", B, 1), ("S_max", S_max, 1), ("rollback", rollback, 0)):
        whole(f"{name} of a cache", n, least)
    if not dtype.is_floating_point:
        raise ValueError(f"a cache holds floating-point numbers; got {dtype}.")
    stores = {
        layer: new_store(config, layer, B, S_max, rollback, dtype, device)
        for layer in range(config.L)
        if config.source(layer) == layer  # else it reads another's
    }
    return Cache(stores, B, S_max, rollback=rollback, device=device)
