"""The products of a layer with all that their loops take, gathered when they are made.

Between two loops memory waits for Python, and finds Python's own numbers driven out of the caches
by the weights. So a call hands over one tuple, and looks nothing up.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from twophase.kernels.compiled.linear import (
    norm_activate,
    norm_project,
    project_add,
    project_norm_add,
)
from twophase.models.compiled.quantized import (
    QuantizedActivation,
    QuantizedNormProjection,
    QuantizedOutput,
    is_quantized,
)
from twophase.models.compiled.token import Token, Workspace
from twophase.models.compiled.weights import Norm, biases, matrix, norm


class NormProjection:
    """Up to three matrices, one below the other, times the norm of a vector: `y`, and `h` is the
    norm; both are scratch, under the name of what is projected."""

    def __init__(
        self, before: Norm, matrices: Sequence[np.ndarray], bias: np.ndarray, work: Workspace,
        name: str = "projected",
    ) -> None:  # fmt: skip
        none = matrices[0][:0]
        self.project = work.choose(norm_project)
        self.h, self.y = work.scratch("normed", len(before.scale)), work.scratch(name, len(bias))
        self.given = (*before, *matrices, *[none] * (3 - len(matrices)), bias, self.h, self.y)

    def __call__(self, x: np.ndarray, workers: int) -> None:
        """Of x, into y."""
        self.project(x, *self.given, workers)


class Output:
    """The last product of a half, added to the stream; with `after`, through a norm (Gemma)."""

    def __init__(self, linear: Any, h: np.ndarray, D: int, after: Any, work: Workspace) -> None:
        self.add = work.choose(project_add if after is None else project_norm_add)
        self.given: tuple[Any, ...] = (matrix(linear, D, h.size), biases(linear), h.reshape(-1))
        if after is not None:
            self.given += (*norm(after), work.scratch("product", D))

    def __call__(self, token: Token) -> None:
        """x [D] += W h + bias, or its norm, where h is what the half has left in its scratch."""
        self.add(*self.given, token.x, token.workers)


class Activation:
    """The first half of an MLP, into `between`; `gate` None: a plain MLP."""

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
        w_up, gates = matrix(up, F, D), [] if gate is None else [gate]
        w_gate = matrix(gate, F, D) if gates else w_up[:0]
        self.run = work.choose(norm_activate)
        self.given = (
            *before, w_gate, w_up, biases(*gates, up), activation, work.scratch("normed", D),
            between,
        )  # fmt: skip

    def __call__(self, x: np.ndarray, workers: int) -> None:
        """Of x, into `between`."""
        self.run(x, *self.given, workers)


def norm_projection(
    before: Norm, linears: Sequence[Any], outputs: Sequence[int], work: Workspace
) -> NormProjection | QuantizedNormProjection:
    """Layers of the same inputs, plain or quantized. Raises NoKernel where they have no loop."""
    if any(is_quantized(linear) for linear in linears):
        return QuantizedNormProjection(before, linears, outputs, work)
    D = len(before.scale)
    matrices = [matrix(linear, n, D) for linear, n in zip(linears, outputs, strict=True)]
    return NormProjection(before, matrices, biases(*linears), work)


def output_of(
    linear: Any, h: np.ndarray, D: int, after: Any, work: Workspace
) -> Output | QuantizedOutput:
    """The last product of a half, plain or quantized. Raises NoKernel where it has no loop."""
    return (QuantizedOutput if is_quantized(linear) else Output)(linear, h, D, after, work)


def activation_of(
    before: Norm, gate: Any, up: Any, activation: int, between: np.ndarray, work: Workspace
) -> Activation | QuantizedActivation:
    """The first half of an MLP, plain or quantized. Raises NoKernel where it has no loop, as a
    quantized one without a gate."""
    kind = QuantizedActivation if is_quantized(up) and gate is not None else Activation
    return kind(before, gate, up, activation, between, work)
