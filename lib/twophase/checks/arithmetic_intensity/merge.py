"""arithmetic_intensity-merge: two halves of attention put together, printed with three faults;
expose and repair them."""

from __future__ import annotations

import math
from typing import Any

import torch

from twophase.checks.answer import Answer
from twophase.checks.arithmetic_intensity import _merges as m
from twophase.checks.arithmetic_intensity._data import NEG_INF
from twophase.checks.arithmetic_intensity._halves import cases
from twophase.checks.compare import Tolerance, describe, difference, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions
from twophase.protocol import AnswerError

wrong = Misconceptions()

LARGEST_OUT, LARGEST_LSE = 1e6, 1e4
COMPARE = Tolerance(
    rtol=1e-3,
    atol=1e-4,
    dtype=True,
    why="a log-sum-exp of some thousands leaves four digits in fp32",
)
SAME_LSE = Tolerance(rtol=1e-6, atol=1e-4, why="fp32 has a digit more")


def problem(calls: Any) -> str:
    """Why the calls are no valid input, in one sentence; empty if they are."""
    if not isinstance(calls, list | tuple) or not 1 <= len(calls) <= 10:
        return "expose() must return a list of 1 to 10 inputs"
    return next((p for p in map(_call_problem, calls) if p), "")


def _call_problem(call: Any) -> str:
    if not isinstance(call, list | tuple) or len(call) != 4:
        return "an input is a list [out_a, lse_a, out_b, lse_b]"
    shapes = {(len(x), len(x[0])) for x in call[::2] if _is_table(x)}
    if not all(map(_is_table, call[::2])) or len(shapes) != 1:
        return (
            "out_a and out_b must be lists of T lists of H numbers within ±1,000,000, T and H from"
            " 1 to 16, the same for both"
        )
    ((T, _),) = shapes
    if not all(
        isinstance(lse, list | tuple) and len(lse) == T and all(map(_is_lse, lse))
        for lse in call[1::2]
    ):
        return 'lse_a and lse_b must be lists of T numbers from −10,000 to 10,000, or float("-inf")'
    for out, lse in (call[:2], call[2:]):
        if any(x == NEG_INF and any(row) for row, x in zip(out, lse, strict=True)):
            return "a part that saw no key (lse −inf) has an output of zeros"
    return ""


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool)


def _is_table(x: Any) -> bool:
    rows = (
        isinstance(x, list | tuple)
        and 1 <= len(x) <= 16
        and all(isinstance(r, list | tuple) for r in x)
    )
    if not rows or not 1 <= len(x[0]) <= 16 or any(len(r) != len(x[0]) for r in x):
        return False
    return all(
        _is_number(v) and math.isfinite(v) and abs(v) <= LARGEST_OUT for row in x for v in row
    )


def _is_lse(x: Any) -> bool:
    return _is_number(x) and (x == NEG_INF or abs(x) <= LARGEST_LSE)


def _shows(fault: m.Merge, call: Any) -> bool:
    given = [torch.tensor(x, dtype=torch.float32) for x in call]
    seen = zip(fault(*given), m.RIGHT(*given), (COMPARE, SAME_LSE), strict=True)
    return any(difference(wrong, right, tolerance) is not None for wrong, right, tolerance in seen)


def observe(answer: Answer, case: Case) -> Any:
    """A case with a fault's name asks whether `expose` shows it; one with parts folds them with the
    repaired function."""
    if isinstance(case.args[0], str):
        calls = plain(answer.call("expose"))
        found = problem(calls)
        shown = not found and any(_shows(m.FAULTS[case.args[0]], call) for call in calls)
        return {"the inputs": found or "valid", "one shows it": shown}
    parts = case.args[0]
    so_far: Any = parts[0]
    for part in parts[1:]:
        so_far = answer.call("merge", *so_far, *part)
        if not isinstance(so_far, list | tuple) or len(so_far) != 2:
            raise AnswerError(
                "unusable", f"merge must return a pair (out, lse), and returned {describe(so_far)}"
            )
    out, lse = so_far
    return {"out": out, "lse": lse, "lse − the largest lse of a part": _beyond(lse, parts)}


def _beyond(lse: Any, parts: list[m.Part]) -> Any:
    """By how much a log-sum-exp lies above the largest of the parts': of one near 10,000 these are
    the digits that count. None if it is no tensor of their shape."""
    top = torch.stack([part_lse for _, part_lse in parts]).amax(0).double()
    if not isinstance(lse, torch.Tensor) or lse.shape != top.shape:
        return None
    return lse.double() - torch.where(top == NEG_INF, 0.0, top)


