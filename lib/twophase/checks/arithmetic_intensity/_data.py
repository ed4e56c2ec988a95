"""Random tensors for the cases of this topic: a torch generator seeded from the exercise's own."""

from __future__ import annotations

import random

import torch

NEG_INF = float("-inf")


def normal(rng: random.Random, *shape: int, scale: float = 1.0) -> torch.Tensor:
    """Normal numbers in fp32: no two places alike, so that a wrong index shows."""
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    return scale * torch.randn(*shape, generator=generator)
