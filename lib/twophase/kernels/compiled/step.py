"""A decode step from the number of a token to its logits, in one call: of a model whose layers are
all attention and MLP.

A small model's step takes tens of microseconds, of which each call from Python takes several: it
finds its own numbers driven out of the caches by the weights. So here there is one.
"""

import numpy as np

from twophase.kernels.compiled.addresses import at, matrix_at, vector_at
from twophase.kernels.compiled.layers import run_layers
from twophase.kernels.compiled.linear import norm_project, scaled_row
from twophase.kernels.compiled.loops import loop

_f32 = np.float32
Array = np.ndarray


@loop
def run_step(
    token: int, position: int, ends: Array, end_shapes: Array, factor: np.float32,
    last_eps: np.float32, rope: Array, places: Array, shapes: Array, sees: Array, like: Array,
    keys: Array, eps: np.float32, head_eps: np.float32, interleaved: bool, scale: np.float32,
    softcap: float, activation: int, logits: int, parts: int,
) -> None:  # fmt: skip
    """Logits fp32 [V], to the address `logits`, of a token at a position, which is also put into
    the cache.

    Arrays come as addresses, since each that is an argument takes a part of a microsecond: `ends`
    [6] and their sizes [6, 3] are the embedding [V, D], which is taken times `factor`, learned
    positions or none, weight and shift of the last norm, the output matrix and its bias. All
    matrices are of the type of `like`. The others as `run_layers` takes them.
    """
    e, s = ends, end_shapes
    x = scaled_row(matrix_at(e[0], s[0], like), token, factor)
    if s[1, 0]:
        x += scaled_row(matrix_at(e[1], s[1], like), position, _f32(1))
    run_layers(
        x, position, rope, places, shapes, sees, like, keys, eps, head_eps, interleaved, scale,
        softcap, activation, parts,
    )  # fmt: skip
    norm, shift, bias = vector_at(e[2], s[2]), vector_at(e[3], s[3]), vector_at(e[5], s[5])
    head, out, h = matrix_at(e[4], s[4], like), at(logits, bias), np.empty(len(x), _f32)
    norm_project(x, norm, shift, last_eps, head, head[:0], head[:0], bias, h, out, parts)
