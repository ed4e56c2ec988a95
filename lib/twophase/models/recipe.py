"""How every model of the family is trained: the budget, the rates, the order of the data."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from twophase.kernels.span import whole


@dataclass(frozen=True)
class Recipe:
    """How a model is trained. ValueError for counts that are no whole numbers."""

    n_tokens: int = 12_000_000
    B: int = (
        8  # sequences per step: many small steps learn more from a small budget than few large ones
    )
    lr_matrices: float = 6e-3  # peak of the learning rate of the layers' matrices (Muon)
    lr_others: float = 3e-3  # of embeddings, norms and vectors (AdamW)
    lr_end: float = 0.03  # where the cosine ends, as a share of the peak
    warmup_steps: int = 60
    weight_decay: float = 0.1  # of the layers' matrices only
    clip: float = 1.0  # largest norm of the gradient
    aux_weight: float = 0.01  # of a mixture of experts' load-balance loss
    seed: int = 1
    autocast: bool = True  # matrix products in bf16; weights, sums and the optimizer in fp32

    def __post_init__(self) -> None:
        whole("n_tokens", self.n_tokens, 1)
        whole("B", self.B, 1)
        whole("warmup_steps", self.warmup_steps, 0)
        whole("seed", self.seed, 0)

    def steps(self, T: int) -> int:
        """Optimizer steps that the budget of tokens pays for. ValueError for sequences of none."""
        return max(1, self.n_tokens // (self.B * whole("T", T, 1)))

    def lr_share(self, step: int, T: int) -> float:
        """The learning rate as a share of its peak: linear warm-up, then a cosine from 1 to
        lr_end."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        done = (step - self.warmup_steps) / max(1, self.steps(T) - self.warmup_steps)
        return self.lr_end + (1 - self.lr_end) * (1 + math.cos(math.pi * done)) / 2


def batch(data: np.ndarray, step: int, B: int, T: int, seed: int) -> torch.Tensor:
    """The sequences of one step: int64 [B, T + 1], so that token t + 1 is the target of token t.
    They begin at `window_starts`, and raise what it raises."""
    starts = window_starts(len(data), step, B, T, seed)
    return torch.from_numpy(
        np.stack([data[s : s + T + 1] for s in starts]).astype(np.int64)
    )  # [B, T + 1]


def window_starts(n_bytes: int, step: int, B: int, T: int, seed: int) -> np.ndarray:
    """Where the windows of one step begin in data of `n_bytes`: int64 [B].

    Every epoch cuts the data into windows at a fresh offset and visits each once, in a fresh order.
    ValueError for data that fills no batch, and for counts that are no whole numbers.
    """
    B, T, step = whole("B", B, 1), whole("T", T, 1), whole("the step", step, 0)
    windows = (n_bytes - 1) // T - 1
    if windows < B:
        raise ValueError(
            f"{n_bytes} bytes of training data do not fill one batch of {B} sequences of {T}."
        )
    epoch, i = divmod(step, windows // B)
    offset, order = _order(windows, epoch, T, seed)
    found: np.ndarray = offset + T * order[i * B : (i + 1) * B]  # [B]
    return found


@lru_cache(maxsize=8)
def _order(windows: int, epoch: int, T: int, seed: int) -> tuple[int, np.ndarray]:
    """The offset of an epoch, and the order of its windows."""
    rng = np.random.default_rng([seed, epoch])
    return int(rng.integers(T)), rng.permutation(windows)
