"""The products of a layer with all that their loops take, gathered when they are made.

Between two loops memory waits for Python, and finds Python's own numbers driven out of the caches
by the weights. So a call hands over one tuple, and looks nothing up.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from twophase.kernels.compiled.linear import norm_project, project_add, project_norm_add
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
