"""One pass of a model, made to be run again and again: what every chapter times and counts."""

from collections.abc import Callable

import torch

from twophase.models.transformer import Transformer


def repeated_pass(
    model: Transformer, T: int, cached: int = 0, B: int = 1
) -> Callable[[], torch.Tensor]:
    """A function that runs T new tokens of B sequences on `cached` tokens and returns their logits
    [B, T, V].

    T = 1 is a decode step, `cached` = 0 a prefill. Each call finds the cache as the first one did:
    nothing is committed. What lies in it is noise. Raises ValueError for a T or B below 1, or a
    negative `cached`.
    """
    if T < 1 or B < 1 or cached < 0:
        raise ValueError(
            f"A pass has T >= 1 new tokens of B >= 1 sequences and cached >= 0, not T={T}, B={B},"
            f" cached={cached}."
        )
    cache = model.new_cache(B, cached + T)
    cache.fill_with_noise(cached)
    tokens = torch.arange(B * T).remainder(model.config.V).view(B, T)  # [B, T]
    tokens = tokens.to(model.device)

    def run() -> torch.Tensor:
        with torch.inference_mode():
            logits: torch.Tensor = model(tokens, cache, commit=False)
        return logits

    return run
