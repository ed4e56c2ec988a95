"""What each torch operator costs. `register` adds one; `lookup` finds one.

Conventions, the same in every chapter:

- a multiply-add is 2 FLOPs, and only products of matrices count as `matmul_flops`: they equal the
  theory's formulas exactly;
- everything else is `other_flops`: 1 per output element of an elementwise operator, 1 per input
  element of a reduction, a scan or a search, 5 per element of a softmax (maximum, difference,
  exponential, sum, quotient); moving data is 0;
- masked scores count: a causal mask does not make attention cheaper here;
- bytes: each operand read once, each result written once. An in-place operator reads and writes its
  target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .traffic import Access

FlopRule = Callable[..., int]
AccessRule = Callable[..., list[Access]]


class UnknownOperator(ValueError):
    """A compute operator whose cost nobody has registered."""


@dataclass(frozen=True)
class Formula:
    """The cost of one operator; every rule is called with the result first, then the operator's own
    arguments."""

    matmul_flops: FlopRule | None = None
    other_flops: FlopRule | None = None
    reads: AccessRule | None = None
    writes: AccessRule | None = None


_FORMULAS: dict[str, Formula] = {}


def register(
    *names: str,
    matmul_flops: FlopRule | None = None,
    other_flops: FlopRule | None = None,
    reads: AccessRule | None = None,
    writes: AccessRule | None = None,
) -> None:
    """Say what operators cost, by name without overload: `register("aten.mm", matmul_flops=...)`;
    `aten.add_` shares `aten.add`.

    Rules get `(out, *args, **kwargs)`. The FLOP rules return an int and are 0 if left out. `reads`
    and `writes` return a list of tensors or `Part(tensor, n_bytes)`; left out, every operand is
    read once and every result written once. Raises ValueError for a name that is not
    `namespace.operator`.
    """
    for name in names:
        if name.count(".") != 1:
            raise ValueError(
                f"An operator's name is namespace.operator, such as aten.mm; got {name!r}."
            )
        _FORMULAS[_base(name)] = Formula(matmul_flops, other_flops, reads, writes)


def operator_name(func: torch._ops.OpOverload[Any, Any]) -> str:
    """The operator's name without overload: `aten.add_`."""
    return func._schema.name.replace("::", ".")


def aten(names: str) -> list[str]:
    """Full names of aten operators from a list of words."""
    return [f"aten.{name}" for name in names.split()]


def _base(name: str) -> str:
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def lookup(func: torch._ops.OpOverload[Any, Any]) -> Formula | None:
    """The formula of an operator, None if it is free. Raises UnknownOperator if it computes and
    nobody said at what cost."""
    name = operator_name(func)
    formula = _FORMULAS.get(_base(name))
    if formula is not None:
        return formula
    if (
        func.is_view
        or torch.Tag.inplace_view in func.tags
        or name in _FREE
        or func.namespace in {"profiler", "prim", "prims_view"}
    ):
        return None
    if torch.Tag.pointwise in func.tags or name.startswith("aten._foreach_"):
        return _POINTWISE
    if torch.Tag.reduction in func.tags:
        return _REDUCTION
    raise UnknownOperator(
        f"The meter does not know what {name} costs. Tell it before you measure: from"
        f" twophase.measure import register; register({_base(name)!r}, other_flops=lambda out,"
        " *args, **kwargs: ...)."
    )


def tensors(value: object) -> Iterator[torch.Tensor]:
    """Every tensor in nested lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))


def numel(value: object) -> int:
    return sum(t.numel() for t in tensors(value))


def per_output(out: Any, *args: Any, **kwargs: Any) -> int:
    return numel(out)


def per_input(out: Any, x: Any, *args: Any, **kwargs: Any) -> int:
    return numel(x)


_POINTWISE = Formula(other_flops=per_output)
_REDUCTION = Formula(other_flops=per_input)

# Allocation, bookkeeping and views whose schema does not say that they are views.
_FREE_NAMES = """detach detach_ alias empty empty_like empty_strided new_empty new_empty_strided empty_permuted _unsafe_view
    _reshape_alias lift lift_fresh set_ resize_ resize_as_ is_pinned record_stream is_same_size sym_size sym_stride sym_numel
    sym_storage_offset _assert_async _assert_scalar _assert_tensor_metadata requires_grad_ _version result_type"""
_FREE = frozenset(aten(_FREE_NAMES))
