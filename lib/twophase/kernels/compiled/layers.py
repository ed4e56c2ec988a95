"""Layers one behind the other, in one call: a decode step as it reads in a paper, five loops a
layer.

Each loop could be called from Python, and is where layers differ in kind. But weights drive Python
out of the caches, so between two loops memory waits for it, tens of microseconds a layer. Here
nothing stands between them.
"""

from typing import Any, NamedTuple

import numpy as np

from twophase.kernels.compiled.addresses import array_at, matrix_at, store_at, vector_at
from twophase.kernels.compiled.linear import norm_activate, norm_project, project_add
from twophase.kernels.compiled.loops import inner, loop
from twophase.kernels.compiled.parts import turn_append_attend
from twophase.kernels.compiled.quantized import add_product, norm_activate_product, norm_product
from twophase.kernels.compiled.tables import lone_work

_f32 = np.float32
Array = np.ndarray


class Mlp(NamedTuple):
    """The arrays of an MLP and the norm before it, as `linear` takes them."""

    norm: Array
    shift: Array
    gate: Array
    up: Array
    bias: Array
    down: Array
    down_bias: Array


class Layer(NamedTuple):
    """The arrays of a layer: norms, matrices and biases as `linear` takes them, norms of heads as
    `rope` does; keys and values [slots, K, H], its own or those of a layer before it."""

    norm: Array
    shift: Array
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
    mlp: Mlp


@inner
def mlp_at(places: Array, shapes: Array, like: Array) -> Mlp:
    """The MLP whose arrays begin at these 7 places and have these sizes: matrices of the type of
    `like`."""
    p, s = places, shapes
    return Mlp(
        vector_at(p[0], s[0]), vector_at(p[1], s[1]), matrix_at(p[2], s[2], like),
        matrix_at(p[3], s[3], like), vector_at(p[4], s[4]), matrix_at(p[5], s[5], like),
        vector_at(p[6], s[6]),
    )  # fmt: skip


@inner
def layer_at(places: Array, shapes: Array, like: Array, keys: Array) -> Layer:
    """The layer whose arrays begin at these 19 places: matrices of the type of `like`, keys and
    values of that of `keys`."""
    p, s = places, shapes
    return Layer(
        vector_at(p[0], s[0]), vector_at(p[1], s[1]), matrix_at(p[2], s[2], like),
        matrix_at(p[3], s[3], like), matrix_at(p[4], s[4], like), vector_at(p[5], s[5]),
        vector_at(p[6], s[6]), vector_at(p[7], s[7]), store_at(p[8], s[8], keys),
        store_at(p[9], s[9], keys), matrix_at(p[10], s[10], like), vector_at(p[11], s[11]),
        mlp_at(p[12:], s[12:], like),
    )  # fmt: skip


@loop
def add_mlp(x: Array, mlp: Mlp, eps: np.float32, activation: int, h: Array, workers: int) -> None:
    """Add to the stream x [D] what an MLP makes of it; h [D] is scratch."""
    between = np.empty(len(mlp.up), _f32)
    norm_activate(
        x, mlp.norm, mlp.shift, eps, mlp.gate, mlp.up, mlp.bias, activation, h, between, workers
    )
    project_add(mlp.down, mlp.down_bias, between, x, workers)


class AttentionRun(NamedTuple):
    """Layers of attention and MLP. They differ in their sizes, in whether they have keys of their
    own, and in what they see; all matrices are of the type of `like`, all keys and values of that
    of `keys`."""

    rope: Array  # cosines and sines, [kinds, 2, positions, H/2]
    places: Array  # int64 [layers, 19]: where the arrays of a `Layer` begin
    shapes: Array  # int64 [layers, 19, 3]: their sizes
    sees: Array  # int64 [layers, 2]: a window (0: none), and a kind of RoPE
    like: Array
    keys: Array
    eps: np.float32
    head_eps: np.float32
    interleaved: bool
    scale: np.float32
    softcap: float
    activation: int


