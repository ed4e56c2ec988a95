"""The linear layers of a step of several sequences: matrices in the order in which a product of
several tokens reads them.

`F.linear` brings a matrix into that order for each call anew, which takes about as long as the
product of 16 tokens itself; here it is done once, and kept beside the matrix. Codes lie in tiles.
bf16 is read by loops as it lies where the processor has no products of it.
"""

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from twophase.kernels.compiled.codes import Packed, pack_for_loops
from twophase.kernels.compiled.loops import STORED, as_numpy
from twophase.kernels.compiled.quantized_tokens import quantized_product
from twophase.kernels.compiled.tokens import product_of_tokens
from twophase.measure.system import available_bytes
from twophase.models.bf16_products import multiplies_bf16
from twophase.models.compiled.weights import NoKernel, check_kind, stored, zeros
from twophase.models.linear import Linear
from twophase.models.quantize.linear import (
    FewBitsLinear,
    NamedLinear,
    QuantizedLinear,
    weight_bytes,
)
from twophase.models.transformer import Transformer

ORDER_TOKENS = 16  # for so many the order is made; it serves any number


class PackedLinear(nn.Module):
    """A linear layer whose matrix is kept as oneDNN reads it. Raises NoKernel where torch has no
    such order for it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.bias = linear.bias
        try:
            self.packed = torch.ops.mkldnn._reorder_linear_weight(
                linear.weight.detach(), ORDER_TOKENS
            )
        except (AttributeError, RuntimeError) as reason:
            raise NoKernel(str(reason)) from None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., inputs] → [..., outputs], as F.linear."""
        product = torch.ops.mkldnn._linear_pointwise
        found: torch.Tensor = product(x, self.packed, self.bias, "none", [], "")
        return found


class CodesLinear(nn.Module):
    """A quantized layer for some tokens of a batch: loops read its codes, `packed` if somebody has
    them so already."""

    def __init__(self, linear: FewBitsLinear, packed: Packed | None = None) -> None:
        super().__init__()
        self.packed, self.bias = packed or pack_for_loops(linear.integers), linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., inputs] → [..., outputs], in x's dtype."""
        read = x if x.dtype in STORED else x.float()
        tokens = read.reshape(-1, x.shape[-1])  # [tokens, inputs]
        y = quantized_product(self.packed, tokens)  # [tokens, outputs]
        y = y.view(*x.shape[:-1], self.packed.outputs)  # [..., outputs]
        return (y if self.bias is None else y + self.bias).to(x.dtype)


class WideningLinear(nn.Module):
    """A linear layer in bf16 whose product loops take in fp32. They read its matrix where it lies.
    Raises NoKernel where they cannot."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        stored(self.weight, linear.out_features, linear.in_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: bf16 [..., inputs] → bf16 [..., outputs], rounded once; no gradient. ValueError for
        another dtype."""
        if x.dtype != self.weight.dtype:
            raise ValueError(f"this layer multiplies bf16; got {x.dtype}.")
        n = len(self.weight)
        bias = zeros(n) if self.bias is None else self.bias.detach().float().numpy()
        tokens = as_numpy(x.reshape(-1, x.shape[-1]).contiguous())  # [tokens, inputs]
        y = torch.from_numpy(product_of_tokens(as_numpy(self.weight), tokens, bias))
        return y.view(x.dtype).view(*x.shape[:-1], n)  # [..., outputs]


def wants_widening(module: nn.Module) -> bool:
    """Whether this is a linear layer in bf16, and the processor has no products of bf16."""
    in_bf16 = isinstance(module, nn.Linear) and module.weight.dtype == torch.bfloat16
    return in_bf16 and not multiplies_bf16()


def with_places_of_its_own(module: nn.Module) -> Any:
    """A module in which others can take the place of its parts, and of theirs; all else that it has
    it shares with the one given: whoever listens to that one hears this one, too."""
    made: Any = copy.copy(module)
    made._modules = {
        name: None if part is None else with_places_of_its_own(part)
        for name, part in module._modules.items()
    }
    return made


def with_batch_linears(
    model: Transformer, pack: bool, codes: Mapping[nn.Module, Packed] = MappingProxyType({})
) -> Transformer:
    """The model for a step of several sequences: its quantized layers as `CodesLinear`, those that
    want it as `WideningLinear`, and with `pack` its other linear layers as `PackedLinear` if memory
    has room for twice as much; each where it can be, and nobody listens to it. All else is the
    model's own: numbers, hooks and what modules keep besides. `codes`: of quantized layers that
    loops read already. A model on another device than the CPU is returned as it is."""
    if model.device.type != "cpu":
        return model
    made: Transformer = with_places_of_its_own(model)
    pack = pack and available_bytes() > 2 * weight_bytes(model)
    for name, linear in list(made.named_modules()):
        try:
            widened = wants_widening(linear)
            numbers_too = (Linear, nn.Linear) if pack or widened else ()
            check_kind(linear, QuantizedLinear, NamedLinear, *numbers_too)
            if isinstance(linear, FewBitsLinear):
                known = codes.get(model.get_submodule(name))  # `linear` is a copy of it
                made.set_submodule(name, CodesLinear(linear, known))
            else:
                kind = WideningLinear if widened else PackedLinear
                made.set_submodule(name, kind(linear))
        except (NoKernel, ValueError):  # another kind, or one without a loop
            continue
    return made
