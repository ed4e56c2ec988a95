"""arithmetic_intensity-online_softmax: the running maximum and sum, block by block. The judge keeps
the state between calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from twophase.checks.answer import Answer
from twophase.checks.arithmetic_intensity._data import NEG_INF
from twophase.checks.arithmetic_intensity._scores import cases
from twophase.checks.compare import Tolerance, describe
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions
from twophase.protocol import AnswerError

wrong = Misconceptions()

Tensor = torch.Tensor
State = tuple[Tensor, Tensor]


def finite(m: Tensor) -> Tensor:
    """A maximum that may be subtracted: 0 where it is −inf."""
    return torch.where(m == NEG_INF, 0.0, m)


def reference(m: Tensor, l: Tensor, scores: Tensor) -> State:
    """The right answer: m, l [T] and a block of scores [T, s]."""
    m_new = torch.maximum(m, scores.amax(-1))
    safe = finite(m_new)
    return m_new, l * torch.exp(m - safe) + torch.exp(scores - safe[:, None]).sum(-1)


def _update(
    maximum: Callable[[Tensor, Tensor], Tensor],
    total: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
) -> Callable[[Tensor, Tensor, Tensor], State]:
    """A wrong answer: how it finds the new maximum, how the new sum (from m, l, scores and the new
    maximum made finite)."""

    def update(m: Tensor, l: Tensor, scores: Tensor) -> State:
        m_new = maximum(m, scores)
        return m_new, total(m, l, scores, finite(m_new))

    return update


def _running(m: Tensor, scores: Tensor) -> Tensor:
    return torch.maximum(m, scores.amax(-1))


def _fresh_sum(scores: Tensor, m: Tensor) -> Tensor:
    return torch.exp(scores - m[:, None]).sum(-1)


def _right_sum(m: Tensor, l: Tensor, scores: Tensor, m_new: Tensor) -> Tensor:
    return l * torch.exp(m - m_new) + _fresh_sum(scores, m_new)


@wrong(
    "fully masked rows (a classic of attention kernels)",
    "A row that has seen nothing but −inf became NaN: −inf − (−inf). It has m = −inf and l = 0"
    " until a score turns up.",
)
def nan_before_the_first_score(m: Tensor, l: Tensor, scores: Tensor) -> State:
    m_new = _running(m, scores)
    return m_new, l * torch.exp(m - m_new) + _fresh_sum(scores, m_new)


@wrong(
    "masks of −50 or −1e4 for −inf",
    "Masked scores count as small numbers here. For scores around −300 these would be the largest"
    " of all.",
)
def masked_stay_in_the_sum(m: Tensor, l: Tensor, scores: Tensor) -> State:
    return reference(m, l, scores.clamp(min=-50.0))


@wrong(
    "masks of −100 for −inf",
    "Masked scores weigh exp(−100 − m) in your sum: nothing while scores are small, more than all"
    " others once they lie below −100. exp(−inf) is 0 by itself.",
)
def masked_at_minus_100(m: Tensor, l: Tensor, scores: Tensor) -> State:
    m_new = _running(m, scores)
    weights = torch.exp(torch.where(scores == NEG_INF, -100.0, scores) - finite(m_new)[:, None])
    seen = l * torch.exp(m - finite(m_new)) + weights.sum(-1)
    return m_new, torch.where(m_new == NEG_INF, 0.0, seen)


@wrong(
    "plausible",
    "A score as large as the running maximum is a term of its own: you counted equal maxima once.",
)
def equal_maxima_once(m: Tensor, l: Tensor, scores: Tensor) -> State:
    m_new, total = reference(m, l, scores)
    return m_new, total - ((m == scores.amax(-1)) & (m > NEG_INF)).to(total.dtype)


@wrong(
    "plausible",
    "The maximum never moves after the first block. A later, larger score overflows, and m is no"
    " longer the largest.",
)
def first_maximum_kept(m: Tensor, l: Tensor, scores: Tensor) -> State:
    m_new = torch.where(m == NEG_INF, scores.amax(-1), m)
    return m_new, l + _fresh_sum(scores, finite(m_new))


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """The state after every block, each computed from the state that the answer itself returned
    before."""
    (blocks,) = case.args
    T = len(blocks[0])
    state: Any = (torch.full((T,), NEG_INF), torch.zeros(T))
    seen: dict[str, Any] = {}
    for i, block in enumerate(blocks):
        state = answer.call("update", *state, block)
        if not isinstance(state, list | tuple) or len(state) != 2:
            raise AnswerError(
                "unusable", f"update must return a pair (m, l), and returned {describe(state)}"
            )
        seen |= {f"m after block {i + 1}": state[0], f"l after block {i + 1}": state[1]}
    return seen


wrong.add(
    "old_sum_not_rescaled",
    _update(_running, lambda m, l, s, new: l + _fresh_sum(s, new)),
    "first attempts at online softmax",
    "The old sum still belongs to the old maximum: multiply it by exp(m − m_new) before you add to"
    " it.",
)
wrong.add(
    "rescaled_the_wrong_way",
    _update(
        _running,
        lambda m, l, s, new: torch.where(l > 0, l * torch.exp(new - m), 0.0) + _fresh_sum(s, new),
    ),
    "plausible",
    "You rescaled by exp(m_new − m), which is never below 1. The maximum rose, so old terms"
    " shrink: exp(m − m_new).",
)
wrong.add(
    "maximum_not_subtracted",
    _update(_running, lambda m, l, s, new: l + torch.exp(s).sum(-1)),
    "naive softmax",
    "You add up exp(score) itself: beyond 88 that is infinite in fp32. Subtract the running"
    " maximum.",
)
wrong.add(
    "block_maximum",
    _update(lambda m, s: s.amax(-1), lambda m, l, s, new: l + _fresh_sum(s, new)),
    "softmax applied to each block alone",
    "You subtract the maximum of the block, not of everything so far, so that the terms of the sum"
    " have different units.",
)
wrong.add(
    "block_maximum_rescaled",
    _update(
        lambda m, s: s.amax(-1),
        lambda m, l, s, new: torch.where(l > 0, l * torch.exp(m - new), 0.0) + _fresh_sum(s, new),
    ),
    "plausible",
    "m is the maximum of the block only. Take the larger of the old one and the block's: else a"
    " falling maximum makes the old sum explode.",
)
wrong.add(
    "sum_restarted",
    _update(_running, lambda m, l, s, new: _fresh_sum(s, new)),
    "plausible",
    "The old sum is gone: l must keep what came before, rescaled.",
)
wrong.add(
    "new_terms_rescaled",
    _update(
        _running,
        lambda m, l, s, new: (l + _fresh_sum(s, finite(s.amax(-1)))) * torch.exp(m - new),
    ),
    "plausible",
    "You rescaled the new terms as well: only the old sum was taken with another maximum.",
)
wrong.add(
    "one_maximum_for_all_rows",
    _update(lambda m, s: torch.maximum(m, s.amax().expand_as(m)), _right_sum),
    "amax() without a dimension",
    "You took one maximum over all rows: every row has its own, and a row far below the others"
    " would underflow to 0.",
)


EXERCISE = Exercise(
    id="arithmetic_intensity-online_softmax",
    title="Softmax in one pass",
    kind="kernel",
    points=4,
    minutes=20,
    entries=("update",),
    cases=cases,
    observe=observe,
    reference=reference,
    compare=Tolerance(
        rtol=2.5e-4,  # half of what float16 loses
        atol=1e-7,
        dtype=True,
        why="a log-sum-exp near 1,000 is held to 3e-5 in fp32, and a few of them follow",
    ),
    misconceptions=tuple(wrong),
    hints=(
        "First the new maximum: m_new = max(m, largest of the block), row by row.",
        (
            "l was taken relative to m. Relative to m_new it is l · exp(m − m_new). Then add Σ"
            " exp(score − m_new)."
        ),
        (
            "Where m_new is still −inf, subtract 0 instead: exp(−inf − 0) is 0, while −inf − (−inf)"
            " is NaN."
        ),
    ),
    ranges={"scores": (-1000, 1000), "scores.shape[0]": (1, 263), "scores.shape[1]": (1, 2053)},
    recall=(
        "A larger score turns up. What happens to the sum so far in online softmax?",
        "It is multiplied by exp(old maximum − new maximum), a number below 1.",
    ),
    relayed=True,
)
