"""The scores of latent_attention-rotated: those of the contract, those of the printed code, and
what a valid input is."""

from __future__ import annotations

import math
from typing import Any

import torch

Tensor = torch.Tensor
MOST, LARGEST = 8, 10.0  # positions and widths of an input, and its numbers


def turn(x: Tensor, positions: Tensor) -> Tensor:
    """x [n, width], row i at positions[i]: as the notebook prints it."""
    half = x.shape[1] // 2
    angles = positions[:, None] * 100.0 ** (-torch.arange(half) / half)  # [n, width/2]
    a, b = x[:, :half], x[:, half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], 1)


def right(q: Tensor, c: Tensor, w_uk: Tensor) -> Tensor:
    """The contract: keys are unfolded, then turned."""
    T, S = len(q), len(c)
    k = turn(c @ w_uk.T, torch.arange(S))  # [S, H]
    return turn(q, torch.arange(S - T, S)) @ k.T  # [T, S]


def printed(q: Tensor, c: Tensor, w_uk: Tensor) -> Tensor:
    """The printed code: latents are turned, and w_uk is absorbed into the turned query."""
    T, S = len(q), len(c)
    q = turn(q, torch.arange(S - T, S))
    c = turn(c, torch.arange(S))
    return (q @ w_uk) @ c.T  # [T, S]


def never_turned(q: Tensor, c: Tensor, w_uk: Tensor) -> Tensor:
    """Without any rotation."""
    return q @ (c @ w_uk.T).T


def differs(one: Tensor, other: Tensor, by: float) -> bool:
    """Whether two tables of scores are at least so far apart somewhere."""
    return bool((one - other).abs().max() >= by)


def problem(found: Any) -> str:
    """Why something is no input, in one sentence; empty if it is."""
    if not isinstance(found, dict) or set(found) != {"q", "c", "w_uk"}:
        return 'an input is a dict with the keys "q", "c", "w_uk"'
    shapes = [_shape(found[name]) for name in ("q", "c", "w_uk")]
    if None in shapes:
        return f"q, c and w_uk are lists of equally long rows of numbers from −{LARGEST:g} to 10"
    (T, H), (S, R), w_shape = (shape or (0, 0) for shape in shapes)
    if w_shape != (H, R):
        return f"q has {H} columns and c has {R}: w_uk must be {H} rows of {R}"
    if H % 2 or R % 2:
        return "the widths of q and c are even"
    if max(T, H, R, S) > MOST:
        return f"no size is above {MOST}"
    return "" if T <= S else "there are more queries than positions"


def _shape(rows: Any) -> tuple[int, int] | None:
    if not isinstance(rows, list | tuple) or not rows:
        return None
    if not all(isinstance(row, list | tuple) and row for row in rows):
        return None
    good = all(
        isinstance(x, int | float) and not isinstance(x, bool) and math.fabs(x) <= LARGEST
        for row in rows
        for x in row
    )
    return (len(rows), len(rows[0])) if good and len(set(map(len, rows))) == 1 else None


def tensors(found: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """The input's q, c and w_uk, in double precision."""
    q, c, w_uk = (torch.tensor(found[name], dtype=torch.float64) for name in ("q", "c", "w_uk"))
    return q, c, w_uk
