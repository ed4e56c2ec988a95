"""Linear layers that keep packed codes."""

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

from twophase.kernels.quantization.integers import IntegerFormat, Integers, encode
from twophase.kernels.quantization.named import Named, integers_of, layout_of


class FewBitsLinear(nn.Module):
    """x ↦ x Wᵀ + b with W in packed codes, widened for each product and let go of again. What kind
    of codes, its subclasses say.

    That is right for prefill and for reading; a decode step that should gain from fewer bytes takes
    loops that read the codes (`kernels.compiled.quantized`).
    """

    def __init__(
        self,
        outputs: int,
        inputs: int,
        tensors: Mapping[str, torch.Tensor | None],
        bias: torch.Tensor | None,
    ) -> None:
        super().__init__()
        self.out_features, self.in_features = outputs, inputs
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)

    def _apply(self, fn, recurse: bool = True):  # type: ignore[no-untyped-def]
        """Moves to a device; a change of dtype (`model.to(torch.bfloat16)`) leaves scales as they
        are, since codes were rounded with them."""
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, tensor in before.items():
            moved = self._buffers[name]
            if tensor is not None and moved is not None:
                self._buffers[name] = tensor.to(moved.device)
        return self

    @property
    def stored(self) -> Integers | Named:
        """The matrix as its format has it."""
        raise NotImplementedError

    @property
    def integers(self) -> Integers:
        """The matrix in integers, whose codes loops read. ValueError for a format that has none."""
        stored = self.stored
        return integers_of(stored) if isinstance(stored, Named) else stored

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., inputs] → [..., outputs], in x's dtype."""
        return functional.linear(x, self.stored.decode().to(x.dtype), self.bias)


class QuantizedLinear(FewBitsLinear):
    """Codes of an integer format."""

    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None

    def __init__(self, stored: Integers, bias: torch.Tensor | None = None) -> None:
        tensors = {"codes": stored.codes, "scales": stored.scales, "zeros": stored.zeros}
        super().__init__(len(stored.codes), stored.inputs, tensors, bias)
        self.format = stored.format

    @property
    def stored(self) -> Integers:
        """The matrix as its format has it."""
        return Integers(self.format, self.in_features, self.codes, self.scales, self.zeros)


class NamedLinear(FewBitsLinear):
    """Codes of a format that has a name: GGUF's blocks, MX, NVFP4, NF4, e4m3."""

    def __init__(self, stored: Named, bias: torch.Tensor | None = None) -> None:
        super().__init__(*stored.shape, stored.tensors, bias)
        self.format = stored.format

    @property
    def stored(self) -> Named:
        """The matrix as its format has it."""
        shape = (self.out_features, self.in_features)
        tensors = {name: t for name, t in self._buffers.items() if t is not None}
        return Named(self.format, shape, tensors)


def weight_bytes(model: nn.Module) -> int:
    """Bytes of all weights as they are kept: codes, scales, zero points, and parameters; a tied
    matrix once."""
    return sum(t.nbytes for t in [*model.parameters(), *model.buffers()])


def few_bits_share(model: nn.Module) -> float:
    """Of all weights of a model, biases and norms included, the share that is quantized."""
    layers = [layer for layer in model.modules() if isinstance(layer, FewBitsLinear)]
    few = sum(layer.in_features * layer.out_features for layer in layers)
    return few / (few + sum(p.numel() for p in model.parameters()))


def matrices_by_format(model: nn.Module) -> dict[str, int]:
    """How many quantized matrices are in which format."""
    found: dict[str, int] = {}
    for module in model.modules():
        if isinstance(module, FewBitsLinear):
            name = str(module.stored.format)
            found[name] = found.get(name, 0) + 1
    return found


def blank_linear(how: IntegerFormat | str, inputs: int, outputs: int, bias: bool) -> FewBitsLinear:
    """A layer of this format, whatever in it: what a file fills. ValueError for an unknown name."""
    empty = torch.zeros(outputs) if bias else None
    if isinstance(how, IntegerFormat):
        return QuantizedLinear(encode(torch.zeros(outputs, inputs), how), empty)
    layout = layout_of(how, outputs, inputs)
    tensors = {name: torch.empty(shape, dtype=dtype) for name, (shape, dtype) in layout.items()}
    return NamedLinear(Named(how, (outputs, inputs), tensors), empty)
