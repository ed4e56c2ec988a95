"""The same call on the CPU and on a card, compared: what the tests that need a GPU share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import torch

needs_a_card = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CARD = "cuda"
torch.set_float32_matmul_precision("highest")  # torch's default; TF32 would keep 10 bits of 23


def moved(what: Any, device: str = CARD) -> Any:
    """A copy with every tensor in it on the device: in lists, tuples, dicts and dataclasses too."""
    if isinstance(what, torch.Tensor):
        return what.to(device)
    if isinstance(what, dict):
        return {key: moved(value, device) for key, value in what.items()}
    if isinstance(what, tuple) and hasattr(what, "_fields"):
        return type(what)(*(moved(value, device) for value in what))
    if isinstance(what, list | tuple):
        return type(what)(moved(value, device) for value in what)
    if is_dataclass(what) and not isinstance(what, type):
        own = {f.name: moved(getattr(what, f.name), device) for f in fields(what) if f.init}
        return replace(what, **own)
    return what


def leaves(what: Any) -> Iterator[Any]:
    """The tensors and plain values in it, in an order that depends on their places only."""
    if isinstance(what, dict):
        for key in sorted(what):
            yield from leaves(what[key])
    elif isinstance(what, list | tuple):
        for value in what:
            yield from leaves(value)
    elif is_dataclass(what) and not isinstance(what, type):
        for f in fields(what):
            yield from leaves(getattr(what, f.name))
    else:
        yield what


def same_on_a_card(
    function: Callable[..., Any], *arguments: Any, rtol: float = 1e-4, atol: float = 1e-4
) -> None:
    """Tensors go in on the card and come out there, with the numbers, shapes and dtypes that they
    have on the CPU; whatever else comes out is equal. The bounds are for fp32 sums in another
    order: some tens of roundings of 2⁻²⁴ of numbers near 10."""
    expected, found = list(leaves(function(*arguments))), list(leaves(function(*moved(arguments))))
    assert len(found) == len(expected)
    for on_card, on_cpu in zip(found, expected, strict=True):
        if not isinstance(on_cpu, torch.Tensor):
            assert on_card == on_cpu
            continue
        assert on_card.device.type == CARD
        assert on_card.dtype == on_cpu.dtype
        exact = not on_cpu.is_floating_point()
        bounds = {"rtol": 0.0, "atol": 0.0} if exact else {"rtol": rtol, "atol": atol}
        torch.testing.assert_close(on_card.cpu(), on_cpu, equal_nan=True, **bounds)
