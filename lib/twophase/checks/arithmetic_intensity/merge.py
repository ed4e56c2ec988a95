"""arithmetic_intensity-merge: two halves of attention put together, printed with three faults; expose and repair them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch

from twophase.checks.answer import Answer
from twophase.checks.arithmetic_intensity._data import NEG_INF, normal
from twophase.checks.compare import Tolerance, difference
from twophase.checks.exercise import Case, Exercise, Misconception

Tensor = torch.Tensor
Part = tuple[Tensor, Tensor]  # output [T, H] and log-sum-exp [T]
Merge = Callable[[Tensor, Tensor, Tensor, Tensor], Part]
COMPARE = Tolerance(rtol=1e-3, atol=1e-4, why="a log-sum-exp of some hundreds leaves four digits in fp32")


def printed(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> Part:
    """The code of the notebook: all three faults."""
    w_a, w_b = torch.exp(lse_a), torch.exp(lse_b)
    out = (w_a[:, None] * out_a + w_b[:, None] * out_b) / (w_a + w_b)[:, None]
    return out, torch.maximum(lse_a, lse_b)


def _merge(
    shift: bool = True,
    guard: bool = True,
    lse: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = lambda lse_a, lse_b, top, total: top + torch.log(total),
    weigh: Callable[[Tensor, Tensor], Part] = lambda w_a, w_b: (w_a, w_b),
) -> Merge:
    """Subtract the larger one (`shift`), give empty parts zeros (`guard`), return the joint log-sum-exp: right if all are done."""

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


RIGHT = _merge()


def _larger(lse_a: Tensor, lse_b: Tensor, top: Tensor, total: Tensor) -> Tensor:
    return torch.maximum(lse_a, lse_b)


def _sum(lse_a: Tensor, lse_b: Tensor, top: Tensor, total: Tensor) -> Tensor:
    return lse_a + lse_b


def _without_top(lse_a: Tensor, lse_b: Tensor, top: Tensor, total: Tensor) -> Tensor:
    return torch.where(torch.maximum(lse_a, lse_b) == NEG_INF, NEG_INF, torch.log(total))


def empty_is_skipped(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> Part:
    """Gives back the first part where one is empty, even if it is the first."""
    out, lse = RIGHT(out_a, lse_a, out_b, lse_b)
    empty = (lse_a == NEG_INF) | (lse_b == NEG_INF)
    return torch.where(empty[:, None], out_a, out), torch.where(empty, lse_a, lse)


FAULTS: dict[str, Merge] = {
    "exp of a large log-sum-exp": _merge(shift=False),
    "both parts empty": _merge(guard=False),
    "the log-sum-exp that is returned": _merge(lse=_larger),
}


def problem(calls: Any) -> str:
    """Why the calls are no valid input, in one sentence; empty if they are."""
    if not isinstance(calls, list | tuple) or not 1 <= len(calls) <= 10:
        return "expose() must return a list of 1 to 10 calls"
    return next((p for p in map(_call_problem, calls) if p), "")


def _call_problem(call: Any) -> str:
    if not isinstance(call, list | tuple) or len(call) != 4:
        return "a call is a list [out_a, lse_a, out_b, lse_b]"
    shapes = {(len(x), len(x[0])) for x in call[::2] if _is_table(x)}
    if not all(map(_is_table, call[::2])) or len(shapes) != 1:
        return "out_a and out_b must be lists of T lists of H finite numbers, T and H from 1 to 16, the same for both"
    ((T, _),) = shapes
    if not all(isinstance(lse, list | tuple) and len(lse) == T and all(map(_is_lse, lse)) for lse in call[1::2]):
        return 'lse_a and lse_b must be lists of T numbers from −10,000 to 10,000, or float("-inf")'
    for out, lse in (call[:2], call[2:]):
        if any(x == NEG_INF and any(row) for row, x in zip(out, lse, strict=True)):
            return "a part that saw no key (lse −inf) has an output of zeros"
    return ""


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool)


def _is_table(x: Any) -> bool:
    rows = isinstance(x, list | tuple) and 1 <= len(x) <= 16 and all(isinstance(r, list | tuple) for r in x)
    if not rows or not 1 <= len(x[0]) <= 16 or any(len(r) != len(x[0]) for r in x):
        return False
    return all(_is_number(v) and math.isfinite(v) and abs(v) <= 1e6 for row in x for v in row)


def _is_lse(x: Any) -> bool:
    return _is_number(x) and (x == NEG_INF or abs(x) <= 10_000)


def _shows(fault: Merge, call: Any) -> bool:
    given = [torch.tensor(x, dtype=torch.float32) for x in call]
    return difference(list(fault(*given)), list(RIGHT(*given)), COMPARE) is not None


def observe(answer: Answer, case: Case) -> Any:
    """A case with a fault's name asks whether `expose` shows it; one with parts folds them with the repaired function."""
    if isinstance(case.args[0], str):
        calls = answer.call("expose")
        found = problem(calls)
        if found:
            return {"the calls": found}
        return {"the calls": "", "a call shows it": any(_shows(FAULTS[case.args[0]], call) for call in calls)}
    parts = case.args[0]
    so_far: Any = parts[0]
    for part in parts[1:]:
        so_far = answer.call("merge", *so_far, *part)
        if not isinstance(so_far, list | tuple) or len(so_far) != 2:
            return "merge returned something that is not a pair (out, lse)"
    return {"out": so_far[0], "lse": so_far[1]}


