"""Scales of inputs, put into what comes before: which layer may be divided so that another's inputs
are.

A norm's weight, the value heads before an output matrix, the `up` of a gated MLP before `down`:
each multiplies, channel by channel, what the next layers read. Nothing else may: an activation
function between them (a plain MLP) does not let a scale through, and values that are shared by
several query heads, or read by later layers, have other readers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from twophase.models.attention import GroupedQueryAttention
from twophase.models.mlp import GatedMLP, PlainMLP
from twophase.models.norm import RMSNorm
from twophase.models.transformer import Transformer


@dataclass(frozen=True)
class Fold:
    """Linear layers that read the same inputs, by name, and what divides these inputs by scales."""

    readers: tuple[str, ...]
    divide: Callable[[torch.Tensor], None]


def folds(model: Transformer) -> Iterator[Fold]:
    """All places of a model where scales of inputs can be put into what comes before."""
    for i, block in enumerate(model.layers):
        b: Any = block
        attention, mlp = b.self_attn, b.mlp
        before_mlp = b.pre_feedforward_layernorm if b.four_norms else b.post_attention_layernorm
        at = f"layers.{i}"
        if type(attention) is GroupedQueryAttention:
            own = ("k_proj", "v_proj") if attention.has_keys else ()
            readers = tuple(f"{at}.self_attn.{name}" for name in ("q_proj", *own))
            yield Fold(readers, _divide_norm(b.input_layernorm))
            c = attention.config
            if attention.has_keys and not attention.is_read_later and c.N == c.K:
                yield Fold((f"{at}.self_attn.o_proj",), _divide_rows(attention.v_proj))
        if type(mlp) in (GatedMLP, PlainMLP):
            gated = type(mlp) is GatedMLP
            first = (f"{at}.mlp.gate_proj",) if gated else ()
            yield Fold((*first, f"{at}.mlp.up_proj"), _divide_norm(before_mlp))
            if gated:
                yield Fold((f"{at}.mlp.down_proj",), _divide_rows(mlp.up_proj))


def _divide_norm(norm: Any) -> Callable[[torch.Tensor], None]:
    @torch.no_grad()
    def divide(scales: torch.Tensor) -> None:
        if isinstance(norm, RMSNorm):
            norm.weight.copy_((norm.weight.float() + norm.offset) / scales - norm.offset)
        else:
            norm.weight.div_(scales)
            norm.bias.div_(scales)

    return divide


def _divide_rows(linear: Any) -> Callable[[torch.Tensor], None]:
    @torch.no_grad()
    def divide(scales: torch.Tensor) -> None:
        linear.weight.div_(scales[:, None])
        if linear.bias is not None:
            linear.bias.div_(scales)

    return divide


@torch.no_grad()
def scale_inputs(model: Transformer, fold: Fold, scales: torch.Tensor) -> None:
    """Multiply the readers' weights by scales [I] of their inputs, and divide what comes before:
    the model computes what it computed."""
    layers = dict(model.named_modules())
    for name in fold.readers:
        layers[name].weight.mul_(scales)
    fold.divide(scales)