@loop
def run_layers(x: Array, position: int, run: AttentionRun, workers: int) -> None:
    """Take the stream x [D] of the token at a position through layers, which also put it into the
    cache."""
    h = np.empty(len(x), _f32)
    for i in range(len(run.places)):
        layer = layer_at(run.places[i], run.shapes[i], run.like, run.keys)
        slots, K, H = layer.keys.shape
        N, window, kind = layer.o.shape[1] // H, run.sees[i, 0], run.sees[i, 1]
        qkv, found = np.empty(len(layer.qkv_bias), _f32), np.empty((1, N, H), _f32)
        norm_project(
            x, layer.norm, layer.shift, run.eps, layer.q, layer.k, layer.v, layer.qkv_bias, h, qkv,
            workers,
        )  # fmt: skip
        table, tasks, first_task = lone_work(
            position + 1, slots, window, K * H * run.keys.itemsize, workers
        )
        turn_append_attend(
            qkv, N, layer.q_norm, layer.k_norm, run.head_eps, run.interleaved, run.scale,
            run.rope[kind, 0, position], run.rope[kind, 1, position], layer.keys, layer.values,
            position % slots, table, tasks, first_task, run.softcap, found,
        )  # fmt: skip
        project_add(layer.o, layer.o_bias, found.reshape(found.size), x, workers)
        add_mlp(x, layer.mlp, run.eps, run.activation, h, workers)


# A matrix as `quantized` reads it: codes, scales, zero points.
CodesMatrix = tuple[Array, Array, Array]


class CodesLayer(NamedTuple):
    """The arrays of a layer whose matrices are codes; queries, keys and values come from one."""

    attention_norm: Array
    attention_shift: Array
    qkv: CodesMatrix
    qkv_bias: Array
    q_norm: Array
    k_norm: Array
    keys: Array
    values: Array
    o: CodesMatrix
    o_bias: Array
    mlp_norm: Array
    mlp_shift: Array
    gate: CodesMatrix
    up: CodesMatrix
    mlp_bias: Array
    down: CodesMatrix
    down_bias: Array


@inner
def codes_at(places: Array, first: tuple[Array, ...]) -> CodesMatrix:
    """The matrix whose three arrays begin at these places, and are otherwise like those of
    `first`."""
    return (
        array_at(places[0], first[0]),
        array_at(places[1], first[1]),
        array_at(places[2], first[2]),
    )


@inner
def codes_layer_at(places: Array, first: tuple[Array, ...]) -> CodesLayer:
    """As `layer_at`, from 27 places."""
    p, f = places, first
    return CodesLayer(
        array_at(p[0], f[0]), array_at(p[1], f[1]), codes_at(p[2:5], f[2:5]), array_at(p[5], f[5]),
        array_at(p[6], f[6]), array_at(p[7], f[7]), array_at(p[8], f[8]), array_at(p[9], f[9]),
        codes_at(p[10:13], f[10:13]), array_at(p[13], f[13]), array_at(p[14], f[14]),
        array_at(p[15], f[15]), codes_at(p[16:19], f[16:19]), codes_at(p[19:22], f[19:22]),
        array_at(p[22], f[22]), codes_at(p[23:26], f[23:26]), array_at(p[26], f[26]),
    )  # fmt: skip


@loop
def run_codes_layers(
    x: Array, places: Array, first: tuple[Array, ...], eps: np.float32, N: int,
    head_eps: np.float32, interleaved: bool, scale: np.float32, cos: Array, sin: Array,
    slot: int, table: Array, tasks: Array, first_task: Array, softcap: float, activation: int,
    h: Array, qkv: Array, found: Array, between: Array, given: tuple[Any, ...], workers: int,
) -> None:  # fmt: skip
    """The same for matrices of codes: `places` int64 [layers, 27]; `given`: room for what the
    four products want to know of their vectors."""
    for i in range(len(places)):
        layer = codes_layer_at(places[i], first)
        norm_product(
            x, layer.attention_norm, layer.attention_shift, eps, layer.qkv, layer.qkv_bias, h,
            given[0], qkv, workers,
        )  # fmt: skip
        turn_append_attend(
            qkv, N, layer.q_norm, layer.k_norm, head_eps, interleaved, scale, cos, sin,
            layer.keys, layer.values, slot, table, tasks, first_task, softcap, found,
        )  # fmt: skip
        add_product(layer.o, layer.o_bias, found.reshape(found.size), given[1], x, workers)
        norm_activate_product(
            x, layer.mlp_norm, layer.mlp_shift, eps, layer.gate, layer.up, layer.mlp_bias,
            activation, h, given[2], between, workers,
        )  # fmt: skip
        add_product(layer.down, layer.down_bias, between, given[3], x, workers)
