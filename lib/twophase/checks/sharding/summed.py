"""sharding-summed: a layer cut over ranks as it circulates, its three faults exposed and repaired.
The notebook prints `printed`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from twophase.checks import edges
from twophase.checks.answer import Answer
from twophase.checks.compare import plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.kv_cache._data import normal
from twophase.checks.misconceptions import Misconceptions, replaced
from twophase.checks.sharding._ranks import SUMS, AllReduce

wrong = Misconceptions()

Tensor = torch.Tensor
Sum = Callable[[Tensor], Tensor]
Rows = list[list[float]]
SHOWN = 0.001  # a number is wrong by so much at least, as the task says
Input = dict[str, Any]


def right(x: Tensor, w_in: Tensor, w_out: Tensor, bias: Tensor, all_reduce: Sum) -> Tensor:
    """The right answer: the part of a rank with some columns of w_in and the same rows of w_out."""
    part = torch.relu(x @ w_in) @ w_out
    return x + all_reduce(part) + bias


FAULTS = {
    "the bias counts on every rank": replaced(
        right, {"all_reduce(part) + bias": "all_reduce(part + bias)"}
    ),
    "the residual counts on every rank": replaced(
        right, {"x + all_reduce(part)": "all_reduce(x + part)"}
    ),
    "only the first row is summed": replaced(
        right, {"all_reduce(part)": "torch.cat([all_reduce(part[:1]), part[1:]])"}
    ),
}
PRINTED = replaced(
    right,
    {
        "part = torch.relu": "part = x + torch.relu",
        "@ w_out": "@ w_out + bias",
        "x + all_reduce(part) + bias": "torch.cat([all_reduce(part[:1]), part[1:]])",
    },
)


def together(layer: Callable[..., Tensor], given: Input) -> Tensor:
    """What the n ranks end with if all run this layer on their parts, [n, B, D]; float64, so that
    nothing is wrong by rounding."""
    names = ("x", "w_in", "w_out", "bias")
    x, w_in, w_out, bias = (torch.tensor(given[name], dtype=torch.float64) for name in names)
    brought: list[Tensor] = []
    parts = list(zip(w_in.chunk(given["n"], 1), w_out.chunk(given["n"], 0), strict=True))

    def bring(part: Tensor) -> Tensor:
        brought.append(part)
        return part

    for own in parts:
        layer(x, *own, bias, bring)
    whole = torch.stack(brought).sum(0)
    return torch.stack([layer(x, *own, bias, lambda part: whole) for own in parts])


def shows(fault: str, given: Input) -> bool:
    """Whether some number, on some rank, is wrong by as much as the task asks for."""
    by = (together(FAULTS[fault], given) - together(right, given)).abs().max()
    return bool(by > SHOWN - 1e-9)


def _matrix(value: Any, n_rows: int | None, n_columns: int | None) -> bool:
    """Whether it is a list of equally long lists of numbers, of this size."""
    return (
        isinstance(value, list | tuple)
        and (n_rows is None or len(value) == n_rows)
        and 1 <= len(value) <= 8
        and all(isinstance(row, list | tuple) and 1 <= len(row) <= 8 for row in value)
        and {len(row) for row in value} == {n_columns or len(value[0])}
        and all(
            type(number) in (int, float) and abs(number) <= 10 for row in value for number in row
        )
    )


def problem(inputs: Any) -> str:
    """Why these are no valid inputs, in one sentence; empty if they are."""
    if not isinstance(inputs, list | tuple) or not 1 <= len(inputs) <= 10:
        return "expose() must return a list of 1 to 10 inputs"
    for one in inputs:
        if not isinstance(one, dict) or set(one) != {"n", "x", "w_in", "w_out", "bias"}:
            return "an input is a dict with the keys n, x, w_in, w_out and bias"
        if type(one["n"]) is not int or not 1 <= one["n"] <= 8:
            return "n must be a whole number from 1 to 8"
        if not _matrix(one["x"], None, None):
            return "x must be rows of numbers from -10 to 10, 8 by 8 at most"
        D = len(one["x"][0])
        if not _matrix(one["w_in"], D, None):
            return "w_in must have as many rows as x has columns"
        F = len(one["w_in"][0])
        if F % one["n"]:
            return "n must divide the columns of w_in"
        if not _matrix(one["w_out"], F, D) or not _matrix([one["bias"]], 1, D):
            return "w_out must be [F, D] and bias [D]"
    return ""


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """A case with a fault's name asks whether `expose` shows it; one with tensors runs the repaired
    layer as one rank among others that do as they should."""
    if isinstance(case.args[0], str):
        inputs = plain(answer.call("expose"))
        if found := problem(inputs):
            return {"the inputs": found, "an input shows it": False}
        shown = any(shows(case.args[0], one) for one in inputs)
        return {"the inputs": "valid", "an input shows it": shown}
    x, w_in, w_out, bias, n, rank = case.args
    parts = list(zip(w_in.chunk(n, 1), w_out.chunk(n, 0), strict=True))
    others = torch.zeros_like(x)
    for r, (columns, rows) in enumerate(parts):
        if r != rank:
            others = others + torch.relu(x @ columns) @ rows
    all_reduce = AllReduce(others, n)
    found = answer.call("layer_rank", x, *parts[rank], bias, all_reduce)
    return {**all_reduce.seen(), "the result": found}


def _input(n: int, x: Rows, w_in: Rows, w_out: Rows, bias: list[float]) -> Input:
    return {"n": n, "x": x, "w_in": w_in, "w_out": w_out, "bias": bias}


def expose() -> list[Input]:
    """The right answer (one of many)."""
    return [_input(2, [[1, 2], [3, 1]], [[1, 2], [1, 1]], [[1, 2], [3, 1]], [1, 2])]


@wrong(
    "tests on one process",
    "None of your inputs shows a fault. With n = 1, for instance, a sum over ranks changes"
    " nothing.",
    entry="expose",
)
def exposed_one_rank() -> list[Input]:
    return [{**expose()[0], "n": 1}]


@wrong(
    "tests without a bias",
    "None of your inputs shows that the bias counts n times: a bias of 0 is still 0 then.",
    entry="expose",
)
def exposed_no_bias() -> list[Input]:
    return [{**expose()[0], "bias": [0, 0]}]


@wrong(
    "tests with batch size 1",
    "None of your inputs shows that only the first row is summed: another row, too, needs"
    " something to sum.",
    entry="expose",
)
def exposed_one_row() -> list[Input]:
    return [{**expose()[0], "x": [[1, 2]]}]


@wrong(
    "plausible",
    "Your inputs show the bias alone. With an x of 0 the residual counted n times is 0 as well, and"
    " relu(0) leaves nothing to sum.",
    entry="expose",
)
def exposed_zeros() -> list[Input]:
    return [{**expose()[0], "x": [[0, 0], [0, 0]]}]


@wrong(
    "plausible",
    "An input is not valid (n must divide the columns of w_in): a crash shows no fault.",
    entry="expose",
)
def exposed_uneven() -> list[Input]:
    return [{**expose()[0], "n": 3}]


wrong.add(
    "unrepaired",
    {"layer_rank": PRINTED},
    "a tensor-parallel layer's hook",
    "The function is still the printed one: all three faults are in it.",
)
for slug, fault, says in (
    (
        "bias_still",
        "the bias counts on every rank",
        "The bias is still inside the sum, so that it counts n times.",
    ),
    (
        "residual_still",
        "the residual counts on every rank",
        "x is still inside the sum: every rank has all of it, and it counts n times.",
    ),
    (
        "first_row_still",
        "only the first row is summed",
        "Still only the first row is summed; the others keep this rank's part.",
    ),
):
    wrong.add(slug, {"layer_rank": FAULTS[fault]}, "a tensor-parallel layer's hook", says)
wrong.add(
    "divided_by_n",
    {
        "layer_rank": replaced(
            right, {"x + all_reduce(part) + bias": "all_reduce(x + part + bias) / 2"}
        )
    },
    "averaging, as with gradients",
    "You divide the sum, but the MLP's parts belong to it undivided: move x and bias out instead.",
)
wrong.add(
    "summed_row_by_row",
    {
        "layer_rank": replaced(
            right,
            {"all_reduce(part)": "torch.cat([all_reduce(row[None]) for row in part])"},
        )
    },
    "plausible",
    "You call all_reduce once for each row: each call has its hops. One call takes them all.",
)


def cases(rng: random.Random) -> list[Case]:
    """Every rank of some, one rank alone, one row and many; then the faults to expose."""

    def case(B: int, D: int, F: int, n: int, rank: int, public: bool = True) -> Case:
        given = tuple(normal(rng, *shape) for shape in ((B, D), (D, F), (F, D), (D,)))
        return Case(
            f"repaired: B={B}, D={D}, F={F}, rank {rank} of {n}", (*given, n, rank), public=public
        )

    return [
        case(2, 3, 4, 2, 0),
        case(2, 3, 4, 2, 1),
        case(1, 3, 6, 3, 2),
        case(3, 2, 4, 1, 0),
        case(4, 1, 4, 4, 3),
        case(edges.past(64), 2, 5, 5, 4),
        case(2, edges.past(64), 8, 8, 7),
        case(2, 3, 2 * edges.past(128), 2, 1),
        case(3, 4, 17, 17, rng.randrange(1, 16), public=False),
        *(Case(f"exposed: {fault}", (fault,)) for fault in FAULTS),
    ]


EXERCISE = Exercise(
    id="sharding-summed",
    title="What must not be summed",
    kind="fault",
    points=4,
    minutes=15,
    entries=("expose", "layer_rank"),
    cases=cases,
    observe=observe,
    reference={"layer_rank": right, "expose": expose},
    compare=SUMS,
    misconceptions=tuple(wrong),
    hints=(
        "What does every rank have whole, and what only a part of? Only parts may be summed.",
        "x and bias are whole on every rank. The product with w_out is a part, all rows of it.",
        (
            "x + all_reduce(torch.relu(x @ w_in) @ w_out) + bias. To expose: two ranks, two rows,"
            " x and bias not 0."
        ),
    ),
    ranges={"layer_rank.x.shape[0]": (1, 67)},
    recall=(
        "A tensor-parallel layer is right on one rank and adds its bias twice on two. Where is the"
        " bias?",
        "Before the all-reduce: what every rank has whole is added after it, once.",
    ),
)
