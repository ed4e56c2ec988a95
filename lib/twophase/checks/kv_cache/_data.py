"""What the checks of this topic share: random tensors."""

from __future__ import annotations

import random

import torch

SAME_NUMBERS = "numbers that are only stored come back bit for bit, in the dtype they had"


def normal(rng: random.Random, *shape: int, dtype: str = "float32") -> torch.Tensor:
    """Standard normal numbers: no two places alike, so that a wrong index shows."""
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    drawn = (
        torch.float64 if dtype == "float64" else torch.float32
    )  # float64 numbers that float32 does not hold
    return torch.randn(*shape, generator=generator, dtype=drawn).to(getattr(torch, dtype))
