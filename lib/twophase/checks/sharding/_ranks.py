"""What the checks of this topic share: the other ranks, played by the judge."""

from __future__ import annotations

from typing import Any

import torch

from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case

SUMS = Tolerance(
    rtol=1e-4,
    atol=1e-4,
    dtype=True,
    why="fp32 sums in another order differ by 1e-5; wrong answers by 1e-3 and more",
)


class AllReduce:
    """`all_reduce` as one of n ranks sees it: the first call adds what the others bring (`others`,
    the sum of their parts); in any later one all bring what this rank brings."""

    def __init__(self, others: torch.Tensor, n: int) -> None:
        self.others, self.n = others, n
        self.brought: list[Any] = []

    def __call__(self, part: Any) -> Any:
        tensor = isinstance(part, torch.Tensor)
        self.brought.append(part)
        if len(self.brought) > 1:
            return part * self.n if tensor else part
        alike = tensor and part.shape == self.others.shape
        return part + self.others.to(part.dtype) if alike else part

    def seen(self) -> dict[str, Any]:
        """How often it was called, and with what."""
        return {"all-reduces": len(self.brought), "what it brings": self.brought}


def unlike(whole: Case) -> Case:
    """`whole`, where the others have other numbers than this rank is given in their places: who
    computes all by itself and leaves out the sum is wrong."""
    name = f"{whole.name}, which is given other numbers than the others have"
    return Case(name, whole.args, {"unlike": True})
