"""How well a model foretells text that it has not seen: its loss in bits per byte."""

import math

import numpy as np
import torch
from torch.nn import functional

from twophase.models import diffusion
from twophase.models.transformer import Transformer


@torch.no_grad()
def bits_per_byte(model: Transformer, data: np.ndarray, B: int = 64, every: int = 1) -> float:
    """Mean of −log2 of the probability of each next byte, over windows of the model's context that
    do not overlap.

    `every`: only each so-manieth window counts. For a masked-diffusion model it is an upper bound,
    by sampling. ValueError if no window is full.
    """
    inputs, targets = windows(data, model.config.context, every)
    if not model.config.causal:
        return diffusion.bound_bits_per_byte(
            model, targets.flatten().numpy().astype(np.uint8)
        ).bits_per_byte
    return float(bits(model, inputs, targets, B).double().mean())


@torch.no_grad()
def bits(
    model: Transformer, inputs: torch.Tensor, targets: torch.Tensor, B: int = 64
) -> torch.Tensor:
    """−log2 of the probability of each next byte: fp32 [n, T], for inputs and targets int64 [n, T],
    B windows at a time."""
    found = []
    for i in range(0, len(inputs), B):
        logits = model(inputs[i : i + B].to(model.device)).float().flatten(0, 1)  # [B·T, V]
        flat = targets[i : i + B].flatten().to(model.device)  # [B·T]
        found.append(functional.cross_entropy(logits, flat, reduction="none").cpu() / math.log(2))
    return torch.cat(found).view_as(targets)  # [n, T]


def windows(data: np.ndarray, T: int, every: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Each so-manieth window of T bytes, and the byte behind each of its bytes: int64 [n, T] both.
    ValueError if no window is full."""
    n = (len(data) - 1) // T
    if n < 1:
        raise ValueError(f"{len(data)} bytes do not fill a window of {T} and its target.")
    ends = (data[:-1], data[1:])
    inputs, targets = (
        torch.from_numpy(part[: n * T].reshape(n, T)[::every].astype(np.int64)) for part in ends
    )
    return inputs, targets


def repeats(inputs: torch.Tensor, targets: torch.Tensor, n: int = 5) -> torch.Tensor:
    """Which targets a window has shown already: bool [windows, T], True where the n bytes before
    stand earlier in the window, too, and this byte followed when they last did. Whoever looks them
    up and copies is right there (Olsson et al. 2022, arXiv 2209.11895: induction)."""
    found = torch.zeros(targets.shape, dtype=torch.bool)
    for row, (seen, wanted) in enumerate(zip(inputs.tolist(), targets.tolist(), strict=True)):
        followed: dict[tuple[int, ...], int] = {}
        for t in range(n - 1, len(seen)):
            key = tuple(seen[t - n + 1 : t + 1])
            found[row, t] = followed.get(key) == wanted[t]
            followed[key] = wanted[t]
    return found


def curve(losses: list[float], points: int = 40) -> list[float]:
    """The loss over the run in bits per byte: the means of `points` stretches of equal length."""
    return [
        round(float(part.mean()) / math.log(2), 4)
        for part in np.array_split(losses, min(points, len(losses)))
    ]
