"""Where linear layers are made, found and replaced.

Every matrix of the model that multiplies tokens is a module that its layer calls: nothing reaches
for its weight. So a layer of another kind (quantized, low-rank, one part of a larger matrix) takes
its place by name, and no kernel knows of it:

    replace_linears(model, lambda name, linear: Quantized(linear) if ".mlp." in name else None)

Two kinds stay out of it, since they are more than a product: a router, which computes in fp32, and
the stacked matrices of experts (`Experts.run`).
"""

from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional

Replace = Callable[[str, nn.Linear], nn.Module | None]


class Linear(nn.Linear):
    """A layer x ↦ x Wᵀ + b, mostly without b: [..., inputs] → [..., outputs]."""

    def __init__(self, inputs: int, outputs: int, bias: bool = False) -> None:
        super().__init__(inputs, outputs, bias=bias)


class BiasInFloat32(nn.Linear):
    """A layer whose bias is added in fp32, and whose output is fp32, whatever the product is in."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: [..., inputs] → fp32 [..., outputs]."""
        return functional.linear(x, self.weight).float() + self.bias.float()


def linears(model: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """The linear layers of a model, each with its name, as checkpoints call it."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            yield name, module


def replace_linears(model: nn.Module, replace: Replace) -> list[str]:
    """Put `replace(name, linear)` in the place of each linear layer, where it is not None; return
    the names of those replaced.

    A tied output layer is one of them, and is no longer tied if what replaces it has a weight of
    its own. Raises ValueError if nothing at all was replaced: a name was misspelled.
    """
    replaced = []
    for name, linear in list(linears(model)):
        other = replace(name, linear)
        if other is not None:
            model.set_submodule(name, other)
            replaced.append(name)
    if not replaced:
        raise ValueError(
            "no linear layer was replaced: `replace` returned None for all of "
            f"{', '.join(name for name, _ in linears(model)) or 'the model, which has none'}."
        )
    return replaced
