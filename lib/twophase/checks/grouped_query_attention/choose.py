"""grouped_query_attention-choose: which number of KV heads for this budget."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.grouped_query_attention import _budgets
from twophase.checks.grouped_query_attention._budgets import (
    Budget,
    Option,
    edges_of_choices,
    fresh,
)
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def _mean(losses: list[float]) -> float:
    return sum(losses) / len(losses)


def _median(losses: list[float]) -> float:
    return statistics.median(losses)


def chosen(
    budget: Budget,
    options: list[Option],
    possible: Callable[[Budget, int], bool],
    loss: Callable[[list[float]], float],
    margin: float,
) -> int | None:
    """The smallest K among the possible ones whose loss is at most `margin` above the lowest of
    theirs."""
    left: dict[int, float] = {
        o["K"]: loss(o["losses"]) for o in options if possible(budget, o["K"])
    }
    if not left:
        return None
    lowest = min(left.values())
    return min(K for K, found in left.items() if found <= lowest + margin)


def reference(budget: Budget, options: list[Option]) -> int | None:
    """The right answer."""
    return chosen(budget, options, _budgets.possible, _mean, budget["margin"])


wrong.add(
    "memory_left_out",
    replaced(reference, {"_budgets.possible": "_budgets.in_time"}),
    "plausible",
    "You never look at the memory: weights and the caches of the whole batch must fit.",
)
wrong.add(
    "time_left_out",
    replaced(reference, {"_budgets.possible": "_budgets.fits"}),
    "plausible",
    "You never look at the step: reading weights and caches must not take longer than allowed.",
)
wrong.add(
    "lowest_loss",
    replaced(reference, {'budget["margin"]': "0.0"}),
    "differences between seeds taken for differences between models",
    "You took the lowest mean loss. Within the margin two means count as equal, and then the"
    " smaller cache decides.",
)
wrong.add(
    "luckiest_seed",
    replaced(reference, {"_mean": "min"}),
    "the best of three runs reported",
    "You compare the luckiest seeds. A seed is chance: compare the means.",
)
wrong.add(
    "first_seed",
    replaced(reference, {"_mean": "lambda losses: losses[0]"}),
    "one run of each",
    "You compare one seed of each. Compare the means over all of them.",
)
wrong.add(
    "middle_seed",
    replaced(reference, {"_mean": "_median"}),
    "the median of three runs reported",
    "You compare the middle ones of the losses. Compare their means.",
)


@wrong(
    "“fewer heads cost quality”, taken for a law",
    "You took the largest K that is possible. More KV heads need not mean a lower loss: look at the"
    " losses.",
)
def largest(budget: Budget, options: list[Option]) -> int | None:
    return max((o["K"] for o in options if _budgets.possible(budget, o["K"])), default=None)


@wrong(
    "MQA for every model that is served",
    "You took the smallest K. It is the cheapest to serve, but its loss may lie more than the"
    " margin above the best.",
)
def smallest(budget: Budget, options: list[Option]) -> int | None:
    return min((o["K"] for o in options if _budgets.possible(budget, o["K"])), default=None)


@wrong(
    "plausible",
    "You measured the margin from the best of all options. One that is not possible sets no mark:"
    " leave it out first.",
)
def margin_from_the_impossible(budget: Budget, options: list[Option]) -> int | None:
    lowest = min(_mean(o["losses"]) for o in options)
    good = [o["K"] for o in options if _mean(o["losses"]) <= lowest + budget["margin"]]
    return min((K for K in good if _budgets.possible(budget, K)), default=None)


@wrong(
    "“fewer heads cost quality”, taken for a law",
    "You measured the margin from the largest K that is possible. The lowest mean sets the mark,"
    " and more KV heads need not have it.",
)
def margin_from_the_largest(budget: Budget, options: list[Option]) -> int | None:
    left = {o["K"]: _mean(o["losses"]) for o in options if _budgets.possible(budget, o["K"])}
    mark = left[max(left)] + budget["margin"] if left else 0.0
    return min((K for K, found in left.items() if found <= mark), default=None)


@wrong(
    "tolerances in per cent",
    "You took the margin for a share of the best loss. It is a difference: add it.",
)
def margin_as_a_share(budget: Budget, options: list[Option]) -> int | None:
    left = {o["K"]: _mean(o["losses"]) for o in options if _budgets.possible(budget, o["K"])}
    highest = min(left.values(), default=0.0) * (1 + budget["margin"])
    return min((K for K, found in left.items() if found <= highest), default=None)


@wrong(
    "a budget for one conversation",
    "You counted one sequence. The memory must hold, and the step must read, the caches of the"
    " whole batch.",
)
def one_sequence(budget: Budget, options: list[Option]) -> int | None:
    return reference({**budget, "batch": 1}, options)


@wrong(
    "caches only",
    "You left the weights out: they lie in the same memory, and every step reads them.",
)
def weights_left_out(budget: Budget, options: list[Option]) -> int | None:
    free = {**budget, "other_params": 0, "D": 0}
    return reference(free, options)


@wrong(
    "lecture tables that change the cache only",
    "Your weights are those of multi-head attention at every K. Key and value projections shrink"
    " with K, and that may decide.",
)
def weights_of_multi_head(budget: Budget, options: list[Option]) -> int | None:
    more = 2 * budget["L"] * budget["D"] * budget["N"] * budget["H"]

    def possible(b: Budget, K: int) -> bool:
        back = 2 * b["L"] * b["D"] * K * b["H"]
        return _budgets.possible({**b, "other_params": b["other_params"] + more - back}, K)

    return chosen(budget, options, possible, _mean, budget["margin"])


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """What is chosen, and whether it is one of the options."""
    budget, options = case.args
    K = plain(answer.call("choose", budget, options))
    known = K is None or (type(K) is int and any(o["K"] == K for o in options))
    return {"the choice": K if known else "none of the options, and not None"}


def cases(rng: random.Random) -> list[Case]:
    """Edges first: full to the last byte, just in time, means just within the margin; then models
    of real size."""
    return [*edges_of_choices(), *(fresh(rng) for _ in range(8))]


EXERCISE = Exercise(
    id="grouped_query_attention-choose",
    title="How many KV heads for this budget",
    kind="judgement",
    points=5,
    minutes=25,
    entries=("choose",),
    cases=cases,
    observe=observe,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "First strike out what is not possible: memory, then time. Only then look at losses.",
        (
            "Bytes of a choice: (other_params + 2·L·D·(N + K)·H)·b for the weights, batch·n_tokens·"
            "2·L·K·H·b for the caches. Both must fit, and both are read in a step."
        ),
        (
            "Of what is left take the lowest mean loss; then the smallest K whose mean is at most"
            " margin above it."
        ),
    ),
    recall=(
        "Two models' mean losses differ by less than their seeds do. Which one do you serve?",
        "The one with the smaller cache: the losses do not tell the two apart.",
    ),
)
