"""Layers one behind the other for a few tokens of one sequence, in one call: `layers` with a row
for each token."""

import numpy as np

from twophase.kernels.compiled.addresses import store_at
from twophase.kernels.compiled.layers import AttentionRun, Mlp, layer_at
from twophase.kernels.compiled.loops import loop
from twophase.kernels.compiled.several import activate_several, add_several, project_several
from twophase.kernels.compiled.several_attention import shared_work, turn_attend_several

_f32 = np.float32
Array = np.ndarray


@loop
def add_mlp_several(x: Array, mlp: Mlp, eps: np.float32, activation: int, workers: int) -> None:
    """`layers.add_mlp` for the streams x [T, D]."""
    between = np.empty((len(x), len(mlp.up)), _f32)
    activate_several(
        x, mlp.norm, mlp.shift, eps, mlp.gate, mlp.up, mlp.bias, activation, between, workers
    )
    add_several(mlp.down, mlp.down_bias, between, x, workers)


@loop
def run_layers_several(
    x: Array, start: int, run: AttentionRun, new: Array, put: Array, workers: int
) -> None:
    """`layers.run_layers` for the streams x [T, D] of tokens from position `start` on.

    `new` int64 [layers, 2]: where their keys and values [T, K, H] lie, of the layer or of the one
    before it whose keys it reads. `put` bool [layers]: whether these go into the store, too (else
    somebody else puts them there, or has done so).
    """
    T, end = len(x), start + len(x)
    for i in range(len(run.places)):
        layer = layer_at(run.places[i], run.shapes[i], run.like, run.keys)
        slots, K, H = layer.keys.shape
        N, window, kind = layer.o.shape[1] // H, run.sees[i, 0], run.sees[i, 1]
        qkv, found = np.empty((T, len(layer.qkv_bias)), _f32), np.empty((T, N, H), _f32)
        new_shape = np.array([T, K, H])
        new_keys = store_at(new[i, 0], new_shape, run.keys)
        new_values = store_at(new[i, 1], new_shape, run.keys)
        project_several(
            x, layer.norm, layer.shift, run.eps, layer.q, layer.k, layer.v, layer.qkv_bias, qkv,
            workers,
        )  # fmt: skip
        shared, tasks, own, firsts = shared_work(
            start, T, slots, window, K * H * run.keys.itemsize, workers
        )
        turn_attend_several(
            qkv, N, layer.q_norm, layer.k_norm, run.head_eps, run.interleaved, run.scale,
            run.rope[kind, 0, start:end], run.rope[kind, 1, start:end], new_keys, new_values,
            layer.keys, layer.values, shared, tasks, own, firsts, window, run.softcap, found,
        )  # fmt: skip
        if put[i]:
            layer.keys[start:end] = new_keys
            layer.values[start:end] = new_values
        add_several(layer.o, layer.o_bias, found.reshape(T, N * H), x, workers)  # [T, N·H]
        add_mlp_several(x, layer.mlp, run.eps, run.activation, workers)
