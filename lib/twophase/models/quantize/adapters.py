"""Layers that training meets: NF4 weights that rest, with a low-rank adapter that learns beside
them (QLoRA), and weights that are rounded in each pass while they learn (quantization-aware
training)."""

import copy

import torch
from torch import nn
from torch.nn import functional

from twophase.kernels.quantization.integers import IntegerFormat, encode
from twophase.kernels.quantization.normal_float import NormalFloat, encode_nf4
from twophase.models.linear import replace_linears
from twophase.models.quantize.calibration import body_linears
from twophase.models.transformer import Transformer


class NormalFloatLinear(nn.Module):
    """x ↦ x Wᵀ + b with W in NF4, double quantized, decoded for each product; W does not learn."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.stored: NormalFloat = encode_nf4(linear.weight)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., inputs] → [..., outputs]."""
        return functional.linear(x, self.stored.decode().to(x.dtype), self.bias)


class Adapted(nn.Module):
    """x ↦ base(x) + (α / r)·x Aᵀ Bᵀ: a layer that rests, and beside it two thin matrices A [r, I]
    and B [O, r] that learn. B starts at 0, so that the first pass is the base's.

    (LoRA: Hu et al. 2021, arXiv 2106.09685, section 4.1.)
    """

    def __init__(self, base: nn.Module, inputs: int, outputs: int, rank: int, alpha: float) -> None:
        super().__init__()
        self.base, self.scale = base.requires_grad_(False), alpha / rank
        self.down = nn.Parameter(torch.randn(rank, inputs) / inputs**0.5)
        self.up = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., inputs] → [..., outputs]."""
        thin = functional.linear(x, self.down.to(x.dtype))  # [..., r]
        added = functional.linear(thin, self.up.to(x.dtype))  # [..., outputs]
        return self.base(x) + self.scale * added  # type: ignore[no-any-return]


def with_adapters(
    model: Transformer, rank: int, nf4: bool = True, alpha: float | None = None
) -> Transformer:
    """A copy whose linear layers, the output matrix apart, have adapters of this rank, on weights
    in NF4 (or as they are); nothing else learns. `alpha` is 2·rank if not said. ValueError for a
    rank below 1."""
    if rank < 1:
        raise ValueError(f"an adapter has a rank of at least 1; got {rank}.")
    made = copy.deepcopy(model).requires_grad_(False)
    names = set(body_linears(made))

    def replace(name: str, it: nn.Linear) -> nn.Module | None:
        if name not in names:
            return None
        base = NormalFloatLinear(it) if nf4 else it
        return Adapted(base, it.in_features, it.out_features, rank, alpha or 2 * rank)

    replace_linears(made, replace)
    return made


def adapter_parameters(model: nn.Module) -> list[nn.Parameter]:
    """What learns: A and B of each adapter."""
    return [p for m in model.modules() if isinstance(m, Adapted) for p in (m.down, m.up)]


class RoundedLinear(nn.Module):
    """x ↦ x Ŵᵀ + b, where Ŵ is W rounded to a format anew in each pass; W learns from Ŵ's gradient,
    as if rounding were not there (the straight-through estimator: Bengio et al. 2013, arXiv
    1308.3432)."""

    def __init__(self, linear: nn.Linear, how: IntegerFormat) -> None:
        super().__init__()
        self.weight, self.bias, self.format = linear.weight, linear.bias, how
        self.in_features, self.out_features = linear.in_features, linear.out_features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., inputs] → [..., outputs]."""
        w = self.weight
        step = encode(w.detach(), self.format).decode().to(w.dtype) - w.detach()
        return functional.linear(x, w + step, self.bias)


def round_while_training(model: Transformer, how: IntegerFormat) -> None:
    """Put `RoundedLinear` in the place of each linear layer, the output matrix apart, with the very
    same parameters."""
    names = set(body_linears(model))
    replace_linears(model, lambda name, it: RoundedLinear(it, how) if name in names else None)
