"""The printed code of quantization-snippet, its three faults, and what a valid input is."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from twophase.checks.kv_cache._data import normal

Tensor = torch.Tensor
MOST_ROWS, MOST_INPUTS, LARGEST = 8, 16, 100.0


def printed(weight: Tensor, group_size: int = 128, bits: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """As the source has it, and the notebook prints it."""
    # Reshape to groups
    weight = weight.reshape(-1, group_size)
    # Per-group statistics
    scales = weight.abs().max(dim=1, keepdim=True)[0] / (2 ** (bits - 1) - 1)
    zeros = weight.min(dim=1, keepdim=True)[0]
    # Quantize
    weight_int = torch.round((weight - zeros) / scales).to(torch.int8)
    return weight_int, scales, zeros


def errors(weight: Tensor, group_size: int, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """What the printed code's numbers are off by [groups, group_size], its scales, and its groups'
    ranges [groups, 1]."""
    codes, scales, zeros = printed(weight, group_size, bits)
    groups = weight.reshape(-1, group_size)
    spans = groups.amax(1, keepdim=True) - groups.amin(1, keepdim=True)
    return (codes.float() * scales + zeros - groups).abs(), scales, spans


def wraps(weight: Tensor, group_size: int, bits: int) -> bool:
    """Whether some number comes back off by more than a step: its code went past 127."""
    off, scales, _ = errors(weight, group_size, bits)
    return bool((off > 1.01 * scales).any())


def mixes(weight: Tensor, group_size: int, bits: int) -> bool:
    """Whether a group holds numbers of two rows."""
    return weight.shape[1] % group_size != 0


def wastes(weight: Tensor, group_size: int, bits: int) -> bool:
    """Whether, without the other two, some number is off by more than half a step of the grid
    that the group's range and bits allow."""
    if mixes(weight, group_size, bits) or wraps(weight, group_size, bits):
        return False
    off, _, spans = errors(weight, group_size, bits)
    return bool((off > 1.05 * spans / (2**bits - 1) / 2 + 1e-6).any())


FAULTS: dict[str, Callable[[Tensor, int, int], bool]] = {
    "codes go past 127": wraps,
    "a group holds numbers of two rows": mixes,
    "levels lie unused": wastes,
}


def problem(inputs: Any) -> str:
    """Why these are no valid inputs, in one sentence; empty if they are."""
    if not isinstance(inputs, list | tuple) or not 1 <= len(inputs) <= 10:
        return "expose() must return a list of 1 to 10 inputs"
    for one in inputs:
        if not isinstance(one, dict) or set(one) != {"weight", "group_size", "bits"}:
            return "an input is a dict with the keys weight, group_size and bits"
        rows, group, bits = one["weight"], one["group_size"], one["bits"]
        if not _is_matrix(rows):
            return (
                f"weight is 1 to {MOST_ROWS} equally long rows of 1 to {MOST_INPUTS} numbers from"
                " −100 to 100"
            )
        if type(bits) is not int or not 2 <= bits <= 8:
            return "bits must be a whole number from 2 to 8"
        n = len(rows) * len(rows[0])
        if type(group) is not int or not 1 <= group <= n or n % group:
            return "group_size must divide the number of weights: else the printed code stops"
        if not bool(tensor(one)[0].reshape(-1, group).any(1).all()):
            return "a group of zeros divides by 0, and what comes out differs between machines"
    return ""


def _is_matrix(rows: Any) -> bool:
    return (
        isinstance(rows, list | tuple)
        and 1 <= len(rows) <= MOST_ROWS
        and all(isinstance(row, list | tuple) and 1 <= len(row) <= MOST_INPUTS for row in rows)
        and len({len(row) for row in rows}) == 1
        and all(type(x) in (int, float) and abs(x) <= LARGEST for row in rows for x in row)
    )


def tensor(one: dict[str, Any]) -> tuple[Tensor, int, int]:
    """An input as the function takes it."""
    rows = [[float(x) for x in row] for row in one["weight"]]
    return torch.tensor(rows), one["group_size"], one["bits"]


def clear(w: Tensor, group: int, bits: int) -> bool:
    """Whether no number lies near the middle of two levels of the repaired grid."""
    for part in torch.split(w.double(), group, 1):
        low, high = part.amin(1, keepdim=True), part.amax(1, keepdim=True)
        step = (high - low).masked_fill(high == low, 1.0) / (2**bits - 1)
        if bool((((part - low) / step % 1 - 0.5).abs() < 1e-3).any()):
            return False
    return True


def drawn(rng: random.Random, O: int, I: int, group: int, bits: int) -> Tensor:
    """Normal numbers around 0.5, [O, I], each far from middles. Those that are not are moved."""
    for _ in range(1000):
        w = normal(rng, O, I) + 0.5
        for _ in range(30):
            if clear(w, group, bits):
                return w
            w = _nudged(w, group, bits)
    raise AssertionError("no such weights")


def _nudged(w: Tensor, group: int, bits: int) -> Tensor:
    """Numbers near a middle moved by a tenth of a step: the ends of a group stay."""
    parts = []
    for part in torch.split(w, group, 1):
        low, high = part.amin(1, keepdim=True), part.amax(1, keepdim=True)
        step = (high - low).masked_fill(high == low, 1.0) / (2**bits - 1)
        near = ((part - low) / step % 1 - 0.5).abs() < 2e-3
        parts.append(part + 0.1 * step * near)
    return torch.cat(parts, 1)
