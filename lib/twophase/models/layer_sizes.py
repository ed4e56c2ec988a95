"""The sizes that only some kinds of layers have, a record for each, and what a state costs."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypedDict

from twophase.kernels.span import whole
from twophase.theory.beyond_attention import (
    linear_attention_flops,
    linear_attention_params,
    state_space_flops,
    state_space_params,
    taylor_features,
)
from twophase.theory.kv_cache import linear_attention_bytes, state_space_bytes
from twophase.theory.sizes import LayerWidths


def layer_widths(plain: Iterable[Any]) -> tuple[LayerWidths, ...]:
    """The widths of each layer, from records or from dicts. ValueError for anything else."""
    try:
        widths = tuple(w if isinstance(w, LayerWidths) else LayerWidths(**w) for w in plain)
    except TypeError:
        raise ValueError(f"`widths` has F, N and K for each layer; got {plain!r}.") from None
    for layer in widths:
        for name, n in vars(layer).items():
            whole(f"{name} of a layer's widths", n, 1)
    return widths


@dataclass(frozen=True)
class LinearAttention:
    """Linear attention with BASED's Taylor features: queries and keys of `feature_dim` numbers per
    head."""

    feature_dim: int = 16

    def __post_init__(self) -> None:
        if self.feature_dim < 2 or self.feature_dim % 2:
            raise ValueError(
                "RoPE turns pairs of numbers, so feature_dim must be even; it is"
                f" {self.feature_dim}."
            )


@dataclass(frozen=True)
class StateSpace:
    """Mamba's sizes: `d_inner` channels with `d_state` numbers of memory each, a convolution over
    `conv_width` inputs."""

    d_inner: int
    d_state: int = 16
    conv_width: int = 4
    dt_rank: int = 8


@dataclass(frozen=True)
class Routing:
    """How a mixture of experts picks its k of E, and with what weights.

    `score`: "softmax" (Mixtral, Qwen, DeepSeek-V2) or "sigmoid" (DeepSeek-V3) of the router's
    logits. `normalize`: the k weights are divided by their sum. `scale`: what they are multiplied
    with. `groups`, `groups_kept`: experts come in groups and a token may visit the best few only; a
    group is as good as the sum of its `group_top` best experts.
    """

    score: str = "softmax"
    normalize: bool = True
    scale: float = 1.0
    groups: int = 1
    groups_kept: int = 1
    group_top: int = 1

    def __post_init__(self) -> None:
        if self.score not in ("softmax", "sigmoid"):
            raise ValueError(f'a router scores by "softmax" or "sigmoid"; got "{self.score}".')
        if min(self.groups, self.group_top) < 1:
            raise ValueError(
                f"`groups` and `group_top` start at 1; got {self.groups} and {self.group_top}."
            )
        if not 1 <= self.groups_kept <= self.groups:
            raise ValueError(
                f"a router keeps between 1 and {self.groups} groups; got {self.groups_kept}."
            )


class StateCosts(TypedDict):
    """What a layer with a state costs, by the names that an Architecture has for it."""

    state_values: int  # numbers kept per sequence
    state_params: int  # parameters of its mixer, inner norms included
    state_flops: int  # FLOPs of a token's step, besides its projections


def state_costs(layer: LinearAttention | StateSpace | None, D: int, N: int, H: int) -> StateCosts:
    """What such a layer costs in a model of width D with N heads of width H; none costs nothing."""
    if isinstance(layer, StateSpace):
        wide, deep, conv = layer.d_inner, layer.d_state, layer.conv_width
        values = state_space_bytes(1, wide, deep, conv, 1)  # at one byte each: numbers
        params = state_space_params(D, wide, deep, conv, layer.dt_rank)
        flops = state_space_flops(wide, deep, conv)
    elif isinstance(layer, LinearAttention):
        features = int(taylor_features(layer.feature_dim))
        values = linear_attention_bytes(1, N, features, H, 1)
        params = linear_attention_params(D, N, H, layer.feature_dim)
        flops = linear_attention_flops(N, features, H)
    else:
        return StateCosts(state_values=0, state_params=0, state_flops=0)
    return StateCosts(state_values=int(values), state_params=int(params), state_flops=int(flops))
