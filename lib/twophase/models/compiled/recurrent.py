"""Halves with a state: linear attention, and the selective state space.

A state belongs to the cache, which keeps the new one when the pass is committed: so loops read it,
and write the one after the token elsewhere.
"""

import numpy as np
import torch
from torch import nn

from twophase.kernels.compiled.recurrence import convolve, linear_attention_step, state_space_step
from twophase.kernels.linear_attention import sums_shape
from twophase.models.compiled.plain import PlainHalf
from twophase.models.compiled.products import Output, norm_projection
from twophase.models.compiled.token import Token, Workspace
from twophase.models.compiled.weights import NoKernel, biases, check_kind, matrix, norm, stored
from twophase.models.linear import BiasInFloat32
from twophase.models.linear_attention import LinearAttention
from twophase.models.state_space import SelectiveStateSpace


def advanced(
    token: Token, layer: int, shapes: tuple[tuple[int, ...], ...]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The state of a layer, tensors of these shapes, before the token, and room for the one after
    it, which the cache is told of."""
    state = token.state(layer, *shapes).step(token.span)
    return [tensor[0].numpy() for tensor in state.now], [tensor[0].numpy() for tensor in state.room]


class LinearState:
    """Linear attention in three calls: norm and projections; state and answer; the output."""

    kind = "linear"
    between: tuple[np.ndarray, ...] = ()  # what loops take between projections and output
    more_matrices: tuple[np.ndarray, ...] = ()  # those among it that are weights

    def __init__(self, half: PlainHalf, work: Workspace) -> None:
        layer, before = half.layer, norm(half.before)
        check_kind(layer, LinearAttention)
        self.layer, self.f = layer.layer, layer.f
        D, keys, values = len(before.scale), layer.N * layer.f, layer.N * layer.H
        linears = [layer.q_proj, layer.k_proj, layer.v_proj]
        self.project = norm_projection(before, linears, [keys, keys, values], work)
        self.qkv, self.out = self.project.y, work.scratch("found", values)
        self.shapes = (sums_shape(layer.N, layer.f, layer.H),)
        self.attend = work.choose(linear_attention_step)
        self.output = Output(layer.o_proj, self.out, D, half.after, work)

    def __call__(self, token: Token) -> None:
        """Add to the stream what the token finds in the state that took it in."""
        self.project(token.x, token.workers)
        (before,), (after,) = advanced(token, self.layer, self.shapes)
        self.attend(self.qkv, self.f, *token.rope("linear"), before, after, self.out)
        self.output(token)


class StateSpaceState:
    """A selective state space in four calls: norm and projection; convolution; memory and gate; the
    output."""

    kind = "ssm"

    def __init__(self, half: PlainHalf, work: Workspace) -> None:
        layer, before = half.layer, norm(half.before)
        check_kind(layer, SelectiveStateSpace)
        check_kind(layer.conv1d, nn.Conv1d)
        check_kind(layer.dt_proj, BiasInFloat32)
        if layer.x_proj.bias is not None or layer.conv1d.bias is None:
            raise NoKernel("its x_proj has a bias, or its convolution none")
        s, self.layer = layer.sizes, layer.layer
        D, wide = len(before.scale), s.d_inner
        self.project = norm_projection(before, [layer.in_proj], [2 * wide], work)
        self.u, self.gate = self.project.y[:wide], self.project.y[wide:]
        self.w_x = matrix(layer.x_proj, s.dt_rank + 2 * s.d_state, wide)
        self.w_dt = stored(layer.dt_proj.weight, wide, s.dt_rank)
        self.dt_bias = biases(layer.dt_proj)
        self.filters = layer.conv1d.weight.detach().float()[:, 0].numpy().copy()  # [d_inner, W]
        self.filter_bias = layer.conv1d.bias.detach().float().numpy().copy()
        self.A = (-torch.exp(layer.A_log.detach().float())).numpy()
        self.skip = layer.D.detach().float().numpy().copy()
        self.low, self.y = work.scratch("low", len(self.w_x)), work.scratch("found", wide)
        self.shapes = (wide, s.conv_width), (wide, s.d_state)
        self.between = (
            self.filters, self.filter_bias, self.w_x, self.w_dt, self.dt_bias, self.A, self.skip
        )  # fmt: skip
        self.more_matrices = self.w_x, self.w_dt
        self.remember = work.choose(state_space_step)
        self.output = Output(layer.out_proj, self.y, D, half.after, work)

    def __call__(self, token: Token) -> None:
        """Add to the stream what the token finds in the memory that took it in."""
        self.project(token.x, token.workers)
        (inputs, memory), (new_inputs, new_memory) = advanced(token, self.layer, self.shapes)
        convolve(self.u, self.filters, self.filter_bias, inputs, new_inputs)
        self.remember(
            self.u, self.gate, self.w_x, self.w_dt, self.dt_bias, self.A, self.skip, memory,
            new_memory, self.low, self.y,
        )  # fmt: skip
        self.output(token)