def _parts(
    rng: random.Random, T: int, H: int, widths: list[int], shift: float = 0.0, empty: dict[int, int] | None = None
) -> tuple[list[Part]]:
    """Attention of T queries over as many stretches of keys as there are widths; `empty[part]` is a row without a key there."""
    parts = []
    for i, n in enumerate(widths):
        scores, v = normal(rng, T, n, scale=2.0) + shift + 1.5 * i, normal(rng, n, H)
        if empty and i in empty:
            scores[empty[i]] = NEG_INF
        parts.append((scores.softmax(-1).nan_to_num(0.0) @ v, scores.logsumexp(-1)))
    return (parts,)


def cases(rng: random.Random) -> list[Case]:
    """Two parts, three, with large and small log-sum-exps, with rows that saw no key; then the faults that must be exposed."""
    return [
        Case("repaired: one query, two parts of two keys", _parts(rng, 1, 2, [2, 2])),
        Case("repaired: three parts, one after the other", _parts(rng, 3, 4, [3, 5, 2])),
        Case("repaired: log-sum-exps around 200", _parts(rng, 2, 3, [4, 3], shift=200.0)),
        Case("repaired: log-sum-exps around −200", _parts(rng, 2, 3, [4, 3], shift=-200.0)),
        Case("repaired: a query that saw no key in the first part", _parts(rng, 3, 2, [2, 3], empty={0: 1})),
        Case("repaired: a query that saw no key in the second part", _parts(rng, 3, 2, [2, 3], empty={1: 2})),
        Case("repaired: a query that saw no key in either", _parts(rng, 3, 2, [2, 3], empty={0: 1, 1: 1})),
        Case(
            "repaired: four parts, a query that sees its first key in the last but one",
            _parts(rng, 4, 5, [3, 1, 4, 2], 120.0, {0: 2, 1: 2}),
        ),
        *(Case(f"exposed: {fault}", (fault,)) for fault in FAULTS),
    ]


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


def _wrong(slug: str, merge: Merge, shows: Callable[[], list[Any]], seen: str, says: str) -> Misconception:
    return Misconception(slug, {"merge": merge, "expose": shows}, seen, says)


