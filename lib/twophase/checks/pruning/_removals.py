"""Tiny models for pruning-choose: what their loss is without some of their units."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

Model = dict[str, Any]  # base, rises, sizes, together, budget
MOST_CALLS = 1_100


def loss_of(model: Model, removed: set[int]) -> float:
    """The loss without these units."""
    alone = sum(model["rises"][u] for u in removed)
    together = sum(x for units, x in model["together"] if removed.issuperset(units))
    return float(model["base"] + alone + together)


def left_bytes(model: Model, removed: set[int]) -> int:
    return sum(size for u, size in enumerate(model["sizes"]) if u not in removed)


def sets(model: Model) -> list[set[int]]:
    """Everything that may be removed so that the rest fits."""
    n = len(model["sizes"])
    found = [set(s) for k in range(n + 1) for s in combinations(range(n), k)]
    return [s for s in found if left_bytes(model, s) <= model["budget"]]


def best_loss(model: Model) -> float:
    return min(loss_of(model, s) for s in sets(model))


def model(
    rises: list[float],
    sizes: list[int],
    budget: int,
    together: list[tuple[tuple[int, ...], float]] | None = None,
    base: float = 1.0,
) -> Model:
    return {
        "base": base,
        "rises": rises,
        "sizes": sizes,
        "together": together or [],
        "budget": budget,
    }


def fresh(rng: random.Random) -> Model:
    n = rng.randrange(5, 9)
    rises = [rng.uniform(0.01, 0.6) for _ in range(n)]
    sizes = [rng.randrange(1, 9) * 1000 for _ in range(n)]
    together: list[tuple[tuple[int, ...], float]] = []
    for i, j in rng.sample(list(combinations(range(n), 2)), n // 2):
        room = -min(rises[i], rises[j]) * 0.8
        together.append(((i, j), rng.choice((rng.uniform(room, 0), rng.uniform(0.2, 1.0)))))
    return model(rises, sizes, int(sum(sizes) * rng.uniform(0.35, 0.75)), together)


EDGES: dict[str, Model] = {
    "equal sizes, nothing in common": model([0.1, 0.4, 0.2, 0.8], [10, 10, 10, 10], 20),
    "two that stand in for each other": model(
        [0.02, 0.03, 0.2, 0.25], [10, 10, 10, 10], 20, [((0, 1), 1.5)]
    ),
    "two of one circuit": model([0.5, 0.5, 0.3, 0.35], [10, 10, 10, 10], 20, [((0, 1), -0.45)]),
    "three that stand in for each other": model(
        [0.02, 0.03, 0.04, 0.3, 0.35], [10] * 5, 20, [((0, 1, 2), 1.5)]
    ),
    "a circuit of four among cheaper ones": model(
        [3.0] * 4 + [0.5] * 6, [10] * 4 + [5] * 6, 30, [((0, u), -3.0) for u in (1, 2, 3)]
    ),
    "one large unit for two small ones": model([0.3, 0.25, 0.28, 0.9], [40, 20, 20, 60], 100),
    "a large unit that hardly matters more": model([0.1, 0.12, 0.11, 0.2], [10, 10, 10, 90], 30),
    "just fits": model([0.1, 0.5, 0.3], [10, 10, 10], 20),
    "one byte too little": model([0.1, 0.5, 0.3], [10, 10, 10], 19),
    "everything fits: nothing goes": model([0.1, 0.5, 0.3], [10, 10, 10], 30),
    "everything fits, and one does harm": model([-0.2, 0.5, 0.3], [10, 10, 10], 30),
    "no budget: everything goes": model([0.1, 0.5, 0.3], [10, 10, 10], 0),
    "ten units, no budget: everything goes": model([0.1] * 10, [10] * 10, 0),
    "one unit must go": model([0.4], [10], 9),
    "the cheapest by the byte leaves too much over": model(
        [0.05, 0.5, 0.3, 0.9], [10, 100, 55, 200], 265
    ),
    "three small for one large": model([0.09, 0.1, 0.11, 0.2, 0.9], [20, 20, 20, 60, 80], 140),
    "a trap for one step at a time": model(
        [0.1, 0.3, 0.3, 0.9], [10, 10, 10, 10], 20, [((0, 1), 0.8), ((0, 2), 0.8), ((1, 2), -0.25)]
    ),
    "the last ones matter least": model([0.9, 0.8, 0.7, 0.1, 0.05], [10] * 5, 30),
    "the first ones matter least": model([0.05, 0.1, 0.7, 0.8, 0.9], [10] * 5, 30),
    "sizes in millions of bytes": model(
        [0.3, 0.1, 0.25, 0.2, 0.5],
        [40_000_000, 12_000_000, 30_000_000, 30_000_000, 9_000_000],
        60_000_000,
    ),
    # a byte is less than a hundred-millionth of these; float32 rounds what stays up, then down
    "hundreds of millions of bytes, just fits": model(
        [0.1, 0.5, 0.3], [120_000_011, 100_000_006, 90_000_007], 190_000_013
    ),
    "hundreds of millions of bytes, one byte too little": model(
        [0.1, 0.5, 0.3], [120_000_006, 100_000_001, 90_000_002], 190_000_002
    ),
    "a loss beyond 1e20": model([5e20, 1e20, 3e20], [10, 10, 10], 20, base=2e20),
    # whoever takes a later set only if it is 5 % better keeps the first
    "the second is better by 5.2 %": model([-7.948, -8.0], [10, 10], 10, [((0, 1), 12.0)], 9.0),
    "the first is better by 5.2 %": model([-8.0, -7.948], [10, 10], 10, [((0, 1), 12.0)], 9.0),
    "ten units, one must go": model([0.3] * 7 + [0.1, 0.2, 0.4], [10] * 10, 90),
    "ten units, the seventh and the last must go": model(
        [0.3] * 6 + [0.1, 0.3, 0.3, 0.1], [10] * 10, 80
    ),
    "ten units, two circuits": model(
        [0.2, 0.3, 0.25, 0.1, 0.4, 0.35, 0.15, 0.5, 0.45, 0.05],
        [3, 5, 4, 2, 6, 7, 3, 8, 5, 1],
        22,
        [((1, 2), -0.2), ((4, 5), -0.3), ((0, 3), 0.6), ((6, 9), 0.5), ((3, 6), 0.4)],
    ),
    "ten units, equal sizes": model(
        [0.02, 0.04, 0.06, 0.3, 0.1, 0.12, 0.5, 0.16, 0.18, 0.2],
        [10] * 10,
        50,
        [((0, 1), 0.9), ((2, 4), 0.7), ((7, 8), -0.12), ((5, 9), 0.3)],
    ),
}
