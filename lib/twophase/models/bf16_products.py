"""Products in bf16 for training, on processors that multiply no bf16.

Training takes matrix products in bf16 (`Recipe.autocast`). A processor with AVX512-BF16, AMX or
Arm's BF16 multiplies such numbers itself. On others torch takes them one by one, or widens them on
its way: 4 GFLOP/s on a core of a Zen 3 that has 57 in fp32, and a step of training took eleven
times as long. Every bf16 is an fp32, though, and sums are fp32 either way. So the same product is
taken in fp32 here, of copies, and what comes out is rounded to bf16: the same mathematics, in
another order of the sum.
"""

import platform
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import torch

from twophase.kernels.compiled.lanes import features

# What autocast runs in bf16 in these models comes down to them, forward and backward, compiled or
# not. (torch has more: `addbmm`, and products that are added in place.)
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")


@cache
def multiplies_bf16() -> bool:
    """Whether torch multiplies bf16 on the CPU with instructions for it: oneDNN is there and says
    so, and an x86 has AVX512-BF16 or AMX (with AVX-512 alone oneDNN widens, slower than fp32)."""
    known = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)  # not in every torch
    if known is None or not known():
        return False
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    return not x86 or not {"+avx512bf16", "+amx-bf16"}.isdisjoint(features())


class _Override:
    """The operators that stand in torch's place, while anybody needs them."""

    def __init__(self) -> None:
        self.lock, self.users, self.library = Lock(), 0, None

    def begin(self) -> None:
        with self.lock:
            self.users += 1
            if self.users == 1:
                self.library = _installed()

    def end(self) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                self.library._destroy()  # type: ignore[attr-defined]
                self.library = None


_override = _Override()


@contextmanager
def products_in_fp32(needed: bool | None = None) -> Iterator[None]:
    """Have torch take the CPU's products of bf16 in fp32 meanwhile, and round them to bf16, where
    that is `needed` (by default: the processor has no products of bf16). All other products are
    torch's own. It serves as a decorator, too.

    It holds for the whole process, until the last who is inside leaves. Other threads must not
    multiply in torch while the first enters or the last leaves: torch changes its operators then.
    """
    if needed is None:
        needed = not multiplies_bf16()
    if not needed:
        yield
        return
    _override.begin()
    try:
        yield
    finally:
        _override.end()


def _installed() -> Any:
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning only once for all operators")
        for name in PRODUCTS:
            library.impl(name, _returning(f"aten::{name}"), "CPU", with_keyset=True)
            library.impl(f"{name}.out", _filling(f"aten::{name}"), "CPU", with_keyset=True)
    return library


def _returning(name: str) -> Callable[..., Any]:
    """An operator that returns its product."""
    own = torch.library.get_kernel(name, "CPU")

    def product(keys: Any, *tensors: torch.Tensor, **factors: Any) -> Any:
        if not _all_bf16(tensors):
            return own.call_boxed(keys, *tensors, **factors)
        return own.call_boxed(keys, *(x.float() for x in tensors), **factors).bfloat16()

    return product


def _filling(name: str) -> Callable[..., Any]:
    """The same with the tensor `out` that takes it. One that does not fit is torch's own matter."""
    own, filling = (torch.library.get_kernel(name + form, "CPU") for form in ("", ".out"))

    def product(keys: Any, *tensors: torch.Tensor, out: torch.Tensor, **factors: Any) -> Any:
        if _all_bf16((*tensors, out)):
            made = own.call_boxed(keys, *(x.float() for x in tensors), **factors)
            if made.shape == out.shape:
                return out.copy_(made)
        return filling.call_boxed(keys, *tensors, **factors, out=out)

    return product


def _all_bf16(tensors: tuple[torch.Tensor, ...]) -> bool:
    return all(x.dtype == torch.bfloat16 for x in tensors)
