"""How kernels that torch does not see (numpy, Numba, C) get counted: they report themselves, or
they are watched."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

from .regions import Count

P = ParamSpec("P")
R = TypeVar("R")


class Listener(Protocol):
    """Where reports go: an open meter."""

    def tally(self, name: str, count: Count) -> None:
        """Add the cost of one kernel."""


_OPEN: list[Listener] = []
_WATCHED: dict[tuple[str, str], Callable[..., Count]] = {}
_ORIGINALS: dict[tuple[str, str], Any] = {}


def record(
    name: str,
    *,
    flops: int = 0,
    matmul_flops: int | None = None,
    bytes_read: int = 0,
    bytes_written: int = 0,
) -> None:
    """Report a kernel that torch does not see to every open meter; does nothing when there is none.

    `flops` are all its FLOPs; `matmul_flops` those of matrix products, all of them unless said.
    Raises ValueError if a count is negative or there are more matmul FLOPs than FLOPs.
    """
    products = flops if matmul_flops is None else matmul_flops
    if min(flops, products, bytes_read, bytes_written) < 0 or products > flops:
        raise ValueError(
            f"Counts of {name!r} must not be negative, and matmul_flops at most flops ({flops});"
            f" got {products}."
        )
    for meter in _OPEN:
        meter.tally(name, Count(1, products, flops - products, bytes_read, bytes_written))


def counted(name: str, count: Callable[..., Count]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a kernel that torch does not see, so that each call reports `count(*args,
    **kwargs)`.

    Only for a kernel that calls no torch operator: those are counted by themselves.
    """

    def decorate(kernel: Callable[P, R]) -> Callable[P, R]:
        @wraps(kernel)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            result = kernel(*args, **kwargs)
            if _OPEN:
                cost = count(*args, **kwargs)
                other = {"bytes_read": cost.bytes_read, "bytes_written": cost.bytes_written}
                record(name, flops=cost.flops, matmul_flops=cost.matmul_flops, **other)
            return result

        return run

    return decorate


def watch(module: str, function: str, count: Callable[..., Count]) -> None:
    """Count the calls of `module.function` while a meter is open, without a change to that module.

    For compiled functions that their module calls by name, such as Numba kernels: while a meter is
    open the name stands for the counting version. Code that imported the function by its name
    earlier is not seen.
    """
    _WATCHED[(module, function)] = count


def open_meter(meter: Listener) -> None:
    """A meter starts to listen."""
    _OPEN.append(meter)
    for (module, function), count in _WATCHED.items():
        home = sys.modules.get(module)
        if home is not None and (module, function) not in _ORIGINALS:
            original = getattr(home, function)
            _ORIGINALS[(module, function)] = original
            setattr(
                home,
                function,
                counted(f"{module.rsplit('.', 1)[-1]}.{function.lstrip('_')}", count)(original),
            )


def close_meter(meter: Listener) -> None:
    """A meter stops listening; with the last one the watched functions are themselves again."""
    _OPEN[:] = [
        other for other in _OPEN if other is not meter
    ]  # by identity: equal counts are not the same meter
    if not _OPEN:
        for (module, function), original in _ORIGINALS.items():
            setattr(sys.modules[module], function, original)
        _ORIGINALS.clear()
