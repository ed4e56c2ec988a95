"""How loops are compiled: one text, twice, for one core and for all of them.

A loop over cores costs about a microsecond before it begins (some sixty of them where Numba finds
no OpenMP), so a small model runs on one core.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeVar

import numpy as np
import torch
from numba.core import types
from numba.extending import overload

from twophase.kernels.compiled.compiling import compiled
from twophase.kernels.compiled.numbers import narrow

# Sums may be taken in any order and fused with products, so that loops use whole vectors. NaN and
# inf are respected, and x / 0 is one of them (`error_model`), as in torch.
FLAGS = {"reassoc", "contract", "nsz"}
# What weights and caches may be stored in: bf16 as its bits, since numpy has no such type.
STORED = {torch.float32: np.float32, torch.bfloat16: np.uint16}

_Function = TypeVar("_Function", bound=Callable[..., Any])


def inner(function: _Function) -> _Function:
    """Compile what is a part of loops, and runs on the core that calls it."""
    return compiled(fastmath=FLAGS, error_model="numpy")(function)


@dataclass(frozen=True)
class Loop:
    """A function whose `prange` runs on one core (`serial`) or on all (`parallel`)."""

    serial: Callable[..., Any]
    parallel: Callable[..., Any]

    def on(self, workers: int) -> Callable[..., Any]:
        """The one for so many cores."""
        return self.parallel if workers > 1 else self.serial

    def __call__(self, *arguments: Any) -> Any:
        """In the text of a loop that calls this one, where it stands for the one of the same way.
        TypeError elsewhere: `on` says for how many cores."""
        raise TypeError("a loop is called by another loop, or as `loop.on(workers)`.")


def loop(function: Callable[..., Any]) -> Loop:
    """Compile a function in both ways when each is first called, and keep the machine code on disk.
    It lets go of Python's lock."""
    return Loop(*(_compile(function, parallel) for parallel in (False, True)))


def _compile(function: Callable[..., Any], parallel: bool) -> Callable[..., Any]:
    """One way. It has a name of its own, by which Numba finds it on disk again. A function that
    calls loops calls theirs of this way, and has none of its own."""
    names = function.__globals__
    called = {name for name in function.__code__.co_names if isinstance(names.get(name), Loop)}
    ways = {name: getattr(names[name], "parallel" if parallel else "serial") for name in called}
    twin = FunctionType(function.__code__, names | ways if ways else names, function.__name__)
    twin.__module__, twin.__doc__ = function.__module__, function.__doc__
    twin.__qualname__ = f"{function.__qualname__}_{'parallel' if parallel else 'serial'}"
    options: dict[str, Any] = {"fastmath": FLAGS, "error_model": "numpy", "nogil": True}
    return compiled(parallel=parallel and not called, **options)(twin)


def as_stored(x: np.float32, target: np.ndarray) -> Any:
    """Inside loops: x as `target` stores it, a float32 or the bits of the nearest bf16."""
    return narrow(x) if target.dtype == np.uint16 else x


@overload(as_stored, inline="always")
def _as_stored(x, target):  # type: ignore[no-untyped-def]
    if target.dtype == types.uint16:
        return lambda x, target: narrow(x)
    return (lambda x, target: x) if isinstance(target.dtype, types.Float) else None


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """A CPU tensor as loops see it, without a copy: fp32 as it is, bf16 as its bits, uint16.

    Raises ValueError for another dtype or device, and for what does not lie in memory number after
    number.
    """
    if tensor.dtype not in STORED:
        raise ValueError(f"compiled loops read float32 and bfloat16; got {tensor.dtype}.")
    if tensor.device.type != "cpu":
        raise ValueError(f"compiled loops run on the CPU; got a tensor on {tensor.device}.")
    aligned = tensor.data_ptr() % tensor.element_size() == 0
    if not (tensor.is_contiguous() and aligned):
        raise ValueError("compiled loops read a tensor number after number: call contiguous().")
    bits = tensor.detach()
    return bits.numpy() if bits.dtype == torch.float32 else bits.view(torch.uint16).numpy()
