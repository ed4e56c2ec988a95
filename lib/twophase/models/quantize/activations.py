"""Linear layers that multiply int8 with int8: activations are rounded as they come, per token.

`outliers` as LLM.int8() has them; SmoothQuant needs no other layer, only other weights
(`smooth`).
"""

import copy

import torch
from torch import nn

from twophase.kernels.quantization.int8_products import int8_product, product_with_outliers
from twophase.kernels.quantization.integers import IntegerFormat, encode
from twophase.kernels.quantization.scaling import smooth_scales
from twophase.models.linear import linears, replace_linears
from twophase.models.quantize.calibration import body_linears, watch
from twophase.models.quantize.folding import folds, scale_inputs
from twophase.models.transformer import Transformer

INT8 = IntegerFormat(8, "channel", scale_dtype=torch.float32)


class Int8Linear(nn.Module):
    """x ↦ x Wᵀ + b, weights int8 with a scale a channel, activations int8 with a scale a token.

    With a `threshold`, inputs that exceed it in any token are multiplied in floating point. The
    products are those of int8 arithmetic; they are computed in floating point here, which shows
    what is lost and not how fast it is.
    """

    def __init__(self, linear: nn.Linear, threshold: float | None = None) -> None:
        super().__init__()
        stored = encode(linear.weight, INT8)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.register_buffer("codes", (stored.unpacked()[0].int() - INT8.half).to(torch.int8))
        self.register_buffer("scales", stored.scales[:, 0])
        self.bias, self.threshold = linear.bias, threshold

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., inputs] → [..., outputs]."""
        codes, scales = self.codes, self.scales
        if self.threshold is None:
            y = int8_product(x, codes, scales)  # type: ignore[arg-type]
        else:
            y = product_with_outliers(x, codes, scales, self.threshold)  # type: ignore[arg-type]
        return (y if self.bias is None else y + self.bias.float()).to(x.dtype)


def with_int8_activations(model: Transformer, threshold: float | None = None) -> Transformer:
    """A copy of the model whose linear layers, the output matrix apart, are `Int8Linear`."""
    made = copy.deepcopy(model).requires_grad_(False)
    names = set(body_linears(made))
    replace_linears(made, lambda name, it: Int8Linear(it, threshold) if name in names else None)
    return made


@torch.no_grad()
def smooth(model: Transformer, calibration: torch.Tensor, alpha: float = 0.5) -> Transformer:
    """A copy that computes the same, outliers moved from activations into weights where scales can
    be put into the layer before (SmoothQuant)."""
    made = copy.deepcopy(model).requires_grad_(False)
    seen, layers = watch(made, body_linears(made), calibration), dict(linears(made))
    for fold in folds(made):
        weights = [layers[name].weight.float() for name in fold.readers]
        scales = smooth_scales(weights, seen[fold.readers[0]].largest, alpha)
        scale_inputs(made, fold, scales.to(layers[fold.readers[0]].weight.dtype))
    return made


@torch.no_grad()
def with_outliers(model: Transformer, channels: list[int], factor: float) -> Transformer:
    """A copy that computes the same, with outliers as large models have them and small ones do not:
    these channels of the inputs of each block's first layers are `factor` times as large, their
    weights as much smaller."""
    made = copy.deepcopy(model).requires_grad_(False)
    for fold in folds(made):
        if fold.readers[0].endswith(("q_proj", "gate_proj")):
            scales = torch.ones(made.config.D, dtype=made.embed_tokens.weight.dtype)
            scales[channels] = 1 / factor
            scale_inputs(made, fold, scales)
    return made
