"""The numbers of a layer as compiled loops read them; and which layers they may be taken from.

Matrices are read where they lie, in the model or in a copy of half its size (`narrowed`). What is
small (norms, biases) is copied, in fp32.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.modules import module as of_all
from torch.utils.hooks import RemovableHandle

from twophase.kernels.compiled.loops import as_numpy
from twophase.models.linear import Linear
from twophase.models.norm import LayerNorm, RMSNorm

NONE = np.zeros(0, np.float32)
_PLACE = torch.Tensor.data_ptr  # of the class: a step asks it of every tensor


class Version:
    """Of the numbers that loops have copies of, or know the place of: whether the model still has
    the same, in the same modules; and whether anybody listens to it who did not when loops were
    made. It does not see what is written past torch (`.data[:] = …`, numpy), changes of numbers
    that were made in inference mode, which torch does not count, and attributes that are neither.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.hooks = model, hooks_of(model)
        everything = ((m._modules, m._parameters, m._buffers) for m in model.modules())
        self.places: list[dict[str, Any]] = [held for m in everything for held in m if held]
        self.parts = [dict(held) for held in self.places]
        # dictionaries are equal in any order, and layers run in theirs
        self.orders = [
            (m._modules, [*m._modules])
            for m in model.modules() if isinstance(m, nn.ModuleList | nn.Sequential)
        ]  # fmt: skip
        # tensors of one number can equal others; of no others is that asked: see `_same_parts`
        self.lone = [
            (held, name, part) for held in self.places for name, part in held.items()
            if isinstance(part, torch.Tensor) and part.numel() == 1
        ]  # fmt: skip
        self.handles = RemovableHandle.next_id  # grows with every hook that is put anywhere
        tensors = [*model.parameters(), *model.buffers()]
        # `.to` of a part of the model puts other memory into its parameters. That the old memory
        # is kept here lets none of the new one lie at its address.
        self.moving, self.kept = tensors, [tensor.detach() for tensor in tensors]
        parameters = [
            p for name, p in model.named_parameters()
            if not p.is_inference() and (p.ndim == 1 or name.endswith(("A_log", "conv1d.weight")))
        ]  # fmt: skip
        codes = [b for b in model.buffers() if not b.is_inference()]  # and scales
        self.copied: list[torch.Tensor] = [*parameters, *codes]
        self.now = self._read()

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        """From now on others, too, that are being copied."""
        self.check()
        known = {id(tensor) for tensor in self.copied}
        self.copied += [t for t in tensors if not t.is_inference() and id(t) not in known]
        self.now = self._read()

    def _same_parts(self) -> bool:
        """Whether all modules, parameters and buffers are the very same. (Dictionaries are compared
        in a third of the time of their parts one by one: they first look whether these are the same
        objects. Of two others that are tensors torch refuses to say it in one word.)"""
        try:
            same = self.places == self.parts
        except RuntimeError:
            return False
        same = same and all([*held] == names for held, names in self.orders)
        return same and all(held[name] is part for held, name, part in self.lone)

    def _read(self) -> list[int]:
        return [*map(_PLACE, self.moving), *[t._version for t in self.copied]]

    def check(self) -> None:
        """ValueError if it has not."""
        if not self._same_parts() or self._read() != self.now:
            raise ValueError(
                "the model was changed after its loops were made (load_state_dict, .to, training,"
                " another layer): make another CompiledTransformer of it."
            )
        if RemovableHandle.next_id != self.handles:
            if hooks_of(self.model) - self.hooks:
                raise ValueError(
                    "the model got a hook after its loops were made, which do not call it: make"
                    " another CompiledTransformer of it."
                )
            self.handles = RemovableHandle.next_id


def hooks_of(model: nn.Module) -> set[tuple[int, int]]:
    """The hooks around the forward passes of all modules: which module, and which of its hooks;
    and those that torch calls around every module there is, of module 0."""
    everywhere = (*of_all._global_forward_hooks, *of_all._global_forward_pre_hooks)
    return {(0, number) for number in everywhere} | {
        (id(module), number)
        for module in model.modules()
        for number in (*module._forward_hooks, *module._forward_pre_hooks)
    }


class NoKernel(Exception):
    """Why a part of the model runs in plain torch."""


class Norm(NamedTuple):
    """RMSNorm's weight, or LayerNorm's with its bias: fp32 [width]; `shift` is empty without."""

    scale: np.ndarray
    shift: np.ndarray
    eps: np.float32


def norm(module: Any) -> Norm:
    """The numbers of a norm. Raises NoKernel for another kind of module."""
    check_kind(module, RMSNorm, LayerNorm)
    weight, shift = module.weight.detach().float(), NONE
    if isinstance(module, RMSNorm):
        weight = weight + module.offset
    else:
        shift = module.bias.detach().float().numpy().copy()
    return Norm(weight.numpy().copy(), shift, np.float32(module.eps))


def rms_norm(module: Any, width: int) -> Norm:
    """The numbers of an RMSNorm of so many. Raises NoKernel for another kind or width."""
    check_kind(module, RMSNorm)
    if module.weight.shape != (width,):
        raise NoKernel(f"a norm has {list(module.weight.shape)} weights, not {width}")
    return norm(module)


def matrix(module: Any, outputs: int, inputs: int) -> np.ndarray:
    """The weight [outputs, inputs] of a linear layer. Raises NoKernel for another kind of layer
    (quantized, say), for another shape, and for numbers that loops do not read."""
    check_kind(module, Linear, nn.Linear)
    return stored(module.weight, outputs, inputs)


def stored(weight: torch.Tensor, *shape: int) -> np.ndarray:
    """A tensor of weights as loops see it. Raises NoKernel as `matrix` does."""
    if type(weight) not in (torch.Tensor, nn.Parameter):
        raise NoKernel(f"a weight is a {type(weight).__name__}")
    if tuple(weight.shape) != shape:
        raise NoKernel(f"a weight is {list(weight.shape)}, not {list(shape)}")
    try:
        return as_numpy(weight)
    except ValueError as reason:
        raise NoKernel(str(reason).rstrip(".")) from None


def biases(*modules: Any) -> np.ndarray:
    """The biases of linear layers one behind the other, zeros where there are none."""
    if all(m.bias is None for m in modules):
        return zeros(sum(m.out_features for m in modules))
    parts = [
        zeros(m.out_features) if m.bias is None else m.bias.detach().float().numpy()
        for m in modules
    ]
    return np.concatenate(parts)


@cache
def zeros(n: int) -> np.ndarray:
    """So many zeros, fp32, the same for all that read them: then they stay in the caches."""
    return np.zeros(n, np.float32)


def check_kind(module: Any, *kinds: type[nn.Module]) -> None:
    """Raises NoKernel unless a module is of one of these very classes, and nobody listens to it."""
    if type(module) not in kinds:
        raise NoKernel(f"a {type(module).__name__} stands in the place of a {kinds[0].__name__}")
    if module._forward_hooks or module._forward_pre_hooks:
        raise NoKernel(f"a {type(module).__name__} has hooks")
    if "forward" in vars(module):
        raise NoKernel(f"a {type(module).__name__} has another forward put in")
