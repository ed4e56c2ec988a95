"""A smaller model from a larger one: layers, query heads with their KV heads, MLP channels, and
numbers of the residual stream are taken out, and every matrix loses the rows and columns that were
theirs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from twophase.kernels.span import whole
from twophase.models.blank import blank
from twophase.models.config import Config
from twophase.models.transformer import Transformer
from twophase.theory.sizes import LayerWidths

NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
# What each axis of a parameter counts; "" is never cut.
AXES: dict[str, tuple[str, ...]] = {
    "embed_tokens.weight": ("", "width"),
    "embed_positions.weight": ("", "width"),
    "lm_head.weight": ("", "width"),
    **{f"{norm}.{part}": ("width",) for norm in ("norm", *NORMS) for part in ("weight", "bias")},
    "self_attn.q_proj.weight": ("heads", "width"),
    "self_attn.q_proj.bias": ("heads",),
    **{f"self_attn.{x}_proj.weight": ("kv_heads", "width") for x in "kv"},
    **{f"self_attn.{x}_proj.bias": ("kv_heads",) for x in "kv"},
    "self_attn.o_proj.weight": ("width", "heads"),
    "self_attn.o_proj.bias": ("width",),
    **{f"self_attn.{x}_norm.weight": ("",) for x in "qk"},
    **{f"mlp.{x}_proj.weight": ("channels", "width") for x in ("gate", "up")},
    **{f"mlp.{x}_proj.bias": ("channels",) for x in ("gate", "up")},
    "mlp.down_proj.weight": ("width", "channels"),
    "mlp.down_proj.bias": ("width",),
}
WITH_HEADS = ("gqa", "sliding")  # mixers whose matrices are cut head by head
PER_HEAD = ("heads", "kv_heads")  # these axes have H numbers for each


@dataclass(frozen=True)
class Kept:
    """What stays of a model, by its old numbers; what is not mentioned stays whole.

    heads: query heads of a layer. A KV head stays if a query head that reads it does, and those
    that stay must be read by equally many.
    """

    layers: Sequence[int] | None = None
    heads: Mapping[int, Sequence[int]] = field(default_factory=dict)  # by layer
    channels: Mapping[int, Sequence[int]] = field(default_factory=dict)  # by layer
    width: Sequence[int] | None = None


def cut(model: Transformer, kept: Kept, copy: bool = True) -> Transformer:
    """A new model of what stays, in the dtype and on the device of the old, with weights of its
    own; without `copy`, whole matrices that stay are those of the old model.

    Raises ValueError for what the model does not have, nothing left of something, KV heads that
    would be read by unequally many, layers that read another's keys and would not find them, and
    parts that are not cut here: experts, latents and states.
    """
    c = model.config
    layers = _some("layers", kept.layers, c.L)
    width = _some("numbers of the stream", kept.width, c.D)
    widths, index = [], {}
    for layer in layers:
        index[layer] = _layer_index(c, layer, kept) | {"width": width}
        F, N, K = (len(index[layer][name]) for name in ("channels", "heads", "kv_heads"))
        widths.append(LayerWidths(F, N, K))
    _check_sources(c, layers, index)
    _check_parts(model, kept, layers)
    smaller = blank(_config(c, layers, len(width), widths))
    weights = {}
    for name, weight in model.state_dict().items():
        number, rest = _place(name)
        if number is None:
            weights[name] = _take(weight, axes(c, None, rest), {"width": width}, c.H, copy)
        elif number in index:
            new = f"layers.{layers.index(number)}.{rest}"
            weights[new] = _take(weight, axes(c, number, rest), index[number], c.H, copy)
    smaller.load_state_dict(weights, assign=True)
    if c.tied:
        smaller.lm_head.weight = smaller.embed_tokens.weight
    return smaller


def axes(c: Config, layer: int | None, name: str) -> tuple[str, ...]:
    """What the axes of a parameter count; nothing if it is of a part that is not cut here."""
    if layer is not None and name.startswith("self_attn.") and c.mixers[layer] not in WITH_HEADS:
        return ()
    return AXES.get(name, ())


def _some(what: str, chosen: Sequence[int] | None, n: int) -> list[int]:
    """The numbers that stay of 0 to n − 1, in their order. ValueError for others, or none."""
    if chosen is None:
        return list(range(n))
    numbers = sorted({whole(f"a number among the {what}", i, 0) for i in chosen})
    if not numbers or numbers[-1] >= n or len(numbers) != len(chosen):
        raise ValueError(
            f"of {n} {what}, numbered from 0, at least one stays, each named once; got"
            f" {list(chosen)}."
        )
    return numbers


def _layer_index(c: Config, layer: int, kept: Kept) -> dict[str, list[int]]:
    """What stays of a layer's heads, KV heads and channels."""
    own = c.at(layer)
    heads = _some(f"query heads of layer {layer}", kept.heads.get(layer), own.N)
    read_by = {h: [n for n in heads if n // own.G == h] for h in range(own.K)}
    kv_heads = [h for h, readers in read_by.items() if readers]
    if len({len(read_by[h]) for h in kv_heads}) > 1:
        counts = ", ".join(f"{h} by {len(read_by[h])}" for h in kv_heads)
        raise ValueError(
            f"the KV heads of layer {layer} would be read by unequally many query heads ({counts}):"
            " keep as many of each group, or none."
        )
    channels = _some(f"channels of layer {layer}", kept.channels.get(layer), own.F)
    return {"heads": heads, "kv_heads": kv_heads, "channels": channels}


def _check_sources(c: Config, layers: list[int], index: dict[int, dict[str, list[int]]]) -> None:
    """ValueError unless every layer that reads another's keys finds the same ones there."""
    for layer in layers:
        source = c.source(layer)
        if source not in index:
            raise ValueError(
                f"layer {source} cannot be left out: layer {layer} reads its keys and values."
            )
        if index[layer]["kv_heads"] != index[source]["kv_heads"]:
            raise ValueError(
                f"layer {layer} reads the KV heads of layer {source}: both must keep the same."
            )


def _check_parts(model: Transformer, kept: Kept, layers: list[int]) -> None:
    """ValueError if something would have to be cut that is not cut here."""
    for name in model.state_dict():
        layer, rest = _place(name)
        if axes(model.config, layer, rest) or (layer is not None and layer not in layers):
            continue
        part = "heads" if rest.startswith("self_attn") else "channels"
        chosen = kept.heads if part == "heads" else kept.channels
        if kept.width is not None or layer in chosen:
            raise ValueError(
                f"layer {layer} has a part that is not cut here ({rest}): layers can be left out of"
                " this model, and heads and channels of its other layers."
            )


def _config(c: Config, layers: list[int], D: int, widths: list[LayerWidths]) -> Config:
    """The config of what stays; `widths` only where layers differ."""
    dense = 0 if c.moe is None else sum(layer < c.moe.n_dense_layers for layer in layers)
    equal = len(set(widths)) == 1 and c.moe is None  # else one F stands for dense layers only
    same = all((w.F, w.N, w.K) == (c.F, c.N, c.K) for w in widths)
    F, N, K = (widths[0].F, widths[0].N, widths[0].K) if equal else (c.F, c.N, c.K)
    return replace(
        c,
        L=len(layers),
        D=D,
        F=F,
        N=N,
        K=K,
        attention=(
            c.attention
            if isinstance(c.attention, str)
            else tuple(c.mixers[layer] for layer in layers)
        ),
        kv_source=(
            None if c.kv_source is None else tuple(layers.index(c.source(x)) for x in layers)
        ),
        widths=None if equal or same else tuple(widths),
        moe=None if c.moe is None else replace(c.moe, n_dense_layers=dense),
    )


def _place(name: str) -> tuple[int | None, str]:
    """The layer of a parameter, None for those of no layer, and its name in there."""
    part, _, rest = name.partition(".")
    if part != "layers":
        return None, name
    layer, _, rest = rest.partition(".")
    return int(layer), rest


def _take(
    weight: torch.Tensor,
    counted: Sequence[str],
    index: Mapping[str, list[int]],
    H: int,
    copy: bool,
) -> torch.Tensor:
    """The rows and columns of a parameter that stay; `counted`: what its axes count."""
    for axis, counts in enumerate(counted):
        if counts:
            numbers = torch.tensor(index[counts], device=weight.device)
            if counts in PER_HEAD:  # head n has the rows n·H to (n + 1)·H
                numbers = (numbers[:, None] * H + torch.arange(H, device=weight.device)).flatten()
            if len(numbers) < weight.shape[axis]:
                weight = weight.index_select(axis, numbers)
    return weight.clone() if copy else weight
