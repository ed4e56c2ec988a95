"""Counts FLOPs and bytes exactly while torch code runs; numpy and Numba kernels report themselves.

    with Meter() as m:
        y = mlp(x)
    m.matmul_flops, m.bytes, m.matmul_intensity

The conventions are in `twophase.measure.formulas`. Works on the meta device too, where a model
needs no memory; attention is taken for the CPU's fused kernel there (`meta_attention`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import kernel_costs, operators, reports  # noqa: F401  registers what torch's operators cost
from .formulas import Formula, lookup, operator_name, tensors
from .meta_attention import fused_attention, is_attention_on_meta
from .regions import Count, Region, plain_traffic
from .tables import Table
from .traffic import Access, Footprint, distinct, storage_ref

Operator = Any  # torch._ops.OpOverload, whose type parameters differ between releases

# They write their target without reading it.
_WRITE_ONLY = {"copy", "fill", "zero", "uniform", "normal", "exponential", "random", "bernoulli"}


class Meter(Count):
    """A context manager that counts every operator run inside it: itself the `Count` of all of
    them.

    Meters may be nested: each counts all it sees. Raises UnknownOperator, naming it, when an
    operator computes and nobody has registered its cost.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_op: dict[str, Count] = {}
        self.by_region: dict[str, Count] = {}
        self._mode = _Mode(self)
        self._regions: list[Region] = []
        self._hidden: dict[int, tuple[Footprint, Region]] = {}

    def __enter__(self) -> Meter:
        self._mode.__enter__()  # type: ignore[no-untyped-call]
        reports.open_meter(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        reports.close_meter(self)
        self._mode.__exit__(*exc)  # type: ignore[no-untyped-call]

    @contextmanager
    def region(self, name: str, fused: bool = False) -> Iterator[Region]:
        """Count a stretch under a name, in `by_region`; `fused` as in `fused`. A region inside a
        fused one belongs to it."""
        if any(region.fused for region in self._regions):
            yield self._regions[-1]
            return
        region = Region(name, fused)
        self._regions.append(region)
        try:
            yield region
        finally:
            if fused:
                read, written = region.traffic()
                self.tally(name, Count(1, 0, 0, read, written))
                self._hidden.update(
                    {storage: (f, region) for storage, f in region.hidden().items()}
                )
            self._regions.pop()
            self.by_region.setdefault(name, Count())
            if not any(outer.name == name for outer in self._regions):
                self.by_region[name].include(region.count)

    def fused(self, name: str) -> Any:
        """A region run as if it were one kernel: only what enters it and what leaves it moves (the
        FlashAttention assumption)."""
        return self.region(name, fused=True)

    def tally(self, name: str, count: Count) -> None:
        """Add the cost of one operator, to the total and to the regions that are open."""
        self.include(count)
        self.by_op.setdefault(name, Count()).include(count)
        for region in self._regions:
            region.count.include(count)

    def _observe(self, func: Operator, formula: Formula, args: Any, kwargs: Any, out: Any) -> None:
        reads, writes = _accesses(func, formula, args, kwargs, out)
        count = Count(calls=1)
        if formula.matmul_flops:
            count.matmul_flops = int(formula.matmul_flops(out, *args, **kwargs))
        if formula.other_flops:
            count.other_flops = int(formula.other_flops(out, *args, **kwargs))
        self._recall(reads)
        region = self._regions[-1] if self._regions and self._regions[-1].fused else None
        if region is None:
            count.bytes_read, count.bytes_written = plain_traffic(reads, writes)
        else:
            for access in reads:
                region.observe_read(access)
            for access in writes:
                region.observe_write(access)
        self.tally(operator_name(func), count)

    def _recall(self, reads: list[Access]) -> None:
        """A tensor thought to have stayed inside a fused region is read after it: so it left, and
        its bytes are added."""
        for access in reads if self._hidden else []:
            footprint, region = self._hidden.pop(storage_ref(access).cdata, (None, None))
            if footprint is not None and region is not None:
                late = Count(bytes_written=footprint.bytes)
                self.include(late)
                self.by_op[region.name].include(late)
                self.by_region[region.name].include(late)

    def _born(self, func: Operator, out: Any) -> None:
        if self._regions and self._regions[-1].fused:
            made = (
                [out] if operator_name(func) == "aten.lift_fresh" else _fresh(func, out)
            )  # a constant from Python
            for tensor in made:
                self._regions[-1].born(tensor)

    def table(self) -> Table:
        """What was counted, one row per operator or fused region, the largest traffic first."""
        rows = sorted(self.by_op.items(), key=lambda item: (-item[1].bytes, -item[1].flops))
        cells = [
            [n, c.calls, c.matmul_flops, c.other_flops, c.bytes_read, c.bytes_written]
            for n, c in rows
            if c.bytes or c.flops
        ]
        cells.append(
            [
                "total",
                self.calls,
                self.matmul_flops,
                self.other_flops,
                self.bytes_read,
                self.bytes_written,
            ]
        )
        columns = [
            "operator",
            "calls",
            "matmul FLOPs",
            "other FLOPs",
            "bytes read",
            "bytes written",
        ]
        return Table(cells, columns, "FLOPs and bytes, counted while it ran")

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator that torch dispatches, and hands it to a meter."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.meter = meter

    def __torch_dispatch__(
        self, func: Operator, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if is_attention_on_meta(func, args):
            with self:
                return fused_attention(*args, **kwargs)
        if _is_composite(
            func
        ):  # under inference_mode linear, reshape and attention arrive whole: look inside
            with self:
                return func.decompose(*args, **kwargs)
        formula = lookup(func)
        out = func(*args, **kwargs)
        self.meter._born(func, out)
        if formula is not None:
            self.meter._observe(func, formula, args, kwargs, out)
        return out


@cache
def _is_composite(func: Operator) -> bool:
    return func.namespace == "aten" and bool(
        torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    )


def _fresh(func: Operator, out: Any) -> list[torch.Tensor]:
    """Results that are not one of the operands."""
    outs = out if isinstance(out, (list, tuple)) else [out]
    returns = func._schema.returns
    if len(returns) != len(outs):  # one list returned, unpacked
        return list(tensors(out)) if returns and returns[0].alias_info is None else []
    return [
        t
        for item, spec in zip(outs, returns, strict=True)
        if spec.alias_info is None
        for t in tensors(item)
    ]


def _accesses(
    func: Operator, formula: Formula, args: Any, kwargs: Any, out: Any
) -> tuple[list[Access], list[Access]]:
    """What an operator reads and what it writes: by its formula, else every operand once and every
    result once."""
    reads: list[Access] = []
    writes: list[Access] = []
    base = operator_name(func).split(".")[1].rstrip("_")
    for position, spec in enumerate(func._schema.arguments):
        value = args[position] if position < len(args) else kwargs.get(spec.name)
        target = spec.alias_info is not None and spec.alias_info.is_write
        found = list(tensors(value))
        if target:
            writes.extend(found)
        if not target or not (base in _WRITE_ONLY or spec.kwarg_only):
            reads.extend(found)
    writes.extend(_fresh(func, out))
    if formula.reads:
        reads = list(formula.reads(out, *args, **kwargs))
    if formula.writes:
        writes = list(formula.writes(out, *args, **kwargs))
    return distinct(reads), distinct(writes)
