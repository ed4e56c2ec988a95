"""What the inputs of linear layers look like: sums over tokens that a model reads."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from twophase.kernels.span import whole
from twophase.models import corpus
from twophase.models.linear import linears
from twophase.models.transformer import Transformer


@dataclass
class Inputs:
    """Of a layer's inputs x [tokens, I]: XᵀX (fp64 [I, I]), Σ |x| and max |x| ([I]), and tokens."""

    hessian: torch.Tensor
    total_size: torch.Tensor
    largest: torch.Tensor
    n: int = 0

    def add(self, x: torch.Tensor) -> None:
        """Take in inputs [..., I]."""
        flat = x.detach().flatten(0, -2).float()  # [tokens, I]
        self.hessian += (flat.T @ flat).double()
        self.total_size += flat.abs().sum(0)
        self.largest = torch.maximum(self.largest, flat.abs().amax(0))
        self.n += len(flat)

    @property
    def mean_size(self) -> torch.Tensor:
        """Mean |x| of each input, [I]."""
        return self.total_size / max(1, self.n)


@torch.no_grad()
def watch(
    model: Transformer, names: Iterable[str], tokens: torch.Tensor, B: int = 8
) -> dict[str, Inputs]:
    """The inputs of the named layers while the model reads `tokens`, int64 [windows, T].

    ValueError where a layer meets NaN or infinity, or no token at all: nothing can be calibrated on
    them.
    """
    B = whole("the number of windows at a time, B,", B, 1)
    if not tokens.numel():
        raise ValueError(f"calibration needs some tokens; got {list(tokens.shape)}.")
    layers = dict(model.named_modules())
    found: dict[str, Inputs] = {}
    hooks = []
    for name in names:
        I = int(layers[name].in_features)
        hessian, total, largest = (
            torch.zeros(shape, device=model.device) for shape in ((I, I), (I,), (I,))
        )
        seen = found[name] = Inputs(hessian.double(), total, largest)

        def look(module: nn.Module, args: tuple[torch.Tensor, ...], seen: Inputs = seen) -> None:
            seen.add(args[0])

        hooks.append(layers[name].register_forward_pre_hook(look))
    try:
        for i in range(0, len(tokens), B):
            model.hidden(tokens[i : i + B].to(model.device))
    finally:
        for hook in hooks:
            hook.remove()
    for name, inputs in found.items():
        if not inputs.hessian.isfinite().all():
            raise ValueError(
                f"{name} reads NaN or infinity on the calibration text: look for them in the"
                " weights, or take a wider dtype."
            )
    return found


def body_linears(model: Transformer) -> list[str]:
    """The linear layers of a model, its output matrix apart: what is quantized."""
    return [name for name, _ in linears(model) if name.startswith("layers.")]


def corpus_windows(n: int, T: int, seed: int = 0) -> torch.Tensor:
    """Windows of the training corpus as bytes, int64 [n, T], the same for a seed."""
    return windows(corpus.load("train"), n, T, seed)


def windows(data: np.ndarray | Sequence[int], n: int, T: int, seed: int = 0) -> torch.Tensor:
    """n windows of T tokens from random places of a text, int64 [n, T]. ValueError for no window,
    and for a text that is shorter than one."""
    tokens = torch.from_numpy(np.asarray(data).astype(np.int64))
    T = whole("the tokens of a window", T, 1)
    if whole("the number of windows", n, 0) < 1:
        raise ValueError(f"calibration needs at least one window of text; got {n}.")
    if len(tokens) < T:
        raise ValueError(
            f"calibration reads windows of {T} tokens, and the text has {len(tokens)}: take a"
            " longer one."
        )
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(0, len(tokens) - T + 1, (n,), generator=generator)
    return tokens[starts[:, None] + torch.arange(T)]  # [n, T]
