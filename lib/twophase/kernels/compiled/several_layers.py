"""Layers one behind the other for a few tokens of one sequence, in one call: `layers` with a row
for each token."""

import numpy as np

from twophase.kernels.compiled.layers import layer_at
from twophase.kernels.compiled.loops import loop
from twophase.kernels.compiled.several import activate_several, add_several, project_several
from twophase.kernels.compiled.several_attention import turn_attend_several

_f32 = np.float32
Array = np.ndarray


@loop
def run_layers_several(
    x: Array, places: Array, first: tuple[Array, ...], eps: np.float32, N: int,
    head_eps: np.float32, interleaved: bool, scale: np.float32, cos: Array, sin: Array,
    new_keys: Array, new_values: Array, slot: int, shared: Array, tasks: Array, own: Array,
    firsts: Array, window: int, softcap: float, activation: int, qkv_width: int, F: int,
    parts: int,
) -> None:  # fmt: skip
    """Take the streams x [T, D] through layers of one kind. `places`, `first` as `run_layers` takes
    them, RoPE and blocks as `turn_attend_several`; new_keys, new_values [layers, T, K, H]. These
    also go into the store, from `slot` on; below 0: not yet."""
    T, H = len(x), new_keys.shape[3]
    qkv, found = np.empty((T, qkv_width), _f32), np.empty((T, N, H), _f32)
    between = np.empty((T, F), _f32)
    for i in range(len(places)):
        layer = layer_at(places[i], first)
        project_several(
            x, layer.attention_norm, layer.attention_shift, eps, layer.q, layer.k, layer.v,
            layer.qkv_bias, qkv, parts,
        )  # fmt: skip
        turn_attend_several(
            qkv, N, layer.q_norm, layer.k_norm, head_eps, interleaved, scale, cos, sin,
            new_keys[i], new_values[i], layer.keys, layer.values, shared, tasks, own, firsts,
            window, softcap, found,
        )  # fmt: skip
        if slot >= 0:
            layer.keys[slot : slot + T] = new_keys[i]
            layer.values[slot : slot + T] = new_values[i]
        add_several(layer.o, layer.o_bias, found.reshape(T, N * H), x, parts)  # [T, N·H]
        activate_several(
            x, layer.mlp_norm, layer.mlp_shift, eps, layer.gate, layer.up, layer.mlp_bias,
            activation, between, parts,
        )  # fmt: skip
        add_several(layer.down, layer.down_bias, between, x, parts)
