"""One token through a mixture of experts: k experts are read, and the others not.

What it computes is in `kernels.mixture_of_experts`.
"""

import numba
import numpy as np

from twophase.kernels.compiled.linear import activate
from twophase.kernels.compiled.loops import inner, loop
from twophase.kernels.compiled.numbers import value_of

_f32 = np.float32


@inner
def dot_of(w: np.ndarray, e: int, row: int, x: np.ndarray, j: int) -> np.float32:
    """A row of expert e's matrix, w [E, outputs, inputs], times x[j]."""
    total = _f32(0)
    for i in range(w.shape[2]):
        total += value_of(w[e, row, i]) * x[j, i]
    return total


@loop
def visit_experts(
    h: np.ndarray,
    experts: np.ndarray,
    weights: np.ndarray,
    w_gate: np.ndarray,
    w_up: np.ndarray,
    w_down: np.ndarray,
    activation: int,
    between: np.ndarray,
    x: np.ndarray,
) -> None:
    """x [D] += Σ_j weights[j] · expert experts[j] of h [1, D].

    experts int64 [k], weights fp32 [k]; w_gate, w_up [E, F, D], w_down [E, D, F]; between [k, F] is
    scratch.
    """
    k, F = between.shape
    for i in numba.prange(k * F):
        j, row = i // F, i % F
        gate = activate(activation, dot_of(w_gate, experts[j], row, h, 0))
        between[j, row] = gate * dot_of(w_up, experts[j], row, h, 0)
    for row in numba.prange(x.shape[0]):
        total = _f32(0)
        for j in range(k):
            total += weights[j] * dot_of(w_down, experts[j], row, between, j)
        x[row] += total
