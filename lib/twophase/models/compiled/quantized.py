"""Quantized layers, as loops read their codes (`kernels.compiled.quantized`).

Codes are copied into the loops' layout when a half is made: the packed ones of the layers stay, for
prefill and for whoever saves the model.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from twophase.kernels.compiled.codes import Packed, pack_for_loops
from twophase.kernels.compiled.quantized_tokens import quantized_product
from twophase.models.compiled.token import Workspace
from twophase.models.compiled.weights import NoKernel, check_kind
from twophase.models.quantize.linear import QuantizedLinear
from twophase.models.transformer import Transformer


def is_quantized(linear: Any) -> bool:
    """Whether a layer keeps codes."""
    return isinstance(linear, QuantizedLinear)


def packed(linears: Sequence[Any], outputs: Sequence[int], inputs: int, work: Workspace) -> Packed:
    """Quantized layers of the same inputs, one below the other. Raises NoKernel for layers of
    several kinds, for other shapes, and for formats that have no loop."""
    for linear, n in zip(linears, outputs, strict=True):
        check_kind(linear, QuantizedLinear)
        if (linear.out_features, linear.in_features) != (n, inputs):
            raise NoKernel(
                f"a weight is {[linear.out_features, linear.in_features]}, not {[n, inputs]}"
            )
    try:
        made = pack_for_loops(*(linear.stored for linear in linears))
    except ValueError as reason:
        raise NoKernel(str(reason).rstrip(".")) from None
    work.codes.append(torch.from_numpy(made.arrays[0]))
    return made


class CodesLinear(nn.Module):
    """A quantized layer for some tokens of a batch: loops read its codes."""

    def __init__(self, linear: QuantizedLinear) -> None:
        super().__init__()
        self.packed, self.bias = pack_for_loops(linear.stored), linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., inputs] → [..., outputs], in x's dtype."""
        tokens = x.float().reshape(-1, x.shape[-1])  # [tokens, inputs]
        y = quantized_product(self.packed, tokens).view(*x.shape[:-1], -1)  # [..., outputs]
        return (y if self.bias is None else y + self.bias).to(x.dtype)


def with_codes_in_loops(model: Transformer) -> Transformer:
    """The model for a step of several sequences: its quantized layers as `CodesLinear`, where they
    have loops and nobody listens to them; all else is the model's own, numbers and all."""
    numbers = [*model.parameters(), *model.buffers()]
    made = copy.deepcopy(model, {id(tensor): tensor for tensor in numbers})
    for name, linear in list(made.named_modules()):
        try:
            check_kind(linear, QuantizedLinear)
            made.set_submodule(name, CodesLinear(linear))
        except (NoKernel, ValueError):  # none, or one without a loop
            continue
    return made