wrong.add(
    "unrepaired",
    {"merge": m.printed},
    "plausible",
    "The function is still the printed one: all three faults are in it.",
)
wrong.add(
    "overflow_still",
    {"merge": m.merger(shift=False)},
    "naive softmax",
    "exp(lse) still overflows beyond 88, and underflows below −104: subtract the larger of the two"
    " first.",
)
wrong.add(
    "empty_still_nan",
    {"merge": m.merger(guard=False)},
    "fully masked rows (a classic of attention kernels)",
    "A query that saw no key in either part still gives NaN: it has an output of zeros and lse ="
    " −inf.",
)
wrong.add(
    "empty_is_skipped",
    {"merge": m.empty_is_skipped},
    "plausible",
    "Where one part is empty you return the first. It may be the first that is empty: then the"
    " other is the answer.",
)
wrong.add(
    "larger_lse_still",
    {"merge": m.merger(lse=m.larger)},
    "plausible",
    "The lse you return is still the larger one. The next merge then gives these keys too little"
    " weight.",
)
wrong.add(
    "equal_counted_once",
    {"merge": m.equal_counted_once},
    "plausible",
    "Where the two lse are equal you return one of them: two equal sums together are twice as"
    " large, so lse grows by log 2.",
)
wrong.add(
    "far_part_dropped",
    {"merge": m.far_part_dropped},
    "“exp(−8) is nothing”",
    "You leave out a part whose lse is 8 or more below the other. Its weight is small, its output"
    " may be large: exp becomes 0 by itself when it is.",
)
wrong.add(
    "one_less_the_weight",
    {"merge": m.one_less_the_weight},
    "sigmoid(lse_a − lse_b), and 1 less that",
    "Your second weight is 1 less the first, which rounds to 0 from 17 apart on, and its output may"
    " be a million: compute each weight from its own lse.",
)
wrong.add(
    "from_a_to_b",
    {"merge": m.from_a_to_b},
    "torch.lerp",
    "You go from out_a towards out_b. Where the way is almost 1, what is left of out_a rounds to 0,"
    " and it may be a million: weigh each output by itself, and add.",
)
wrong.add(
    "first_subtracted",
    {"merge": m.first_subtracted},
    "plausible",
    "You subtract lse_a before exp, also where lse_b is larger by hundreds: then exp(lse_b − lse_a)"
    " is infinite. Subtract the larger.",
)
wrong.add(
    "one_top_for_all",
    {"merge": m.one_top_for_all},
    "max() without a dimension",
    "You subtract one maximum for all queries. A query whose lse lies far below it vanishes: each"
    " has its own.",
)
wrong.add(
    "lse_added",
    {"merge": m.merger(lse=m.summed)},
    "plausible",
    "You added the two lse: it is the sums that add up, so lse = log(exp(lse_a) + exp(lse_b)).",
)
wrong.add(
    "maximum_not_added_back",
    {"merge": m.merger(lse=m.without_top)},
    "plausible",
    "The maximum that you subtracted before exp must be added again after log.",
)
wrong.add(
    "ends_with_half_precision",
    {"merge": m.ends_with_half_precision},
    "merges for half precision",
    "Your outputs end at 65,504, where float16 does: these are float32, and may be as large as"
    " ±1,000,000.",
)
wrong.add(
    "average",
    {"merge": m.merger(weigh=lambda w_a, w_b: ((w_a > 0).float(), (w_b > 0).float()))},
    "averaging partial attentions",
    "You averaged the outputs. Each part weighs as much as its sum of exponentials, exp(lse).",
)
wrong.add(
    "weights_swapped",
    {"merge": m.merger(weigh=lambda w_a, w_b: (w_b, w_a))},
    "plausible",
    "The weights are swapped: out_a belongs with exp(lse_a).",
)
wrong.add(
    "exposed_everyday_numbers",
    {"expose": m.expose_everyday_numbers},
    "tests with small random numbers",
    "Your inputs are everyday numbers: they show only that the returned lse is wrong. Try large"
    " scores and empty parts.",
)
wrong.add(
    "exposed_one_empty_part",
    {"expose": m.expose_one_empty_part},
    "plausible",
    "No input of yours has a query with both lse −inf: there the printed code gives 0 / 0. One"
    " empty part alone does no harm, exp(−inf) is 0.",
)
wrong.add(
    "exposed_no_large_scores",
    {"expose": m.expose_no_large_scores},
    "tests with small random numbers",
    "None of your inputs makes exp overflow: an lse beyond 88, or two below −104, does.",
)
wrong.add(
    "exposed_far_apart",
    {"expose": m.expose_far_apart},
    "plausible",
    "Your two lse lie so far apart that the larger one is their log-sum-exp: that fault stays"
    " hidden.",
)
wrong.add(
    "exposed_invalid",
    {"expose": m.expose_invalid},
    "plausible",
    "An input of yours breaks the contract: an lse is −inf or lies within ±10,000, and where it is"
    " −inf the output is zeros.",
)


EXERCISE = Exercise(
    id="arithmetic_intensity-merge",
    title="Repair the merge of two halves",
    kind="fault",
    points=5,
    minutes=20,
    entries=("expose", "merge"),
    cases=cases,
    observe=observe,
    reference={"merge": m.RIGHT, "expose": m.expose},
    compare=COMPARE,
    misconceptions=tuple(wrong),
    hints=(
        (
            "Three questions: what does exp do with 200? What is 0 / 0? What does the next merge"
            " need to know?"
        ),
        (
            "With top = max(lse_a, lse_b) the weights are exp(lse_a − top) and exp(lse_b − top),"
            " and the joint lse is top + log(their sum)."
        ),
        (
            "Where top is −inf use 0 in its place, and divide by 1 instead of 0."
            " torch.logaddexp(lse_a, lse_b) is a stable joint lse."
        ),
    ),
    ranges={
        "merge.out_a": (-1e6, 1e6),
        "merge.lse_a": (-1e4, 1e4),
        "merge.out_a.shape[1]": (1, 19),
    },
    recall=(
        (
            "Two machines attended to different keys. What must each send beside its output, so"
            " that they can be merged?"
        ),
        "One number per query: the log-sum-exp of its scores (or its maximum and its sum).",
    ),
)
