"""The two halves of a block, each a few loops: attention, and the MLP.

A half is made once, of what it is in torch, and then called with a token: it adds to the token's
stream. What has no loops here, or was replaced by somebody, raises NoKernel when it is made.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from torch import nn

from twophase.kernels.compiled import parts
from twophase.kernels.compiled.linear import (
    ACTIVATIONS,
    norm_activate,
    norm_project,
    project_add,
    project_norm_add,
)
from twophase.kernels.compiled.loops import Loop
from twophase.kernels.compiled.rope import turn_append
from twophase.kernels.mlp import ACTIVATIONS as TORCH_ACTIVATIONS
from twophase.models.attention import GroupedQueryAttention
from twophase.models.compiled.plain import PlainHalf
from twophase.models.compiled.token import Token
from twophase.models.compiled.weights import (
    NONE,
    NoKernel,
    biases,
    check_kind,
    matrix,
    norm,
    rms_norm,
)
from twophase.models.linear import Linear
from twophase.models.mlp import GatedMLP, PlainMLP


class Half(Protocol):
    """Half a block: it adds to the stream of a token."""

    def __call__(self, token: Token) -> None:
        """Add to `token.x`."""


class Projection:
    """The last product of a half, added to the stream; with `after`, through a norm (Gemma)."""

    def __init__(self, linear: Any, inputs: int, D: int, after: Any, parallel: bool) -> None:
        self.w, self.bias = matrix(linear, D, inputs), biases(linear)
        self.after = None if after is None else norm(after)
        self.add = choose(project_add if after is None else project_norm_add, parallel)
        self.y = np.empty(D, np.float32)

    def __call__(self, h: np.ndarray, x: np.ndarray) -> None:
        """x [D] += W h + bias, or its norm; h: [inputs]."""
        n = self.after
        if n is None:
            self.add(self.w, self.bias, h, x)
        else:
            self.add(self.w, self.bias, h, n.scale, n.shift, n.eps, self.y, x)


class Attention:
    """Grouped-query attention in three calls: norm and projections; RoPE, cache and attention;
    output and residual."""

    def __init__(self, half: PlainHalf, parallel: bool) -> None:
        layer = half.layer
        check_kind(layer, GroupedQueryAttention)
        c = self.config = layer.config
        self.kind, self.source, self.window = layer.kind, layer.source, layer.window
        self.norm = norm(half.before)
        own = [layer.k_proj, layer.v_proj] if layer.has_keys else []
        self.q = matrix(layer.q_proj, c.N * c.H, c.D)
        self.k, self.v = [matrix(linear, c.K * c.H, c.D) for linear in own] or [self.q[:0]] * 2
        self.bias = biases(layer.q_proj, *own)
        self.q_scale, self.k_scale, self.eps = head_norms(layer)
        self.interleaved = c.rope_pairing == "interleaved"
        self.factor = np.float32(c.H**-0.5 if c.score_scale is None else c.score_scale)
        self.cap = float(c.score_cap or 0)
        self.h = np.empty(c.D, np.float32)
        self.qkv = np.empty(len(self.bias), np.float32)
        self.queries = self.qkv[: c.N * c.H].reshape(1, c.N, c.H)
        self.found = np.empty((1, c.N, c.H), np.float32)
        self.project = choose(norm_project, parallel)
        self.attend = parts.attend if parallel else parts.attend_serially
        self.output = Projection(layer.o_proj, c.N * c.H, c.D, half.after, parallel)

    def __call__(self, token: Token) -> None:
        """Add to the stream what the token finds among the tokens before it."""
        n = self.norm
        self.project(
            token.x, n.scale, n.shift, n.eps, self.q, self.k, self.v, self.bias, self.h, self.qkv
        )
        self._find(token)
        self.output(self.found.reshape(-1), token.x)

    def _find(self, token: Token) -> None:
        """RoPE, the new key and value into the cache, and attention over it."""
        c = self.config
        store, keys, values = token.keys_values(self.source, c.K, c.H, self.window)
        scales, (cos, sin) = (self.q_scale, self.k_scale, self.eps), token.rope(self.kind)
        turn_append(
            self.qkv, c.N, *scales, cos, sin, self.interleaved, self.factor, keys, values,
            store.slot(token.span),
        )  # fmt: skip
        tables = token.tables(len(keys), self.window, keys[0].nbytes)
        self.attend(self.queries, keys, values, *tables, self.cap, self.found)


class MLP:
    """A gated or plain MLP in two calls: norm, gate, up and activation; down and residual."""

    def __init__(self, half: PlainHalf, parallel: bool) -> None:
        layer = half.layer
        check_kind(layer, GatedMLP, PlainMLP)
        check_kind(layer.up_proj, Linear, nn.Linear)
        self.norm = norm(half.before)
        F, D = layer.up_proj.out_features, len(self.norm.scale)
        self.up = matrix(layer.up_proj, F, D)
        gates = [layer.gate_proj] if isinstance(layer, GatedMLP) else []
        self.gate = matrix(gates[0], F, D) if gates else self.up[:0]
        self.bias = biases(*gates, layer.up_proj)
        self.activation = activation_number(layer.activation)
        self.h, self.inner = np.empty(D, np.float32), np.empty(F, np.float32)
        self.activate = choose(norm_activate, parallel)
        self.down = Projection(layer.down_proj, F, D, half.after, parallel)

    def __call__(self, token: Token) -> None:
        """Add to the stream what the MLP makes of it."""
        n = self.norm
        self.activate(
            token.x, n.scale, n.shift, n.eps, self.gate, self.up, self.bias, self.activation,
            self.h, self.inner,
        )  # fmt: skip
        self.down(self.inner, token.x)


def head_norms(layer: GroupedQueryAttention) -> tuple[np.ndarray, np.ndarray, np.float32]:
    """The weights [H] of the norms of queries and keys, or none, and their eps. Raises NoKernel
    for two of different eps."""
    H = layer.config.H
    if not layer.config.qk_norm:
        return NONE, NONE, np.float32(0)
    q = rms_norm(layer.q_norm, H)
    if not layer.has_keys:
        return q.scale, NONE, q.eps
    k = rms_norm(layer.k_norm, H)
    if q.eps != k.eps:
        raise NoKernel("the norms of queries and keys differ in eps")
    return q.scale, k.scale, q.eps


def activation_number(activation: Any) -> int:
    """The number by which loops know an activation. Raises NoKernel if they do not."""
    for name, function in TORCH_ACTIVATIONS.items():
        if function is activation:
            return ACTIVATIONS[name]
    raise NoKernel("its activation has no loop")


def choose(loop: Loop, parallel: bool) -> Callable[..., Any]:
    """A loop on all cores, or on one."""
    return loop.parallel if parallel else loop.serial
