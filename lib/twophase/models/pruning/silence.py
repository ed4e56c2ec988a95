"""Parts of a model silenced while it runs, as if they had been cut: through hooks, all gone at the
end."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from twophase.kernels.span import whole
from twophase.models.transformer import Transformer

# the linear layer whose inputs a unit's numbers are, and how many of them belong to one unit
SEAMS = {"heads": "self_attn.o_proj", "channels": "mlp.down_proj"}


def per_unit(model: Transformer, unit: str) -> int:
    """Numbers that one unit hands to its seam: H for a head, 1 for a channel."""
    return model.config.H if unit == "heads" else 1


@contextmanager
def silenced(
    model: Transformer,
    *,
    layers: Sequence[int] = (),
    heads: Mapping[int, Sequence[int]] | None = None,
    channels: Mapping[int, Sequence[int]] | None = None,
) -> Iterator[Transformer]:
    """The model without what these layers, heads and channels add, until the block ends.

    Heads and channels have zeros where they meet their output matrix; a layer hands on what it was
    given. Exactly what `cut` leaves, at the old price. ValueError for parts that there are not.
    """
    for layer in {*layers, *(heads or {}), *(channels or {})}:
        _check_number("layers", layer, model.config.L)
    for unit, own in (("heads", heads or {}), ("channels", channels or {})):
        for layer, numbers in own.items():
            widths = model.config.at(layer)
            for n in numbers:
                _check_number(
                    f"{unit} in layer {layer}", n, widths.N if unit == "heads" else widths.F
                )
    hooks = [
        model.layers[layer].register_forward_hook(lambda module, args, out: args[0])
        for layer in layers
    ]
    for unit, chosen in (("heads", heads or {}), ("channels", channels or {})):
        size = per_unit(model, unit)
        for layer, numbers in chosen.items():
            seam = model.layers[layer].get_submodule(SEAMS[unit])
            rows = [n * size + i for n in numbers for i in range(size)]
            hooks.append(seam.register_forward_pre_hook(partial(_zero, rows)))
    try:
        yield model
    finally:
        for hook in hooks:
            hook.remove()


def _check_number(what: str, number: object, n: int) -> None:
    if whole(f"a number of one of the {what}", number, 0) >= n:
        raise ValueError(f"there are {n} {what}, counted from 0, and none with number {number}.")


def _zero(rows: Sequence[int], module: Any, args: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
    x = args[0].clone()  # [B, T, inputs]
    x[..., rows] = 0
    return (x,)
