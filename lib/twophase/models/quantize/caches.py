"""Keys and values in few bits in a running model: what a cache that forgets digits costs, by how
far into the text."""

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

from twophase.kernels.kv_cache import KVCache
from twophase.kernels.quantization.cached import round_cached
from twophase.models.transformer import Transformer


@dataclass(frozen=True)
class CacheFormat:
    """Bits of keys and values, and what shares a scale: "channel" or "token"; `group` numbers of
    one head for values per token, and the run of tokens for keys per channel."""

    key_bits: int = 4
    value_bits: int = 4
    key_axis: str = "channel"
    value_axis: str = "token"
    group: int = 32


@torch.no_grad()
def bits_by_position(
    model: Transformer, tokens: torch.Tensor, how: CacheFormat | None, run: int = 32
) -> torch.Tensor:
    """The loss of each position in bits, mean over windows, fp32 [T], for tokens int64 [n, T + 1].

    The model reads a window in runs of `run` tokens through a cache. When a run is full, its keys
    and values are rounded in the cache (`how`; None: they stay): later runs see what was rounded,
    the newest one sees itself as it is. Raises ValueError for a model with another kind of cache.
    """
    n, T = tokens.shape[0], tokens.shape[1] - 1
    cache = model.new_cache(n, T)
    stores = [store for store in cache.stores.values() if type(store) is KVCache]
    if len(stores) < len(cache.stores):
        raise ValueError("only full caches of keys and values are rounded here.")
    losses = []
    for start in range(0, T, run):
        end = min(T, start + run)
        logits = model(tokens[:, start:end], cache).float()  # [n, run, V]
        losses.append(
            functional.cross_entropy(
                logits.flatten(0, 1), tokens[:, start + 1 : end + 1].flatten(), reduction="none"
            ).view(n, -1)  # [n, run]
        )
        if how is not None and end - start == run:
            for store in stores:
                _round_run(store, slice(start, end), how)
    return torch.cat(losses, 1).mean(0) / math.log(2)


def _round_run(store: KVCache, run: slice, how: CacheFormat) -> None:
    """Round the keys and values of a run of tokens in place."""
    for held, bits, axis in (
        (store.keys, how.key_bits, how.key_axis),
        (store.values, how.value_bits, how.value_axis),
    ):
        held[:, run] = round_cached(held[:, run], bits, axis, how.group)
