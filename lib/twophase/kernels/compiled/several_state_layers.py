"""Layers with a state for a few tokens of one sequence, in one call: `state_layers` with a row for
each token. Matrices meet all tokens at once; a state takes them in one after the other."""

import numpy as np

from twophase.kernels.compiled.addresses import array_at
from twophase.kernels.compiled.loops import loop
from twophase.kernels.compiled.recurrence import convolve, linear_attention_step, state_space_step
from twophase.kernels.compiled.several import add_several, project_several
from twophase.kernels.compiled.several_layers import add_mlp_several
from twophase.kernels.compiled.state_layers import (
    LinearRun,
    StateSpaceRun,
    linear_layer_at,
    state_space_layer_at,
)

_f32 = np.float32
Array = np.ndarray


@loop
def run_linear_layers_several(x: Array, start: int, run: LinearRun, workers: int) -> None:
    """`state_layers.run_linear_layers` for the streams x [T, D] of tokens from position `start` on.
    `run.states` [layers, T + 1]: where a state lies, and room for those after each token."""
    T = len(x)
    for i in range(len(run.places)):
        layer = linear_layer_at(run.places[i], run.shapes[i], run.like)
        f = len(layer.q) // len(run.sums)
        qkv, found = np.empty((T, len(layer.qkv_bias)), _f32), np.empty((T, layer.o.shape[1]), _f32)
        project_several(
            x, layer.norm, layer.shift, run.eps, layer.q, layer.k, layer.v, layer.qkv_bias, qkv,
            workers,
        )  # fmt: skip
        for t in range(T):
            before = array_at(run.states[i, t], run.sums)
            after = array_at(run.states[i, t + 1], run.sums)
            linear_attention_step(
                qkv[t], f, run.rope[0, 0, start + t], run.rope[0, 1, start + t], before, after,
                found[t],
            )  # fmt: skip
        add_several(layer.o, layer.o_bias, found, x, workers)
        add_mlp_several(x, layer.mlp, run.eps, run.activation, workers)


@loop
def run_state_space_layers_several(x: Array, start: int, run: StateSpaceRun, workers: int) -> None:
    """`state_layers.run_state_space_layers` for the streams x [T, D]. `run.states` [layers, 2·(T +
    1)]: where inputs and memory lie, and room for those after each token."""
    T = len(x)
    for i in range(len(run.places)):
        layer = state_space_layer_at(run.places[i], run.shapes[i], run.like, run.memory)
        wide, low = len(layer.skip), np.empty(len(layer.w_x), _f32)
        projected, y = np.empty((T, 2 * wide), _f32), np.empty((T, wide), _f32)
        project_several(
            x, layer.norm, layer.shift, run.eps, layer.w_in, layer.w_in[:0], layer.w_in[:0],
            layer.in_bias, projected, workers,
        )  # fmt: skip
        for t in range(T):
            u, gate, states = projected[t, :wide], projected[t, wide:], run.states[i, 2 * t :]
            before, after = array_at(states[0], run.inputs), array_at(states[2], run.inputs)
            convolve(u, layer.filters, layer.filter_bias, before, after)
            state_space_step(
                u, gate, layer.w_x, layer.w_dt, layer.dt_bias, layer.A, layer.skip,
                array_at(states[1], run.memory), array_at(states[3], run.memory), low, y[t],
            )  # fmt: skip
        add_several(layer.o, layer.o_bias, y, x, workers)
        add_mlp_several(x, layer.mlp, run.eps, run.activation, workers)
