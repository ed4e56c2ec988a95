"""pruning-choose: what to remove for this budget, within 5 % of brute force."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions
from twophase.checks.pruning import _removals as r

wrong = Misconceptions()

Loss = Callable[[list[int]], float]
NEAR = 1.05  # times the lowest loss


def reference(loss: Loss, sizes: list[int], budget: int) -> list[int]:
    """The right answer: all sets are tried."""
    units = range(len(sizes))
    every = [list(s) for k in range(len(sizes) + 1) for s in combinations(units, k)]
    return min((s for s in every if fits(sizes, s, budget)), key=loss)


def fits(sizes: list[int], removed: list[int], budget: int) -> bool:
    return sum(sizes) - sum(sizes[u] for u in removed) <= budget


def until_it_fits(order: list[int], sizes: list[int], budget: int) -> list[int]:
    """Remove in this order until the rest fits."""
    removed: list[int] = []
    for unit in order:
        if fits(sizes, removed, budget):
            break
        removed.append(unit)
    return removed


@wrong(
    "one ranking by leave one out",
    "You ranked the units once and removed from the bottom. Two that stand in for each other are"
    " both at the bottom, and together they are missed.",
)
def ranked_once(loss: Loss, sizes: list[int], budget: int) -> list[int]:
    order = sorted(range(len(sizes)), key=lambda u: loss([u]))
    return until_it_fits(order, sizes, budget)


@wrong(
    "one ranking, by the byte",
    "You ranked the units once, by what a byte of each is worth. What two cost together, and what"
    " the last one removed frees beyond need, no ranking says.",
)
def ranked_by_byte(loss: Loss, sizes: list[int], budget: int) -> list[int]:
    whole = loss([])
    order = sorted(range(len(sizes)), key=lambda u: (loss([u]) - whole) / sizes[u])
    return until_it_fits(order, sizes, budget)


@wrong(
    "one step at a time",
    "You removed the cheapest next one, again and again. Two of one circuit each cost much, and"
    " together little: one step at a time never sees that.",
)
def greedy(loss: Loss, sizes: list[int], budget: int) -> list[int]:
    removed: list[int] = []
    while not fits(sizes, removed, budget):
        left = [u for u in range(len(sizes)) if u not in removed]
        removed.append(min(left, key=lambda u: loss([*removed, u])))
    return removed


@wrong(
    "plausible",
    "You removed the largest units: what a unit is worth is not its size.",
)
def largest_first(loss: Loss, sizes: list[int], budget: int) -> list[int]:
    order = sorted(range(len(sizes)), key=lambda u: -sizes[u])
    return until_it_fits(order, sizes, budget)


@wrong(
    "“the last layers matter least”",
    "You removed the last units, whatever they do.",
)
def last_first(loss: Loss, sizes: list[int], budget: int) -> list[int]:
    return until_it_fits(list(range(len(sizes)))[::-1], sizes, budget)


@wrong(
    "plausible",
    "What is left does not fit: the budget is for the bytes that stay, not for those that go.",
)
def budget_for_what_goes(loss: Loss, sizes: list[int], budget: int) -> list[int]:
    return reference(loss, sizes, sum(sizes) - budget)


@wrong(
    "plausible",
    "You never asked the loss: the fewest bytes removed need not be the ones that matter least.",
)
def fewest_bytes(loss: Loss, sizes: list[int], budget: int) -> list[int]:
    units = range(len(sizes))
    every = [list(s) for k in range(len(sizes) + 1) for s in combinations(units, k)]
    possible = [s for s in every if fits(sizes, s, budget)]
    return min(possible, key=lambda s: sum(sizes[u] for u in s))


@wrong(
    "plausible",
    "You added up the rises of single units. What units cost together is not what each costs"
    " alone: ask the loss for the whole set.",
)
def rises_added(loss: Loss, sizes: list[int], budget: int) -> list[int]:
    whole = loss([])
    rises = [loss([u]) - whole for u in range(len(sizes))]
    return reference(lambda s: sum(rises[u] for u in s), sizes, budget)


FACTS = ("the choice", "the rest fits", "within 5 % of the lowest loss")


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """Whether what is removed is a set of units, the rest fits, and the loss is near the lowest."""
    (model,) = case.args
    n, calls = len(model["sizes"]), 0

    def loss(removed: Any) -> float:
        nonlocal calls
        calls += 1
        units = plain(removed)
        if calls > r.MOST_CALLS:
            raise ValueError(f"loss was called more than {r.MOST_CALLS:,} times")
        if not _are_units(units, n):
            raise ValueError(f"loss(removed) wants a list of different units, 0 to {n - 1}")
        return r.loss_of(model, set(units))

    found = plain(answer.call("to_remove", loss, model["sizes"], model["budget"]))
    if not _are_units(found, n):
        said = f"no list of different units, 0 to {n - 1}"
        return dict(zip(FACTS, (said, False, False), strict=True))
    removed = set(found)
    near = r.loss_of(model, removed) <= NEAR * r.best_loss(model)
    facts = "valid", r.left_bytes(model, removed) <= model["budget"], near
    return dict(zip(FACTS, facts, strict=True))


def _are_units(units: Any, n: int) -> bool:
    return (
        isinstance(units, list | tuple)
        and all(type(u) is int and 0 <= u < n for u in units)
        and len(set(units)) == len(units)
    )


def cases(rng: random.Random) -> list[Case]:
    """Units that stand in for each other and units of one circuit, sizes that differ, everything
    and nothing to be removed; then unseen ones."""
    fresh = [Case(f"fresh {i + 1}", (r.fresh(rng),), public=False) for i in range(4)]
    return [*(Case(name, (model,)) for name, model in r.EDGES.items()), *fresh]


EXERCISE = Exercise(
    id="pruning-choose",
    title="What to remove for this budget",
    kind="judgement",
    points=5,
    minutes=25,
    entries=("to_remove",),
    cases=cases,
    observe=observe,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Why may a ranking by leave one out mislead? Think of two heads that do the same.",
        "With ten units there are 1,024 sets: as many calls as you have.",
        (
            "itertools.combinations(range(n), k) for every k; keep the sets after which the rest"
            " fits; the one with the lowest loss(list(set))."
        ),
    ),
    recall=(
        "Real models have thousands of units. What replaces trying every set?",
        "Scores from few passes, removal in rounds with new scores each time, and then healing.",
    ),
)
