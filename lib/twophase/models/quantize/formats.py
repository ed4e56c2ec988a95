"""Weights in every format of `kernels.quantization`, for models that are judged and not run fast: a
copy of the model whose matrices are what their codes stand for."""

import copy
from collections.abc import Callable

import torch

from twophase.kernels.quantization.integers import IntegerFormat, encode
from twophase.kernels.quantization.named import encode_named, named_format_of
from twophase.models.linear import linears
from twophase.models.quantize.calibration import body_linears
from twophase.models.transformer import Transformer

Rounded = tuple[torch.Tensor, int]  # a matrix as its codes have it, and their bytes
Round = Callable[[torch.Tensor], Rounded]


def _integers(bits: int, group: int | str, affine: bool = False) -> Round:
    how = IntegerFormat(bits, group, affine)

    def rounded(w: torch.Tensor) -> Rounded:
        stored = encode(w, how)
        return stored.decode(), stored.nbytes

    return rounded


def _named(name: str) -> Round:
    """In the format, or in what takes its place for rows of this width."""

    def rounded(w: torch.Tensor) -> Rounded:
        stored = encode_named(w, named_format_of(name, w.shape[-1]) or name)
        return stored.decode(), stored.nbytes

    return rounded


FORMATS: dict[str, Round] = {
    "int8, a scale a tensor": _integers(8, "tensor"),
    "int8, a scale a channel": _integers(8, "channel"),
    "e4m3": _named("e4m3"),
    "q8_0": _named("q8_0"),
    "mxfp8": _named("mxfp8"),
    "q6_k": _named("q6_k"),
    "q5_0": _named("q5_0"),
    "int4, a scale a tensor": _integers(4, "tensor"),
    "int4, a scale a channel": _integers(4, "channel"),
    "int4, groups of 64": _integers(4, 64),
    "int4, groups of 64, affine": _integers(4, 64, affine=True),
    "int4, groups of 32": _integers(4, 32),
    "q4_k": _named("q4_k"),
    "q4_0": _named("q4_0"),
    "nf4": _named("nf4"),
    "nf4-double": _named("nf4-double"),
    "mxfp4": _named("mxfp4"),
    "nvfp4": _named("nvfp4"),
    "int3, groups of 64": _integers(3, 64),
    "int3, groups of 64, affine": _integers(3, 64, affine=True),
    "int2, groups of 32": _integers(2, 32),
    "int2, groups of 32, affine": _integers(2, 32, affine=True),
}


@torch.no_grad()
def with_rounded_weights(model: Transformer, name: str) -> tuple[Transformer, float]:
    """A copy whose linear layers, the output matrix apart, have the weights of a format (a key of
    FORMATS), rounded to nearest; and the bits of a weight, scales included.

    ValueError for another format, or for widths that blocks do not divide, neither its own nor
    those of what takes its place (q5_0 for q4_k).
    """
    if name not in FORMATS:
        raise ValueError(f"a format is one of {'; '.join(FORMATS)}; got {name!r}.")
    made, n_bytes, n = copy.deepcopy(model).requires_grad_(False), 0, 0
    wanted = set(body_linears(made))
    for layer, linear in linears(made):
        if layer in wanted:
            weight, taken = FORMATS[name](linear.weight)
            linear.weight.copy_(weight)
            n_bytes, n = n_bytes + taken, n + weight.numel()
    return made, 8 * n_bytes / n
