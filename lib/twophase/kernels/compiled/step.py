"""A decode step from the number of a token to its logits, in one call: of a model whose layers are
all of one kind.

A small model's step takes tens of microseconds, of which each call from Python takes several: it
finds its own numbers driven out of the caches by the weights. So here there is one.
"""

import numpy as np

from twophase.kernels.compiled.addresses import at
from twophase.kernels.compiled.layers import Layer, run_layers
from twophase.kernels.compiled.linear import norm_project, scaled_row
from twophase.kernels.compiled.loops import loop
from twophase.kernels.compiled.tables import lone_work

_f32 = np.float32
Array = np.ndarray


@loop
def run_step(
    token: int, position: int, ends: tuple[Array, ...], factor: np.float32, last_eps: np.float32,
    cos: Array, sin: Array, window: int, places: Array, first: tuple[Array, ...], eps: np.float32,
    N: int, head_eps: np.float32, interleaved: bool, scale: np.float32, softcap: float,
    activation: int, logits: int, parts: int,
) -> None:  # fmt: skip
    """Logits fp32 [V], to the address `logits`, of a token at a position, which is also put into
    the cache.

    `ends`: the embedding [V, D], times `factor`, and learned positions [positions, D], or none of
    these; weight and shift of the last norm; the output matrix and its bias. cos, sin: RoPE's whole
    tables [positions, H/2]. `window` of the layers, 0: none. The others as `run_layers` takes them.
    """
    embedding, learned, norm, shift, head, bias = ends
    layer = Layer(*first)
    slots, K, H = layer.keys.shape
    x = scaled_row(embedding, token, factor)
    if len(learned):
        x += scaled_row(learned, position, _f32(1))
    table, tasks, first_task = lone_work(
        position + 1, slots, window, K * H * layer.keys.itemsize, parts
    )
    h, found = np.empty(len(x), _f32), np.empty((1, N, H), _f32)
    qkv, between = np.empty(len(layer.qkv_bias), _f32), np.empty(len(layer.up), _f32)
    run_layers(
        x, places, first, eps, N, head_eps, interleaved, scale, cos[position], sin[position],
        position % slots, table, tasks, first_task, softcap, activation, h, qkv, found, between,
        parts,
    )  # fmt: skip
    found_logits, none = at(logits, bias), head[:0]
    norm_project(x, norm, shift, last_eps, head, none, none, bias, h, found_logits, parts)
