"""Models whose weights are partly zero and lie where they lay: the contrast to a model that was
cut."""

import copy
from collections.abc import Iterator

import torch
from torch import nn

from twophase.kernels.pruning import Bitmap, TwoFour, kept_per_row, magnitude, two_four, wanda
from twophase.models.linear import linears
from twophase.models.quantize.calibration import body_linears, watch
from twophase.models.transformer import Transformer

SCORES = ("magnitude", "wanda", "random")
TWO_FOUR = "2:4"


@torch.no_grad()
def with_zeros(
    model: Transformer,
    how: str,
    pattern: str | float,
    calibration: torch.Tensor,
    seed: int = 1,
) -> Transformer:
    """A copy whose linear layers, the output matrix apart, keep the weights that matter most: by
    `how`, in the pattern "2:4" or as a share of each row. `calibration`: tokens, int64 [n, T].

    ValueError for another measure, or a share that is none.
    """
    if how not in SCORES:
        raise ValueError(f"weights are scored by one of {', '.join(SCORES)}; got {how!r}.")
    if pattern != TWO_FOUR and not (isinstance(pattern, float) and 0 < pattern <= 1):
        raise ValueError(f'a pattern is "2:4" or the share that stays, 0 to 1; got {pattern!r}.')
    made = copy.deepcopy(model).requires_grad_(False)
    names = body_linears(made)
    seen = watch(made, names, calibration) if how == "wanda" else {}
    generator = torch.Generator().manual_seed(seed)
    for name, layer in body_layers(made):
        weight = layer.weight
        if how == "wanda":
            scores = wanda(weight, seen[name].hessian.diagonal().sqrt().to(weight))
        elif how == "magnitude":
            scores = magnitude(weight)
        else:
            scores = torch.rand(weight.shape, generator=generator)
        if pattern == TWO_FOUR:
            mask = two_four(scores)
        else:
            mask = kept_per_row(scores, max(1, round(float(pattern) * weight.shape[1])))
        weight.mul_(mask)
    return made


def body_layers(model: Transformer) -> Iterator[tuple[str, nn.Linear]]:
    """The linear layers of a model by their names, its output matrix apart."""
    wanted = set(body_linears(model))
    return ((name, layer) for name, layer in linears(model) if name in wanted)


def stored_bytes(model: Transformer, pattern: str | float) -> tuple[int, int]:
    """Bytes of these layers in a file as bf16: as they are, and without their zeros."""
    form = TwoFour if pattern == TWO_FOUR else Bitmap
    dense = packed = 0
    for _, layer in body_layers(model):
        weight = layer.weight.bfloat16()
        dense += weight.nbytes
        packed += form.of(weight).nbytes
    return dense, packed
