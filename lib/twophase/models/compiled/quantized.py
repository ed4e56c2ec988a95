"""Quantized layers, as loops read their codes (`kernels.compiled.quantized`).

Codes are copied into the loops' layout when a half is made: the packed ones of the layers stay, for
prefill and for whoever saves the model. Steps of several sequences read the same copy.
"""

from collections.abc import Mapping, Sequence
from typing import Any

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
    work.codes[tuple(linears)] = made
    return made


def packed_alone(codes: Mapping[tuple[Any, ...], Packed]) -> dict[Any, Packed]:
    """Each layer by itself, in the memory of those that it was packed with: where its rows begin
    with a tile."""
    found: dict[Any, Packed] = {}
    for linears, together in codes.items():
        first = 0
        for linear in linears:
            alone = together.rows(first, linear.out_features)
            if alone is not None:
                found[linear] = alone
            first += linear.out_features
    return found
