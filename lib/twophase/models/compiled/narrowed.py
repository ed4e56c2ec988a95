"""Weights in fp32 that are bf16 all along: half the bytes for the very same numbers.

A checkpoint keeps bf16. Loaded in fp32, each of its numbers has sixteen zeros behind it, and loops
would read those, too. They widen what they read of bf16, and all else that they compute is in fp32:
so from a copy in bf16 they get what they get from the weights themselves.
"""

import copy
from itertools import chain

import torch

from twophase.models.transformer import Transformer

LOW_BITS = 0xFFFF  # of a float32: those that a bf16 does not have


def narrowed(model: Transformer) -> Transformer | None:
    """A copy in bf16 of a model in fp32, all of whose numbers are the same in it; None where there
    is no such copy."""
    numbers = [*chain(model.parameters(), model.buffers())]
    if all(type(n) is torch.nn.Parameter and _is_bf16(n) for n in numbers):
        return copy.deepcopy(model).bfloat16()
    return None


def _is_bf16(numbers: torch.Tensor) -> bool:
    """Whether fp32 numbers are what is left of them in bf16."""
    if numbers.dtype != torch.float32 or not numbers.is_contiguous():
        return False
    return not (numbers.detach().view(torch.int32) & LOW_BITS).any()
