"""A decode step from the number of a token to its logits, in one call: of a model whose layers are
all of one kind.

A small model's step takes tens of microseconds, of which each call from Python takes several: it
finds its own numbers driven out of the caches by the weights. So here there is one.
"""

import numpy as np

from twophase.kernels.compiled.addresses import at, matrix_at, vector_at
from twophase.kernels.compiled.layers import Layer, run_layers
from twophase.kernels.compiled.linear import norm_project, scaled_row
from twophase.kernels.compiled.loops import inner, loop
from twophase.kernels.compiled.tables import lone_work

_f32 = np.float32
Array = np.ndarray


@inner
def first_layer(places: Array, shapes: Array, like: Array, keys: Array) -> tuple[Array, ...]:
    """The arrays of the layer that begin at these 19 places: matrices of the type of `like`, keys
    and values like `keys`."""
    p, s = places, shapes
    return (
        vector_at(p[0], s[0]), vector_at(p[1], s[1]), matrix_at(p[2], s[2], like),
        matrix_at(p[3], s[3], like), matrix_at(p[4], s[4], like), vector_at(p[5], s[5]),
        vector_at(p[6], s[6]), vector_at(p[7], s[7]), at(p[8], keys), at(p[9], keys),
        matrix_at(p[10], s[10], like), vector_at(p[11], s[11]), vector_at(p[12], s[12]),
        vector_at(p[13], s[13]), matrix_at(p[14], s[14], like), matrix_at(p[15], s[15], like),
        vector_at(p[16], s[16]), matrix_at(p[17], s[17], like), vector_at(p[18], s[18]),
    )  # fmt: skip


@loop
def run_step(
    token: int, position: int, ends: Array, end_shapes: Array, factor: np.float32,
    last_eps: np.float32, cos: Array, sin: Array, window: int, places: Array,
    shapes: Array, like: Array, keys: Array, eps: np.float32, N: int, head_eps: np.float32,
    interleaved: bool, scale: np.float32, softcap: float, activation: int, logits: int, parts: int,
) -> None:  # fmt: skip
    """Logits fp32 [V], to the address `logits`, of a token at a position, which is also put into
    the cache.

    Arrays come as addresses, since each that is an argument takes a part of a microsecond: `ends`
    [6] and their sizes [6, 2] are the embedding [V, D], which is taken times `factor`, learned
    positions or none, weight and shift of the last norm, the output matrix and its bias; `places`
    [layers, 19] and sizes [19, 2] as `layers.Layer` has them; cos and sin: RoPE's
    tables [positions, H/2]. All matrices are of the type of `like`; all keys and values are like
    `keys`. `window` of the layers, 0: none. The others as `run_layers` takes them.
    """
    e, s = ends, end_shapes
    x = scaled_row(matrix_at(e[0], s[0], like), token, factor)
    if s[1, 0]:
        x += scaled_row(matrix_at(e[1], s[1], like), position, _f32(1))
    first = first_layer(places[0], shapes, like, keys)
    layer, (slots, K, H) = Layer(*first), keys.shape
    token_bytes = K * H * keys.itemsize
    table, tasks, first_task = lone_work(position + 1, slots, window, token_bytes, parts)
    h, found = np.empty(len(x), _f32), np.empty((1, N, H), _f32)
    qkv, between = np.empty(len(layer.qkv_bias), _f32), np.empty(len(layer.up), _f32)
    run_layers(
        x, places, first, eps, N, head_eps, interleaved, scale, cos[position], sin[position],
        position % slots, table, tasks, first_task, softcap, activation, h, qkv, found, between,
        parts,
    )  # fmt: skip
    norm, shift, bias = vector_at(e[2], s[2]), vector_at(e[3], s[3]), vector_at(e[5], s[5])
    head, out = matrix_at(e[4], s[4], like), at(logits, bias)
    norm_project(x, norm, shift, last_eps, head, head[:0], head[:0], bias, h, out, parts)
