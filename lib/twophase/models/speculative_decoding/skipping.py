"""A draft that costs no training and no memory: the target itself, with some layers left out."""

from collections.abc import Collection
from dataclasses import replace

from twophase.models.blank import blank
from twophase.models.config import Config
from twophase.models.transformer import Transformer


def without_layers(model: Transformer, left_out: Collection[int]) -> Transformer:
    """The model without these layers, numbered from 0. Weights are the model's own, not copies;
    caches are its own (Zhang et al. 2024, arXiv 2309.08168).

    Raises ValueError for a layer that there is not, none left, or one left out whose keys another
    reads.
    """
    c = model.config
    if unknown := sorted(set(left_out) - set(range(c.L))):
        raise ValueError(f"the model has layers 0 to {c.L - 1}; there is no {unknown[0]}.")
    kept = [layer for layer in range(c.L) if layer not in left_out]
    if not kept:
        raise ValueError("at least one layer must stay.")
    smaller = _config(c, kept)
    draft = blank(smaller)
    number = {old: new for new, old in enumerate(kept)}
    weights = {}
    for name, weight in model.state_dict().items():
        part, _, rest = name.partition(".")
        if part == "layers":
            layer, _, rest = rest.partition(".")
            if int(layer) not in number:
                continue
            name = f"layers.{number[int(layer)]}.{rest}"
        weights[name] = weight
    draft.load_state_dict(weights, assign=True)
    if c.tied:
        draft.lm_head.weight = draft.embed_tokens.weight
    return draft.train(model.training)


def _config(c: Config, kept: list[int]) -> Config:
    """The config of the layers that stay."""
    sources = [c.source(layer) for layer in kept]
    if lost := [source for source in sources if source not in kept]:
        raise ValueError(
            f"layer {lost[0]} cannot be left out: a layer that stays reads its keys and values."
        )
    dense = 0 if c.moe is None else sum(layer < c.moe.n_dense_layers for layer in kept)
    return replace(
        c,
        L=len(kept),
        attention=tuple(c.mixers[layer] for layer in kept),
        kv_source=None if c.kv_source is None else tuple(kept.index(s) for s in sources),
        widths=None if c.widths is None else tuple(c.widths[layer] for layer in kept),
        moe=None if c.moe is None else replace(c.moe, n_dense_layers=dense),
    )
