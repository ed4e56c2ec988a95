"""The merges of arithmetic_intensity-merge: the printed one, its faults one by one, repairs that go
wrong; and inputs that show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from twophase.checks.arithmetic_intensity._data import NEG_INF

Tensor = torch.Tensor
Part = tuple[Tensor, Tensor]  # output [T, H] and log-sum-exp [T]
Merge = Callable[[Tensor, Tensor, Tensor, Tensor], Part]


def printed(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> Part:
    """The code of the notebook: all three faults."""
    w_a, w_b = torch.exp(lse_a), torch.exp(lse_b)
    out = (w_a[:, None] * out_a + w_b[:, None] * out_b) / (w_a + w_b)[:, None]
    return out, torch.maximum(lse_a, lse_b)


def merger(
    shift: bool = True,
    guard: bool = True,
    lse: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = lambda lse_a, lse_b, top, total: (
        top + torch.log(total)
    ),
    weigh: Callable[[Tensor, Tensor], Part] = lambda w_a, w_b: (w_a, w_b),
) -> Merge:
    """Subtract the larger one (`shift`), give empty parts zeros (`guard`), return the joint
    log-sum-exp: right if all are done."""

    def merge(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> Part:
        larger = torch.maximum(lse_a, lse_b)
        top = larger if shift else torch.zeros_like(larger)
        if guard:
            top = torch.where(top == NEG_INF, 0.0, top)
        e_a, e_b = torch.exp(lse_a - top), torch.exp(lse_b - top)
        w_a, w_b = weigh(e_a, e_b)
        total = w_a + w_b
        by = torch.where(larger == NEG_INF, 1.0, total) if guard else total
        out = (w_a[:, None] * out_a + w_b[:, None] * out_b) / by[:, None]
        return out, lse(lse_a, lse_b, top, e_a + e_b)

    return merge


RIGHT = merger()


def larger(lse_a: Tensor, lse_b: Tensor, top: Tensor, total: Tensor) -> Tensor:
    return torch.maximum(lse_a, lse_b)


def summed(lse_a: Tensor, lse_b: Tensor, top: Tensor, total: Tensor) -> Tensor:
    return lse_a + lse_b


def without_top(lse_a: Tensor, lse_b: Tensor, top: Tensor, total: Tensor) -> Tensor:
    return torch.where(torch.maximum(lse_a, lse_b) == NEG_INF, NEG_INF, torch.log(total))


def empty_is_skipped(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> Part:
    """Gives back the first part where one is empty, even if it is the first."""
    out, lse = RIGHT(out_a, lse_a, out_b, lse_b)
    empty = (lse_a == NEG_INF) | (lse_b == NEG_INF)
    return torch.where(empty[:, None], out_a, out), torch.where(empty, lse_a, lse)


def one_top_for_all(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> Part:
    """Subtracts the largest of all queries: one that lies far below it vanishes."""
    top = torch.maximum(lse_a, lse_b).max()
    w_a, w_b = torch.exp(lse_a - top), torch.exp(lse_b - top)
    total = w_a + w_b
    out = (w_a[:, None] * out_a + w_b[:, None] * out_b) / torch.where(total == 0, 1.0, total)[
        :, None
    ]
    return out, top + torch.log(total)


def equal_counted_once(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> Part:
    """Takes two equal log-sum-exps for one."""
    out, lse = RIGHT(out_a, lse_a, out_b, lse_b)
    return out, torch.where(lse_a == lse_b, lse_a, lse)


def far_part_dropped(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> Part:
    """Leaves out a part whose log-sum-exp lies 8 below the other's."""
    a = torch.where(lse_b - lse_a > 8, NEG_INF, lse_a)
    b = torch.where(lse_a - lse_b > 8, NEG_INF, lse_b)
    return RIGHT(out_a, a, out_b, b)


def one_less_the_weight(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> Part:
    """Gives the second part what the first one's weight leaves of 1: nothing below 6·10⁻⁸."""
    w = torch.sigmoid(lse_a - lse_b).nan_to_num(0.5)[:, None]
    return w * out_a + (1 - w) * out_b, torch.logaddexp(lse_a, lse_b)


def from_a_to_b(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> Part:
    """Goes from the first output a part of the way to the second: in that difference the first is
    lost if the way is 1 less 6·10⁻⁸."""
    w = torch.sigmoid(lse_b - lse_a).nan_to_num(0.5)[:, None]
    return out_a - w * (out_a - out_b), torch.logaddexp(lse_a, lse_b)


def first_subtracted(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> Part:
    """Subtracts lse_a, or lse_b where the first part is empty: not always the larger one."""
    top = torch.where(lse_a == NEG_INF, lse_b, lse_a)
    e_a, e_b = (torch.exp(x - torch.where(top == NEG_INF, 0.0, top)) for x in (lse_a, lse_b))
    total = e_a + e_b
    by = torch.where(total == 0, 1.0, total)[:, None]
    return (e_a[:, None] * out_a + e_b[:, None] * out_b) / by, top + torch.log(total)


def ends_with_half_precision(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> Part:
    """Cuts outputs to what float16 holds."""
    out, lse = RIGHT(out_a, lse_a, out_b, lse_b)
    return out.clamp(-65504, 65504), lse


FAULTS: dict[str, Merge] = {
    "exp of a large log-sum-exp": merger(shift=False),
    "both parts empty": merger(guard=False),
    "the log-sum-exp that is returned": merger(lse=larger),
}


def expose() -> list[Any]:
    """The right answer (one of many)."""
    return [
        [[[1.0], [2.0]], [200.0, 1.0], [[3.0], [5.0]], [201.0, 1.5]],
        [[[0.0]], [NEG_INF], [[0.0]], [NEG_INF]],
    ]


def expose_everyday_numbers() -> list[Any]:
    return [[[[1.0, 2.0]], [0.3], [[3.0, -1.0]], [1.2]]]


def expose_one_empty_part() -> list[Any]:
    return [*expose()[:1], [[[0.0]], [NEG_INF], [[4.0]], [0.7]]]


def expose_no_large_scores() -> list[Any]:
    return [*expose_everyday_numbers(), expose()[1]]


def expose_far_apart() -> list[Any]:
    return [[[[1.0]], [500.0], [[3.0]], [200.0]], expose()[1]]


def expose_invalid() -> list[Any]:
    return [[[[1.0]], [float("inf")], [[3.0]], [1.0]], [[[1.0]], [NEG_INF], [[3.0]], [NEG_INF]]]
