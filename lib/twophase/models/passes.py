"""One pass of a model, made to be run again and again: what every chapter times and counts."""

from collections.abc import Callable

import torch

from twophase.models.transformer import Transformer


def repeated_pass(
    model: Transformer, T: int, cached: int = 0, B: int = 1
) -> Callable[[], torch.Tensor]:
    """A function that runs T new tokens of B sequences on `cached` tokens and returns their logits
    [B, T, V].

    T = 1 is a decode step, `cached` = 0 a prefill. Each call finds the cache as the first one did.
    What lies in it are the keys and values of random tokens. Raises ValueError for a T or B below
    1, or a negative `cached`.
    """
    if T < 1 or B < 1 or cached < 0:
        raise ValueError(
            f"A pass has T >= 1 new tokens of B >= 1 sequences and cached >= 0, not T={T}, B={B},"
            f" cached={cached}."
        )
    cache = model.new_cache(B, cached + T)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(model.config.V, (B, cached + T), generator=generator)
    tokens = tokens.to(model.embed_tokens.weight.device)
    if cached:
        with torch.inference_mode():
            model(tokens[:, :cached], cache)

    def run() -> torch.Tensor:
        cache.truncate(cached)
        with torch.inference_mode():
            logits: torch.Tensor = model(tokens[:, cached:], cache)
        return logits

    return run
