"""The products of a layer with all that their loops take, gathered when they are made.

Between two loops memory waits for Python, and finds Python's own numbers driven out of the caches
by the weights. So a call hands over one tuple, and looks nothing up.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from twophase.kernels.compiled.linear import (
    norm_activate,
    norm_project,
    project_add,
    project_norm_add,
)
from twophase.kernels.compiled.loops import Loop
from twophase.kernels.compiled.quantized import (
    add_product,
    norm_activate_product,
    norm_add_product,
    norm_product,
    room_for,
)
from twophase.models.compiled.quantized import is_quantized, packed
from twophase.models.compiled.token import Token, Workspace
from twophase.models.compiled.weights import NoKernel, Norm, biases, matrix, norm


class Loops(NamedTuple):
    """The products that a layer is made of: after a norm; with an activation; added to the stream,
    and added through a norm."""

    project: Loop
    activate: Loop
    add: Loop
    norm_add: Loop


NUMBERS = Loops(norm_project, norm_activate, project_add, project_norm_add)
CODES = Loops(norm_product, norm_activate_product, add_product, norm_add_product)


class Weights(NamedTuple):
    """Matrices of the same inputs: the loops that read them, what these take for them, and room for
    what they want to know of the vector (`Sums` or `Bytes`)."""

    loops: Loops
    matrices: tuple[Any, ...]
    given: tuple[Any, ...] = ()


def weights_of(
    linears: Sequence[Any], outputs: Sequence[int], inputs: int, work: Workspace
) -> Weights:
    """Up to three layers, one below the other, plain or quantized. Raises NoKernel where they have
    no loop."""
    if any(map(is_quantized, linears)):
        w = packed(linears, outputs, inputs, work)
        return Weights(CODES, (w.arrays,), (room_for(w),))
    return three([matrix(linear, n, inputs) for linear, n in zip(linears, outputs, strict=True)])


def three(matrices: Sequence[np.ndarray]) -> Weights:
    """Up to three matrices, one below the other."""
    none = matrices[0][:0]
    return Weights(NUMBERS, (*matrices, *[none] * (3 - len(matrices))))


def weights_of_gated(gate: Any, up: Any, F: int, D: int, work: Workspace) -> Weights:
    """The first two layers of an MLP, plain or quantized; `gate` None: one. Raises NoKernel where
    they have no loop, as quantized ones without a gate."""
    if gate is None or not is_quantized(up):
        w_up = matrix(up, F, D)
        return Weights(NUMBERS, (w_up[:0] if gate is None else matrix(gate, F, D), w_up))
    gates, ups = packed([gate], [F], D, work), packed([up], [F], D, work)
    if gates.groups != ups.groups:
        raise NoKernel("gate and up have groups of different sizes")
    return Weights(CODES, (gates.arrays, ups.arrays), (room_for(ups),))


class NormProjection:
    """Up to three matrices, one below the other, times the norm of a vector: `y`, and `h` is the
    norm; both are scratch, under the name of what is projected."""

    def __init__(
        self, before: Norm, w: Weights, bias: np.ndarray, work: Workspace, name: str = "projected"
    ) -> None:
        self.loops, self.project = w.loops, work.choose(w.loops.project)
        self.h, self.y = (
            work.scratch("normed", len(before.scale)),
            work.scratch(name, len(bias)),
        )
        self.given = (*before, *w.matrices, bias, self.h, *w.given, self.y)

    def __call__(self, x: np.ndarray, workers: int) -> None:
        """Of x, into y."""
        self.project(x, *self.given, workers)


def norm_projection(
    before: Norm, linears: Sequence[Any], outputs: Sequence[int], work: Workspace,
    name: str = "projected",
) -> NormProjection:  # fmt: skip
    """Of layers with the same inputs. Raises NoKernel where they have no loop."""
    w = weights_of(linears, outputs, len(before.scale), work)
    return NormProjection(before, w, biases(*linears), work, name)


class Output:
    """The last product of a half, added to the stream; with `after`, through a norm (Gemma)."""

    def __init__(self, linear: Any, h: np.ndarray, D: int, after: Any, work: Workspace) -> None:
        w = weights_of([linear], [D], h.size, work)
        self.add: Callable[..., Any] = work.choose(w.loops.add)
        self.reads, self.loops = w.loops, w.loops if after is None else None
        self.given: tuple[Any, ...] = (w.matrices[0], biases(linear), h.reshape(-1), *w.given)
        if after is not None:
            self.add = work.choose(w.loops.norm_add)
            self.given += (*norm(after), work.scratch("product", D))

    def __call__(self, token: Token) -> None:
        """x [D] += W h + bias, or its norm, where h is what the half has left in its scratch."""
        self.add(*self.given, token.x, token.workers)


class Activation:
    """The first half of an MLP, into `between`; `gate` None: a plain MLP."""

    def __init__(
        self, before: Norm, gate: Any, up: Any, activation: int, between: np.ndarray,
        work: Workspace,
    ) -> None:  # fmt: skip
        F, D = len(between), len(before.scale)
        w = weights_of_gated(gate, up, F, D, work)
        bias = biases(up) if gate is None else biases(gate, up)
        self.loops, self.run = w.loops, work.choose(w.loops.activate)
        h = work.scratch("normed", D)
        self.given = (*before, *w.matrices, bias, activation, h, *w.given, between)

    def __call__(self, x: np.ndarray, workers: int) -> None:
        """Of x, into `between`."""
        self.run(x, *self.given, workers)
