"""A decode step from the number of a token to its logits, in one call: of a model whose layers are
all in runs.

A small model's step takes tens of microseconds, of which each call from Python takes several: it
finds its own numbers driven out of the caches by the weights. So here there is one.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import literal_unroll
from numba.extending import overload

from twophase.kernels.compiled.addresses import array_at, matrix_at, vector_at
from twophase.kernels.compiled.layers import AttentionRun, run_layers
from twophase.kernels.compiled.linear import norm_project, scaled_row
from twophase.kernels.compiled.loops import Loop, loop
from twophase.kernels.compiled.state_layers import (
    LinearRun,
    StateSpaceRun,
    run_linear_layers,
    run_state_space_layers,
)

_f32 = np.float32
Array = np.ndarray
LOOPS: dict[type, Loop] = {
    AttentionRun: run_layers,
    LinearRun: run_linear_layers,
    StateSpaceRun: run_state_space_layers,
}


def _by_kind(parallel: bool) -> Callable[..., Any]:
    """A function of compiled code that is the loop for a run of the kind it is called with."""

    def through(x: Array, position: int, run: Any, workers: int) -> None:
        raise NotImplementedError("through is for compiled code.")

    @overload(through)
    def chosen(x, position, run, workers):  # type: ignore[no-untyped-def]
        found = LOOPS[run.instance_class]
        run_all = found.parallel if parallel else found.serial
        return lambda x, position, run, workers: run_all(x, position, run, workers)

    return through


through = Loop(_by_kind(parallel=False), _by_kind(parallel=True))


@loop
def run_step(
    token: int, position: int, ends: Array, end_shapes: Array, like: Array, factor: np.float32,
    last_eps: np.float32, runs: tuple[Any, ...], logits: int, workers: int,
) -> None:  # fmt: skip
    """Logits fp32 [V], to the address `logits`, of a token at a position, which is also put into
    the cache.

    Arrays come as addresses, since each that is an argument takes a part of a microsecond: `ends`
    [6] and their sizes [6, 3] are the embedding [V, D], which is taken times `factor`, learned
    positions or none, weight and shift of the last norm, the output matrix and its bias. Their
    matrices are of the type of `like`. `runs`: of the kinds of LOOPS, one behind the other.
    """
    e, s = ends, end_shapes
    x = scaled_row(matrix_at(e[0], s[0], like), token, factor)
    if s[1, 0]:
        x += scaled_row(matrix_at(e[1], s[1], like), position, _f32(1))
    for run in literal_unroll(runs):
        through(x, position, run, workers)
    norm, shift, bias = vector_at(e[2], s[2]), vector_at(e[3], s[3]), vector_at(e[5], s[5])
    head, out, h = matrix_at(e[4], s[4], like), array_at(logits, bias), np.empty(len(x), _f32)
    norm_project(x, norm, shift, last_eps, head, head[:0], head[:0], bias, h, out, workers)
