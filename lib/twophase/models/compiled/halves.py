"""The two halves of a block, each a few loops: attention, and the MLP.

A half is made once, of what it is in torch, and then called with a token: it adds to the token's
stream. What has no loops here, or was replaced by somebody, raises NoKernel when it is made.
"""

from typing import Any, Protocol

import numpy as np
from torch import nn

from twophase.kernels.compiled import parts
from twophase.kernels.compiled.linear import ACTIVATIONS
from twophase.kernels.mlp import ACTIVATIONS as TORCH_ACTIVATIONS
from twophase.models.attention import GroupedQueryAttention
from twophase.models.compiled.plain import PlainHalf
from twophase.models.compiled.products import Activation, Output, norm_projection
from twophase.models.compiled.token import Token, Workspace
from twophase.models.compiled.weights import NONE, NoKernel, check_kind, norm, rms_norm
from twophase.models.linear import Linear
from twophase.models.mlp import GatedMLP, PlainMLP
from twophase.models.quantize.linear import NamedLinear, QuantizedLinear


class Half(Protocol):
    """Half a block: it adds to the stream of a token."""

    def __call__(self, token: Token) -> None:
        """Add to `token.x`."""


class Attention:
    """Grouped-query attention in three calls: norm and projections; RoPE, cache and attention;
    output and residual."""

    def __init__(self, half: PlainHalf, work: Workspace) -> None:
        layer = half.layer
        check_kind(layer, GroupedQueryAttention)
        c = layer.config
        self.kind, self.store = layer.kind, (layer.source, c.K, c.H, layer.window)
        self.has_keys = layer.has_keys  # of its own; else it reads those of `layer.source`
        own = [layer.k_proj, layer.v_proj] if self.has_keys else []
        outputs = [c.N * c.H, *[c.K * c.H] * len(own)]
        self.project = norm_projection(norm(half.before), [layer.q_proj, *own], outputs, work)
        qkv, scale = self.project.y, c.H**-0.5 if c.score_scale is None else c.score_scale
        interleaved = c.rope_pairing == "interleaved"
        self.given = (qkv, c.N, *head_norms(layer), interleaved, np.float32(scale))
        self.found = work.scratch("found", 1, c.N, c.H)
        self.cap, self.attend = float(c.score_cap or 0), work.choose(parts.turn_append_attend)
        self.output = Output(layer.o_proj, self.found, c.D, half.after, work)

    def __call__(self, token: Token) -> None:
        """Add to the stream what the token finds among the tokens before it."""
        self.project(token.x, token.workers)
        cache = token.keys_values(self.store)  # keys, values, slot, tables
        self.attend(*self.given, *token.rope(self.kind), *cache, self.cap, self.found)
        self.output(token)


class MLP:
    """A gated or plain MLP in two calls: norm, gate, up and activation; down and residual."""

    def __init__(self, half: PlainHalf, work: Workspace) -> None:
        layer, before = half.layer, norm(half.before)
        check_kind(layer, GatedMLP, PlainMLP)
        check_kind(layer.up_proj, Linear, nn.Linear, QuantizedLinear, NamedLinear)
        F, D = layer.up_proj.out_features, len(before.scale)
        gate = layer.gate_proj if isinstance(layer, GatedMLP) else None
        between, activation = work.scratch("between", F), activation_number(layer.activation)
        self.activate = Activation(before, gate, layer.up_proj, activation, between, work)
        self.down = Output(layer.down_proj, between, D, half.after, work)

    def __call__(self, token: Token) -> None:
        """Add to the stream what the MLP makes of it."""
        self.activate(token.x, token.workers)
        self.down(token)


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
