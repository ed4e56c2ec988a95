"""Layers one behind the other, in one call: a decode step as it reads in a paper, five loops a
layer.

Each loop could be called from Python, and is where layers differ in kind. But weights drive Python
out of the caches, so between two loops memory waits for it, tens of microseconds a layer. Here
nothing stands between them.
"""

from typing import Any, NamedTuple

import numpy as np

from twophase.kernels.compiled.addresses import at
from twophase.kernels.compiled.linear import norm_activate, norm_project, project_add
from twophase.kernels.compiled.loops import inner, loop
from twophase.kernels.compiled.parts import turn_append_attend
from twophase.kernels.compiled.quantized import add_product, norm_activate_product, norm_product

_f32 = np.float32
Array = np.ndarray


class Layer(NamedTuple):
    """The arrays of a layer: norms, matrices and biases as `linear` takes them, norms of heads as
    `rope` does; keys and values [slots, K, H]."""

    attention_norm: Array
    attention_shift: Array
    q: Array
    k: Array
    v: Array
    qkv_bias: Array
    q_norm: Array
    k_norm: Array
    keys: Array
    values: Array
    o: Array
    o_bias: Array
    mlp_norm: Array
    mlp_shift: Array
    gate: Array
    up: Array
    mlp_bias: Array
    down: Array
    down_bias: Array


@inner
def layer_at(places: Array, first: tuple[Array, ...]) -> Layer:
    """The layer whose arrays begin at these 19 places, and are otherwise like those of `first`."""
    p, f = places, first
    return Layer(
        at(p[0], f[0]), at(p[1], f[1]), at(p[2], f[2]), at(p[3], f[3]), at(p[4], f[4]),
        at(p[5], f[5]), at(p[6], f[6]), at(p[7], f[7]), at(p[8], f[8]), at(p[9], f[9]),
        at(p[10], f[10]), at(p[11], f[11]), at(p[12], f[12]), at(p[13], f[13]), at(p[14], f[14]),
        at(p[15], f[15]), at(p[16], f[16]), at(p[17], f[17]), at(p[18], f[18]),
    )  # fmt: skip


@loop
def run_layers(
    x: Array, places: Array, first: tuple[Array, ...], eps: np.float32, N: int,
    head_eps: np.float32, interleaved: bool, scale: np.float32, cos: Array, sin: Array,
    slot: int, table: Array, tasks: Array, first_task: Array, softcap: float, activation: int,
    h: Array, qkv: Array, found: Array, between: Array, parts: int,
) -> None:  # fmt: skip
    """Take the stream x [D] through layers of one kind. `places` int64 [layers, 19]: where their
    arrays begin; `first`: those of the first of them. RoPE, slot and blocks as
    `turn_append_attend` takes them. h [D], qkv, found [1, N, H] and between [F] are scratch."""
    for i in range(len(places)):
        layer = layer_at(places[i], first)
        norm_project(
            x, layer.attention_norm, layer.attention_shift, eps, layer.q, layer.k, layer.v,
            layer.qkv_bias, h, qkv, parts,
        )  # fmt: skip
        turn_append_attend(
            qkv, N, layer.q_norm, layer.k_norm, head_eps, interleaved, scale, cos, sin,
            layer.keys, layer.values, slot, table, tasks, first_task, softcap, found,
        )  # fmt: skip
        project_add(layer.o, layer.o_bias, found.reshape(found.size), x, parts)
        norm_activate(
            x, layer.mlp_norm, layer.mlp_shift, eps, layer.gate, layer.up, layer.mlp_bias,
            activation, h, between, parts,
        )  # fmt: skip
        project_add(layer.down, layer.down_bias, between, x, parts)


Codes = tuple[Array, Array, Array]  # a matrix as `quantized` reads it: codes, scales, zero points


class CodesLayer(NamedTuple):
    """The arrays of a layer whose matrices are codes; queries, keys and values come from one."""

    attention_norm: Array
    attention_shift: Array
    qkv: Codes
    qkv_bias: Array
    q_norm: Array
    k_norm: Array
    keys: Array
    values: Array
    o: Codes
    o_bias: Array
    mlp_norm: Array
    mlp_shift: Array
    gate: Codes
    up: Codes
    mlp_bias: Array
    down: Codes
    down_bias: Array


@inner
def codes_at(places: Array, first: tuple[Array, ...]) -> Codes:
    """The matrix whose three arrays begin at these places, and are otherwise like those of
    `first`."""
    return at(places[0], first[0]), at(places[1], first[1]), at(places[2], first[2])


@inner
def codes_layer_at(places: Array, first: tuple[Array, ...]) -> CodesLayer:
    """As `layer_at`, from 27 places."""
    p, f = places, first
    return CodesLayer(
        at(p[0], f[0]), at(p[1], f[1]), codes_at(p[2:5], f[2:5]), at(p[5], f[5]),
        at(p[6], f[6]), at(p[7], f[7]), at(p[8], f[8]), at(p[9], f[9]),
        codes_at(p[10:13], f[10:13]), at(p[13], f[13]), at(p[14], f[14]), at(p[15], f[15]),
        codes_at(p[16:19], f[16:19]), codes_at(p[19:22], f[19:22]), at(p[22], f[22]),
        codes_at(p[23:26], f[23:26]), at(p[26], f[26]),
    )  # fmt: skip


@loop
def run_codes_layers(
    x: Array, places: Array, first: tuple[Array, ...], eps: np.float32, N: int,
    head_eps: np.float32, interleaved: bool, scale: np.float32, cos: Array, sin: Array,
    slot: int, table: Array, tasks: Array, first_task: Array, softcap: float, activation: int,
    h: Array, qkv: Array, found: Array, between: Array, given: tuple[Any, ...], parts: int,
) -> None:  # fmt: skip
    """The same for matrices of codes: `places` int64 [layers, 27]; `given`: room for what the
    four products want to know of their vectors."""
    for i in range(len(places)):
        layer = codes_layer_at(places[i], first)
        norm_product(
            x, layer.attention_norm, layer.attention_shift, eps, layer.qkv, layer.qkv_bias, h,
            given[0], qkv, parts,
        )  # fmt: skip
        turn_append_attend(
            qkv, N, layer.q_norm, layer.k_norm, head_eps, interleaved, scale, cos, sin,
            layer.keys, layer.values, slot, table, tasks, first_task, softcap, found,
        )  # fmt: skip
        add_product(layer.o, layer.o_bias, found.reshape(found.size), given[1], x, parts)
        norm_activate_product(
            x, layer.mlp_norm, layer.mlp_shift, eps, layer.gate, layer.up, layer.mlp_bias,
            activation, h, given[2], between, parts,
        )  # fmt: skip
        add_product(layer.down, layer.down_bias, between, given[3], x, parts)
