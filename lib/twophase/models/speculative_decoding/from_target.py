"""Drafts that cost no training: the target itself, with some layers left out, or in few bits."""

from collections.abc import Collection

from twophase.kernels.quantization.integers import IntegerFormat
from twophase.models.pruning import Kept, cut
from twophase.models.quantize import quantize
from twophase.models.transformer import Transformer

FEW_BITS = IntegerFormat(4, 64, affine=True)


def without_layers(model: Transformer, left_out: Collection[int]) -> Transformer:
    """The model without these layers, numbered from 0. Weights are the model's own, not copies;
    caches are its own (Zhang et al. 2024, arXiv 2309.08168).

    Raises ValueError for a layer that there is not, none left, or one left out whose keys another
    reads.
    """
    L = model.config.L
    if unknown := sorted(set(left_out) - set(range(L))):
        raise ValueError(f"the model has layers 0 to {L - 1}; there is no {unknown[0]}.")
    kept = [layer for layer in range(L) if layer not in left_out]
    if not kept:
        raise ValueError("at least one layer must stay.")
    return cut(model, Kept(layers=kept), copy=False)


def in_few_bits(model: Transformer, how: IntegerFormat = FEW_BITS) -> Transformer:
    """The model with its linear layers, the output matrix apart, rounded to few bits. ValueError
    for one that is quantized already or has no linear layer."""
    return quantize(model, "nearest", how)
