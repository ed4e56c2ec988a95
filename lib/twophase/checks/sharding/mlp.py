"""sharding-mlp: one rank's part of an MLP, cut by columns and then by rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from twophase.checks import edges
from twophase.checks.answer import Answer
from twophase.checks.exercise import Case, Exercise
from twophase.checks.kv_cache._data import normal
from twophase.checks.misconceptions import Misconceptions, replaced
from twophase.checks.sharding._ranks import SUMS, AllReduce, unlike

wrong = Misconceptions()

Tensor = torch.Tensor
Sum = Callable[[Tensor], Tensor]


def reference(
    x: Tensor,
    w_gate: Tensor,
    w_up: Tensor,
    w_down: Tensor,
    bias: Tensor,
    rank: int,
    n: int,
    all_reduce: Sum,
) -> Tensor:
    """The right answer."""
    width = w_gate.shape[1] // n
    own = slice(rank * width, (rank + 1) * width)
    inner = functional.silu(x @ w_gate[:, own]) * (x @ w_up[:, own])  # [B, F / n]
    part = inner @ w_down[own, :]  # [B, D], a part of each sum
    return all_reduce(part) + bias


wrong.add(
    "bias_on_every_rank",
    replaced(reference, {"all_reduce(part) + bias": "all_reduce(part + bias)"}),
    "tensor-parallel layers with a bias in each rank's linear",
    "The bias goes into the sum on every rank, so that it counts n times: add it after the sum.",
)
wrong.add(
    "bias_left_out",
    replaced(reference, {"all_reduce(part) + bias": "all_reduce(part)"}),
    "plausible",
    "The bias is missing.",
)
wrong.add(
    "reduced_twice",
    replaced(reference, {"all_reduce(part) + bias": "all_reduce(all_reduce(part)) + bias"}),
    "a layer that reduces, inside a block that reduces",
    "You reduce twice: after the first sum every rank has the whole, and the second counts it n"
    " times.",
)
wrong.add(
    "never_reduced",
    replaced(reference, {"all_reduce(part) + bias": "part + bias"}),
    "plausible",
    "You never call all_reduce: each rank has a part of each sum.",
)
wrong.add(
    "first_sequence_only",
    replaced(
        reference,
        {"all_reduce(part) + bias": ("torch.cat([all_reduce(part[:1]), part[1:]]) + bias")},
    ),
    "a hook that reduced batch element 0 only",
    "Only the first row is summed over the ranks. All B rows must be.",
)
wrong.add(
    "mean_over_ranks",
    replaced(reference, {"all_reduce(part) + bias": "all_reduce(part) / n + bias"}),
    "averaging, as with gradients",
    "You divide by n, as one does with gradients. The parts belong to one sum.",
)
wrong.add(
    "rank_0_everywhere",
    replaced(reference, {"slice(rank * width, (rank + 1) * width)": "slice(0, width)"}),
    "plausible",
    "Every rank computes the first F/n columns: rank r has those from r·F/n on.",
)
wrong.add(
    "every_nth_column",
    replaced(reference, {"slice(rank * width, (rank + 1) * width)": "slice(rank, None, n)"}),
    "x[rank::n]",
    "You took every n-th column. The task deals out blocks: r·F/n to (r + 1)·F/n. (Either would do,"
    " if all ranks did the same.)",
)
wrong.add(
    "whole_on_every_rank",
    replaced(reference, {"slice(rank * width, (rank + 1) * width)": "slice(None)"}),
    "plausible",
    "You computed the whole MLP on this rank; together the ranks then sum it n times.",
)
wrong.add(
    "gate_whole",
    replaced(reference, {"all_reduce(part) + bias": "functional.silu(all_reduce(part)) + bias"}),
    "plausible",
    "An activation after the sum does not belong there.",
)
wrong.add(
    "gate_not_activated",
    replaced(reference, {"functional.silu(x @ w_gate[:, own])": "(x @ w_gate[:, own])"}),
    "plausible",
    "The gate has lost its silu.",
)
wrong.add(
    "up_activated",
    replaced(
        reference,
        {
            "functional.silu(x @ w_gate[:, own]) * (x @ w_up[:, own])": (
                "(x @ w_gate[:, own]) * functional.silu(x @ w_up[:, own])"
            )
        },
    ),
    "gate and up exchanged",
    "silu belongs to the gate, not to up.",
)


def brought(given: tuple[Tensor, ...], rank: int, n: int) -> Tensor:
    """A rank's part of the sum."""
    parts: list[Tensor] = []

    def bring(part: Tensor) -> Tensor:
        parts.append(part)
        return part

    x, w_gate, w_up, w_down, bias = given
    reference(x, w_gate, w_up, w_down, bias, rank, n, bring)
    return parts[0]


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """One rank among others that do as they should. With `unlike` they have other numbers than
    those that this rank is given in their places."""
    *given, rank, n = case.args
    others = torch.zeros_like(given[0])
    for other in range(n):
        if other != rank:
            others = others + brought(tuple(given), other, n)
    others = -others if case.kwargs.get("unlike") else others
    all_reduce = AllReduce(others, n)
    found = answer.call("mlp_rank", *given, rank, n, all_reduce)
    return {**all_reduce.seen(), "the result": found}


