"""What the checks of this topic share: tensors to store, and several caches used in turn."""

from __future__ import annotations

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


def scored(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys of one head of width 4, [B, T, 4] and [B, S, 4], whose products are twice
    `scores` [B, T, S], T at most 4: exact in float32, for numbers that are."""
    B, T, S = scores.shape
    q, k = torch.zeros(B, T, 4), torch.zeros(B, S, 4)
    q[:, range(T), range(T)] = 2.0  # query t reads number t of a key
    k[:, :, :T] = scores.mT  # [B, S, T]
    assert (q @ k.mT).equal(2 * scores), "these are the scores"
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
