"""One pass of a model, made to be run again and again: what every chapter times and counts."""

from collections.abc import Callable

import torch

from twophase.kernels.kv_cache import KVCache
from twophase.models.transformer import Transformer


def repeated_pass(
    model: Transformer, T: int, cached: int = 0, B: int = 1
) -> Callable[[], torch.Tensor]:
    """A function that runs T new tokens of B sequences on `cached` tokens and returns their logits
    [B, T, V].

    T = 1 is a decode step, `cached` = 0 a prefill. Each call finds the cache as the first one did.
    What lies in it is noise, or, in a model whose layers differ, some tokens. Raises ValueError
    for a T or B below 1, or a negative `cached`.
    """
    if T < 1 or B < 1 or cached < 0:
        raise ValueError(
            f"A pass has T >= 1 new tokens of B >= 1 sequences and cached >= 0, not T={T}, B={B},"
            f" cached={cached}."
        )
    cache = model.new_cache(B, cached + T)
    tokens = torch.arange(B * (cached + T)).remainder(model.config.V).view(B, cached + T)
    tokens = tokens.to(model.embed_tokens.weight.device)  # [B, cached + T]
    if cached and isinstance(cache, KVCache):
        c, like = model.config, model.embed_tokens.weight
        noise = torch.randn(B, cached, c.K, c.H).to(like)  # [B, cached, K, H]
        for layer in range(c.L):
            cache.append(layer, noise, noise)
    elif cached:
        with torch.inference_mode():
            model(tokens[:, :cached], cache)

    def run() -> torch.Tensor:
        cache.truncate(cached)
        with torch.inference_mode():
            logits: torch.Tensor = model(tokens[:, cached:], cache)
        return logits

    return run
