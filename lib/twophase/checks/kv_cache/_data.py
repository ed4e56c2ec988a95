"""Random tensors for the cases of this topic: a torch generator seeded from the exercise's own."""

from __future__ import annotations

import random

import torch

SAME_NUMBERS = "numbers that are only stored come back bit for bit, in the dtype they had"


def normal(rng: random.Random, *shape: int, dtype: str = "float32") -> torch.Tensor:
    """Standard normal numbers: no two places alike, so that a wrong index shows."""
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    return torch.randn(*shape, generator=generator).to(getattr(torch, dtype))
