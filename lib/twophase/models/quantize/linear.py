"""A linear layer that keeps packed codes."""

import torch
from torch import nn
from torch.nn import functional

from twophase.kernels.quantization.integers import IntegerFormat, Integers


class QuantizedLinear(nn.Module):
    """x ↦ x Wᵀ + b with W in packed codes, widened for each product and let go of again.

    That is right for prefill and for reading; a decode step that should gain from fewer bytes takes
    loops that read the codes (`kernels.compiled.quantized`).
    """

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None

    def __init__(self, stored: Integers, bias: torch.Tensor | None = None) -> None:
        super().__init__()
        self.format, self.in_features = stored.format, stored.inputs
        self.out_features = len(stored.codes)
        self.register_buffer("codes", stored.codes)
        self.register_buffer("scales", stored.scales)
        self.register_buffer("zeros", stored.zeros)
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)

    def _apply(self, fn, recurse: bool = True):  # type: ignore[no-untyped-def]
        """Moves to a device; a change of dtype (`model.to(torch.bfloat16)`) leaves scales as they
        are, since codes were rounded with them."""
        scales = self.scales
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.scales = scales.to(self.scales.device)
        return self

    @property
    def stored(self) -> Integers:
        """The matrix as its format has it."""
        return Integers(self.format, self.in_features, self.codes, self.scales, self.zeros)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., inputs] → [..., outputs], in x's dtype."""
        return functional.linear(x, self.stored.decode().to(x.dtype), self.bias)


def weight_bytes(model: nn.Module) -> int:
    """Bytes of all weights as they are kept: codes, scales, zero points, and parameters; a tied
    matrix once."""
    return sum(t.nbytes for t in [*model.parameters(), *model.buffers()])


def few_bits_share(model: nn.Module) -> float:
    """Of all weights of a model, biases and norms included, the share that is quantized."""
    layers = [layer for layer in model.modules() if isinstance(layer, QuantizedLinear)]
    few = sum(layer.in_features * layer.out_features for layer in layers)
    return few / (few + sum(p.numel() for p in model.parameters()))


def blank_linear(how: IntegerFormat, inputs: int, outputs: int, bias: bool) -> QuantizedLinear:
    """A layer of this format, zeros in it: what a file fills."""
    from twophase.kernels.quantization.integers import encode

    empty = torch.zeros(outputs) if bias else None
    return QuantizedLinear(encode(torch.zeros(outputs, inputs), how), empty)