EXERCISE = Exercise(
    id="arithmetic_intensity-merge",
    title="Repair the merge of two halves",
    kind="fault",
    points=5,
    minutes=20,
    entries=("expose", "merge"),
    cases=cases,
    observe=observe,
    reference={"merge": RIGHT, "expose": expose},
    compare=COMPARE,
    misconceptions=(
        _wrong(
            "unrepaired",
            printed,
            expose,
            "plausible",
            "The function is still the printed one: all three faults are in it.",
        ),
        _wrong(
            "overflow_still",
            _merge(shift=False),
            expose,
            "naive softmax",
            "exp(lse) still overflows beyond 88, and underflows below −104: subtract the larger of the two first.",
        ),
        _wrong(
            "empty_still_nan",
            _merge(guard=False),
            expose,
            "fully masked rows (a classic of attention kernels)",
            "A query that saw no key in either part still gives NaN: it has an output of zeros and lse = −inf.",
        ),
        _wrong(
            "empty_is_skipped",
            empty_is_skipped,
            expose,
            "plausible",
            "Where one part is empty you return the first. It may be the first that is empty: then the other is the answer.",
        ),
        _wrong(
            "larger_lse_still",
            _merge(lse=_larger),
            expose,
            "plausible",
            "The lse you return is still the larger one. The next merge then gives these keys too little weight.",
        ),
        _wrong(
            "lse_added",
            _merge(lse=_sum),
            expose,
            "plausible",
            "You added the two lse: it is the sums that add up, so lse = log(exp(lse_a) + exp(lse_b)).",
        ),
        _wrong(
            "maximum_not_added_back",
            _merge(lse=_without_top),
            expose,
            "plausible",
            "The maximum that you subtracted before exp must be added again after log.",
        ),
        _wrong(
            "average",
            _merge(weigh=lambda w_a, w_b: ((w_a > 0).float(), (w_b > 0).float())),
            expose,
            "averaging partial attentions",
            "You averaged the outputs. Each part weighs as much as its sum of exponentials, exp(lse).",
        ),
        _wrong(
            "weights_swapped",
            _merge(weigh=lambda w_a, w_b: (w_b, w_a)),
            expose,
            "plausible",
            "The weights are swapped: out_a belongs with exp(lse_a).",
        ),
        _wrong(
            "exposed_everyday_numbers",
            RIGHT,
            expose_everyday_numbers,
            "tests with small random numbers",
            "Your inputs are everyday numbers: they show only that the returned lse is wrong. Try large scores and empty parts.",
        ),
        _wrong(
            "exposed_one_empty_part",
            RIGHT,
            expose_one_empty_part,
            "plausible",
            "One empty part does no harm to the printed code: exp(−inf) is 0. Both must be empty.",
        ),
        _wrong(
            "exposed_no_large_scores",
            RIGHT,
            expose_no_large_scores,
            "tests with small random numbers",
            "None of your inputs makes exp overflow: an lse beyond 88, or two below −104, does.",
        ),
        _wrong(
            "exposed_far_apart",
            RIGHT,
            expose_far_apart,
            "plausible",
            "Your two lse lie so far apart that the larger one is their log-sum-exp: that fault stays hidden.",
        ),
        _wrong(
            "exposed_invalid",
            RIGHT,
            expose_invalid,
            "plausible",
            "Your input breaks the contract: no lse is +inf, and a part that saw no key has an output of zeros.",
        ),
    ),
    hints=(
        "Three questions: what does exp do with 200? What is 0 / 0? What does the next merge need to know?",
        "With top = max(lse_a, lse_b) the weights are exp(lse_a − top) and exp(lse_b − top), and the joint lse is top + log(their sum).",
        "Where top is −inf use 0 in its place, and divide by 1 instead of 0. torch.logaddexp(lse_a, lse_b) is a stable joint lse.",
    ),
    recall=(
        "Two machines attended to different keys. What must each send beside its output, so that they can be merged?",
        "One number per query: the log-sum-exp of its scores (or its maximum and its sum).",
    ),
    withholds=(),
)
