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
    by sampling.
    """
    T = model.config.context
    n = (len(data) - 1) // T
    if n < 1:
        raise ValueError(f"{len(data)} bytes do not fill a window of {T} and its target.")
    device = model.device
    inputs = torch.from_numpy(data[: n * T].reshape(n, T).astype(np.int64))[::every]  # [windows, T]
    targets = torch.from_numpy(data[1 : n * T + 1].reshape(n, T).astype(np.int64))[
        ::every
    ]  # [windows, T]
    if not model.config.causal:
        return diffusion.bound_bits_per_byte(
            model, targets.flatten().numpy().astype(np.uint8)
        ).bits_per_byte
    nats = 0.0
    for i in range(0, len(inputs), B):
        logits = model(inputs[i : i + B].to(device)).float().flatten(0, 1)  # [B·T, V]
        nats += float(
            functional.cross_entropy(
                logits, targets[i : i + B].flatten().to(device), reduction="sum"
            )
        )
    return nats / targets.numel() / math.log(2)
