"""What the checks of this topic share: tensors to store, and several caches used in turn."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import torch

SAME_NUMBERS = "numbers that are only stored come back bit for bit, in the dtype they had"

# What only this dtype holds among those of its width: more range, or finer steps.
TELLING = {
    "float64": 1 + 2.0**-40,
    "float32": 1 + 2.0**-20,
    "float16": 1 + 2.0**-10,
    "bfloat16": 2.0**100,
}


def normal(rng: random.Random, *shape: int, dtype: str = "float32") -> torch.Tensor:
    """Standard normal numbers: no two places alike, so that a wrong index shows."""
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    drawn = (
        torch.float64 if dtype == "float64" else torch.float32
    )  # float64 numbers that float32 does not hold
    return torch.randn(*shape, generator=generator, dtype=drawn).to(getattr(torch, dtype))


def alike(rng: random.Random, *shape: int) -> torch.Tensor:
    """Values from 1 to 2: a weight off by 1e-4, which is what rounding a score of 900 may do, moves
    their sum by less than a tolerance of 1e-4 allows, and a wrong weight by far more."""
    return 1 + normal(rng, *shape).sigmoid()


def scored(scores: torch.Tensor, H: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys of one head of width H, [B, T, H] and [B, S, H], whose products are √H times
    `scores` [B, T, S], T at most H: exact in float32, for numbers that are, if √H is whole. With
    H = 16 they are so as well where each of q and k is divided by √√H, as SDPA may do."""
    B, T, S = scores.shape
    q, k = torch.zeros(B, T, H), torch.zeros(B, S, H)
    q[:, range(T), range(T)] = math.sqrt(H)  # query t reads number t of a key
    k[:, :, :T] = scores.mT  # [B, S, T]
    assert (q @ k.mT).equal(math.sqrt(H) * scores), "these are the scores"
    return q, k


def telling(rng: random.Random, *shape: int, dtype: str) -> torch.Tensor:
    """The same, with a number that no other dtype holds, an infinity, and a first token of zeros,
    one of them negative: shape is [B, T, K, H]."""
    numbers = normal(rng, *shape, dtype=dtype)
    numbers[:, 0] = 0.0
    numbers[:, 0, 0, 0] = -0.0
    numbers[:, -1, -1, 0] = TELLING[dtype]
    numbers[:, -1, -1, -1] = float("inf")
    others = (getattr(torch, d) for d in TELLING if d != dtype)
    lost = [d for d in others if not numbers.equal(numbers.to(d).to(numbers.dtype))]
    narrower = {"float64": 3, "float32": 2, "float16": 1, "bfloat16": 1}[dtype]
    assert len(lost) == narrower, "a detour over any narrower dtype shows"
    return numbers


def in_turn(runs: list[Iterator[tuple[str, Any]]]) -> dict[str, Any]:
    """What each run shows, step by step: a step of each after the other, as the layers of a model
    use their caches."""
    seen: dict[str, Any] = {}
    for number, steps in enumerate(zip_longest(*runs)):
        for layer, step in enumerate(steps):
            if step is not None:
                where = f"layer {layer + 1}, step {number}" if len(runs) > 1 else f"step {number}"
                seen[f"{where}: {step[0]}"] = step[1]
    return seen
