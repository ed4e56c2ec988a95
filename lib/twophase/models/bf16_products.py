"""Products in bf16 for training, on processors that multiply no bf16.

Training takes matrix products in bf16 (`Recipe.autocast`). A processor with AVX512-BF16, AMX or
Arm's BF16 multiplies such numbers itself. On any other torch takes them one by one: 4 GFLOP/s on a
core of a Zen 3 that has 57 in fp32, and a step of training took eleven times as long. Every bf16 is
an fp32, though, and sums are fp32 either way. So the same product is taken in fp32 here, and what
comes out is rounded to bf16: the same mathematics, in another order of the sum.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

# What autocast runs in bf16 comes down to these, forward and backward, compiled or not.
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")


def multiplies_bf16() -> bool:
    """Whether torch's products of bf16 on the CPU are faster than those of fp32 here."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@contextmanager
def products_in_fp32(needed: bool | None = None) -> Iterator[None]:
    """Have torch take the CPU's products of bf16 in fp32 meanwhile, and round them to bf16, where
    that is `needed` (by default: the processor has no products of bf16). All other products are
    torch's own. Serves as a decorator, too; within another one it changes nothing."""
    if not (not multiplies_bf16() if needed is None else needed) or _installed:
        yield
        return
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Warning only once for all operators")
            for name in PRODUCTS:
                library.impl(name, _returning(f"aten::{name}"), "CPU", with_keyset=True)
                library.impl(f"{name}.out", _filling(f"aten::{name}"), "CPU", with_keyset=True)
        _installed.append(library)
        yield
    finally:
        _installed.clear()
        library._destroy()


_installed: list[Any] = []


def _returning(name: str) -> Callable[..., Any]:
    """An operator that returns its product."""
    own = torch.library.get_kernel(name, "CPU")

    def product(keys: Any, *tensors: torch.Tensor, **factors: Any) -> Any:
        if tensors[-1].dtype != torch.bfloat16:
            return own.call_boxed(keys, *tensors, **factors)
        return own.call_boxed(keys, *(x.float() for x in tensors), **factors).bfloat16()

    return product


def _filling(name: str) -> Callable[..., Any]:
    """The same with the tensor `out` that takes it."""
    own, filling = (torch.library.get_kernel(name + form, "CPU") for form in ("", ".out"))

    def product(keys: Any, *tensors: torch.Tensor, out: torch.Tensor, **factors: Any) -> Any:
        if tensors[-1].dtype != torch.bfloat16:
            return filling.call_boxed(keys, *tensors, **factors, out=out)
        return out.copy_(own.call_boxed(keys, *(x.float() for x in tensors), **factors))

    return product
