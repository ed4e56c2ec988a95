"""Products of quantized layers, as loops read their codes (`kernels.compiled.quantized`).

Codes are copied into the loops' layout when a half is made: the packed ones of the layers stay, for
prefill and for whoever saves the model.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from twophase.kernels.compiled.quantized import (
    Packed,
    add_product,
    norm_activate_product,
    norm_add_product,
    norm_product,
    pack_for_loops,
)
from twophase.models.compiled.token import Token, Workspace
from twophase.models.compiled.weights import NoKernel, Norm, biases, check_kind, norm
from twophase.models.quantize.linear import QuantizedLinear


def is_quantized(linear: Any) -> bool:
    """Whether a layer keeps codes."""
    return isinstance(linear, QuantizedLinear)


def packed(linears: Sequence[Any], outputs: Sequence[int], inputs: int) -> Packed:
    """Quantized layers of the same inputs, one below the other. Raises NoKernel for layers of
    several kinds, for other shapes, and for formats that have no loop."""
    for linear, n in zip(linears, outputs, strict=True):
        check_kind(linear, QuantizedLinear)
        if (linear.out_features, linear.in_features) != (n, inputs):
            raise NoKernel(
                f"a weight is {[linear.out_features, linear.in_features]}, not {[n, inputs]}"
            )
    try:
        return pack_for_loops(*(linear.stored for linear in linears))
    except ValueError as reason:
        raise NoKernel(str(reason).rstrip(".")) from None


class QuantizedNormProjection:
    """As `products.NormProjection`, of codes."""

    def __init__(
        self, before: Norm, linears: Sequence[Any], outputs: Sequence[int], work: Workspace
    ) -> None:
        D, bias = len(before.scale), biases(*linears)
        w = packed(linears, outputs, D)
        self.project = work.choose(norm_product)
        self.h, self.y = work.scratch("normed", D), work.scratch("projected", len(bias))
        self.given = (*before, w.arrays, bias, self.h, w.sums(), self.y)

    def __call__(self, x: np.ndarray, workers: int) -> None:
        """Of x, into y."""
        self.project(x, *self.given, workers)


class QuantizedOutput:
    """As `products.Output`, of codes."""

    def __init__(self, linear: Any, h: np.ndarray, D: int, after: Any, work: Workspace) -> None:
        w = packed([linear], [D], h.size)
        self.add = work.choose(add_product if after is None else norm_add_product)
        self.given: tuple[Any, ...] = (w.arrays, biases(linear), h.reshape(-1), w.sums())
        if after is not None:
            self.given += (*norm(after), work.scratch("product", D))

    def __call__(self, token: Token) -> None:
        """x [D] += W h + bias, or its norm, where h is what the half has left in its scratch."""
        self.add(*self.given, token.x, token.workers)


class QuantizedActivation:
    """The first half of a gated MLP of codes, into `between`."""

    def __init__(
        self,
        before: Norm,
        gate: Any,
        up: Any,
        activation: int,
        between: np.ndarray,
        work: Workspace,
    ) -> None:
        F, D = len(between), len(before.scale)
        gates, ups = packed([gate], [F], D), packed([up], [F], D)
        if gates.sums().shape != ups.sums().shape:
            raise NoKernel("gate and up have groups of different sizes")
        self.run = work.choose(norm_activate_product)
        self.given = (
            *before, gates.arrays, ups.arrays, biases(gate, up), activation,
            work.scratch("normed", D), ups.sums(), between,
        )  # fmt: skip

    def __call__(self, x: np.ndarray, workers: int) -> None:
        """Of x, into `between`."""
        self.run(x, *self.given, workers)