def cases(rng: random.Random) -> list[Case]:
    """One rank alone; first, last and middle ranks; one column each; one sequence and many."""

    def case(B: int, D: int, F: int, rank: int, n: int, public: bool = True) -> Case:
        shapes = (B, D), (D, F), (D, F), (F, D), (D,)
        x, gate, up, down, bias = (normal(rng, *shape) for shape in shapes)
        given = (x, gate / D**0.5, up / D**0.5, down / F**0.5, bias)  # sums of about 1
        name = f"B={B}, D={D}, F={F}, rank {rank} of {n}"
        return Case(name, (*given, rank, n), public=public)

    def large() -> Case:
        """One row, one number: a part of 90,000, which half precision lacks."""
        x, gate = torch.tensor([[300.0]]), torch.tensor([[1.0, 1.0]])
        up, down = torch.tensor([[3.0, 1.0]]), torch.tensor([[1 / 3], [1 / 3]])
        return Case("results past 65,504, rank 0 of 2", (x, gate, up, down, torch.ones(1), 0, 2))

    ones = torch.ones(1, 2), torch.ones(2, 1), torch.ones(2, 1), torch.ones(1, 2)
    return [
        case(2, 3, 4, 0, 1),
        case(2, 3, 4, 0, 2),
        case(2, 3, 4, 1, 2),
        unlike(case(2, 3, 4, 1, 2)),
        case(1, 4, 6, 2, 3),
        case(3, 4, 12, 1, 4),
        case(3, 4, 12, 3, 4),
        case(4, 1, 5, 4, 5),
        case(1, 6, 8, 7, 8),
        case(edges.past(2048), 1, 2, 1, 2),
        case(1, edges.past(2048), 2, 0, 2),
        case(2, 2, 2 * edges.past(256), 1, 2),
        case(2, 3, 2 * edges.past(16), 16, edges.past(16)),
        large(),
        Case("a bias of ±1,000", (*ones, torch.tensor([1000.0, -1000.0]), 0, 1)),
        case(rng.randrange(2, 6), rng.randrange(2, 6), 18, 4, 6, public=False),
    ]


EXERCISE = Exercise(
    id="sharding-mlp",
    title="One rank's part of an MLP",
    kind="kernel",
    points=4,
    minutes=15,
    entries=("mlp_rank",),
    cases=cases,
    observe=observe,
    reference={"mlp_rank": reference},
    compare=SUMS,
    misconceptions=tuple(wrong),
    hints=(
        "Columns of w_gate and w_up make numbers of the inner vector; which rows of w_down use"
        " them?",
        "The same F/n: w_gate[:, own], w_up[:, own], w_down[own, :]. What comes out is [B, D], and"
        " a part of each sum.",
        "One all_reduce of that [B, D], at the end; then the bias, once.",
    ),
    ranges={"n": (1, 17), "x.shape[0]": (1, 2053)},
    recall=(
        "Why are w_up's columns cut, and w_down's rows?",
        (
            "Then the activation works on each rank's columns alone, and one sum at the end is all"
            " that is sent."
        ),
    ),
)
