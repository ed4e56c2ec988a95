"""Quantized layers, as loops read their codes (`kernels.compiled.quantized`).

Codes are copied into the loops' layout when a half is made: the packed ones of the layers stay, for
prefill and for whoever saves the model.
"""

from collections.abc import Sequence
from typing import Any

import torch

from twophase.kernels.compiled.codes import Packed, pack_for_loops
from twophase.models.compiled.token import Workspace
from twophase.models.compiled.weights import NoKernel, check_kind
from twophase.models.quantize.linear import FewBitsLinear, NamedLinear, QuantizedLinear


def is_quantized(linear: Any) -> bool:
    """Whether a layer keeps codes."""
    return isinstance(linear, FewBitsLinear)


def packed(linears: Sequence[Any], outputs: Sequence[int], inputs: int, work: Workspace) -> Packed:
    """Quantized layers of the same inputs, one below the other. Raises NoKernel for layers of
    several kinds, for other shapes, and for formats that have no loop."""
    for linear, n in zip(linears, outputs, strict=True):
        check_kind(linear, QuantizedLinear, NamedLinear)
        if (linear.out_features, linear.in_features) != (n, inputs):
            raise NoKernel(
                f"a weight is {[linear.out_features, linear.in_features]}, not {[n, inputs]}"
            )
    try:
        made = pack_for_loops(*(linear.integers for linear in linears))
    except ValueError as reason:
        raise NoKernel(str(reason).rstrip(".")) from None
    work.codes.append(torch.from_numpy(made.arrays[0]))
    return made
