"""Layers with a state, one behind the other, in one call: as `layers`, with a recurrence in the
place of attention."""

from typing import NamedTuple

import numpy as np

from twophase.kernels.compiled.addresses import array_at, matrix_at, vector_at
from twophase.kernels.compiled.layers import Mlp, add_mlp, mlp_at
from twophase.kernels.compiled.linear import norm_project, project_add
from twophase.kernels.compiled.loops import inner, loop
from twophase.kernels.compiled.recurrence import (
    convolve,
    linear_attention_step,
    state_space_step,
)

_f32 = np.float32
Array = np.ndarray


class LinearLayer(NamedTuple):
    """The arrays of a layer of linear attention: norms, matrices and biases as `linear` takes
    them."""

    norm: Array
    shift: Array
    q: Array
    k: Array
    v: Array
    qkv_bias: Array
    o: Array
    o_bias: Array
    mlp: Mlp


class StateSpaceLayer(NamedTuple):
    """The arrays of a layer with a selective state space; those between its first matrix and its
    last as `recurrence` takes them."""

    norm: Array
    shift: Array
    w_in: Array
    in_bias: Array
    filters: Array
    filter_bias: Array
    w_x: Array
    w_dt: Array
    dt_bias: Array
    A: Array
    skip: Array
    o: Array
    o_bias: Array
    mlp: Mlp


@inner
def linear_layer_at(places: Array, shapes: Array, like: Array) -> LinearLayer:
    """The layer whose arrays begin at these 15 places and have these sizes: matrices of the type of
    `like`."""
    p, s = places, shapes
    return LinearLayer(
        vector_at(p[0], s[0]), vector_at(p[1], s[1]), matrix_at(p[2], s[2], like),
        matrix_at(p[3], s[3], like), matrix_at(p[4], s[4], like), vector_at(p[5], s[5]),
        matrix_at(p[6], s[6], like), vector_at(p[7], s[7]), mlp_at(p[8:], s[8:], like),
    )  # fmt: skip


@inner
def state_space_layer_at(
    places: Array, shapes: Array, like: Array, memory: Array
) -> StateSpaceLayer:
    """The same from 20 places; filters and A are of the type of the memory, fp32."""
    p, s = places, shapes
    return StateSpaceLayer(
        vector_at(p[0], s[0]), vector_at(p[1], s[1]), matrix_at(p[2], s[2], like),
        vector_at(p[3], s[3]), matrix_at(p[4], s[4], memory), vector_at(p[5], s[5]),
        matrix_at(p[6], s[6], like), matrix_at(p[7], s[7], like), vector_at(p[8], s[8]),
        matrix_at(p[9], s[9], memory), vector_at(p[10], s[10]), matrix_at(p[11], s[11], like),
        vector_at(p[12], s[12]), mlp_at(p[13:], s[13:], like),
    )  # fmt: skip


class LinearRun(NamedTuple):
    """Layers of linear attention and MLP, with states of one shape; all matrices are of the type of
    `like`."""

    rope: Array  # cosines and sines, [1, 2, positions, f/2]
    states: Array  # int64 [layers, 2]: where a state lies, and room for the one after the token
    places: Array  # int64 [layers, 15]: where the arrays of a `LinearLayer` begin
    shapes: Array  # int64 [layers, 15, 3]: their sizes
    like: Array
    sums: Array  # of the shape of a state
    eps: np.float32
    activation: int


@loop
def run_linear_layers(x: Array, position: int, run: LinearRun, workers: int) -> None:
    """Take the stream x [D] of the token at a position through layers, and leave the states after
    it in their room."""
    h = np.empty(len(x), _f32)
    for i in range(len(run.places)):
        layer = linear_layer_at(run.places[i], run.shapes[i], run.like)
        before, after = array_at(run.states[i, 0], run.sums), array_at(run.states[i, 1], run.sums)
        qkv, found = np.empty(len(layer.qkv_bias), _f32), np.empty(layer.o.shape[1], _f32)
        norm_project(
            x, layer.norm, layer.shift, run.eps, layer.q, layer.k, layer.v, layer.qkv_bias, h, qkv,
            workers,
        )  # fmt: skip
        linear_attention_step(
            qkv, len(layer.q) // len(before), run.rope[0, 0, position], run.rope[0, 1, position],
            before, after, found,
        )  # fmt: skip
        project_add(layer.o, layer.o_bias, found, x, workers)
        add_mlp(x, layer.mlp, run.eps, run.activation, h, workers)


class StateSpaceRun(NamedTuple):
    """Layers with a selective state space and MLP, with states of one shape; all matrices are of
    the type of `like`."""

    rope: Array  # nothing is turned
    states: Array  # int64 [layers, 4]: where inputs and memory lie, and room for those to come
    places: Array  # int64 [layers, 20]: where the arrays of a `StateSpaceLayer` begin
    shapes: Array  # int64 [layers, 20, 3]: their sizes
    like: Array
    inputs: Array  # of the shape of the last inputs
    memory: Array  # of the shape of a memory
    eps: np.float32
    activation: int


@loop
def run_state_space_layers(x: Array, position: int, run: StateSpaceRun, workers: int) -> None:
    """Take the stream x [D] of a token, wherever it stands, through layers, and leave the states
    after it in their room."""
    h = np.empty(len(x), _f32)
    for i in range(len(run.places)):
        layer = state_space_layer_at(run.places[i], run.shapes[i], run.like, run.memory)
        states = run.states[i]
        wide = len(layer.skip)
        projected, y = np.empty(2 * wide, _f32), np.empty(wide, _f32)
        u, gate, low = projected[:wide], projected[wide:], np.empty(len(layer.w_x), _f32)
        norm_project(
            x, layer.norm, layer.shift, run.eps, layer.w_in, layer.w_in[:0], layer.w_in[:0],
            layer.in_bias, h, projected, workers,
        )  # fmt: skip
        before, after = array_at(states[0], run.inputs), array_at(states[2], run.inputs)
        convolve(u, layer.filters, layer.filter_bias, before, after)
        state_space_step(
            u, gate, layer.w_x, layer.w_dt, layer.dt_bias, layer.A, layer.skip,
            array_at(states[1], run.memory), array_at(states[3], run.memory), low, y,
        )  # fmt: skip
        project_add(layer.o, layer.o_bias, y, x, workers)
        add_mlp(x, layer.mlp, run.eps, run.activation, h, workers)
