"""Which experts a model's tokens go to, from outside: hooks of torch, gone at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from twophase.models.mixture_of_experts import MixtureOfExperts
from twophase.models.transformer import Transformer

Choices = dict[int, list[torch.Tensor]]  # layer -> for each pass, int64 [tokens, k]


@contextmanager
def expert_choices(model: Transformer) -> Iterator[Choices]:
    """The experts of every token of every pass, layer by layer, until the block ends. ValueError
    for a model without experts."""
    layers = [i for i, block in enumerate(model.layers) if _experts(block) is not None]
    if not layers:
        raise ValueError("no layer of this model is a mixture of experts.")
    found: Choices = {i: [] for i in layers}

    def note(layer: int, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        found[layer].append(args[1].detach())

    hooks = [
        model.layers[i].get_submodule("mlp.experts").register_forward_pre_hook(partial(note, i))
        for i in layers
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _experts(block: torch.nn.Module) -> MixtureOfExperts | None:
    mlp = block.get_submodule("mlp")
    return mlp if isinstance(mlp, MixtureOfExperts) else None


def load_shares(experts: torch.Tensor, E: int) -> torch.Tensor:
    """For each expert the fraction of tokens that visit it: experts [tokens, k] → float64 [E]. They
    add up to k."""
    return torch.bincount(experts.flatten(), minlength=E).double() / len(experts)


def fullest(shares: torch.Tensor) -> float:
    """How many times its even share the fullest expert gets: 1 to E/k."""
    return float(shares.max() / shares.mean())
