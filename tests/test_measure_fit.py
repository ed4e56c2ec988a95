"""Tests of `twophase.measure.fit`: costs are found again, never negative, and judged by relative
misses."""

from __future__ import annotations

import numpy as np
import pytest

from twophase.measure.fit import fit_seconds

BATCH = [1, 2, 4, 8, 64, 256]


def test_costs_that_made_the_times_are_found_again() -> None:
    held = [100, 7, 2500, 90, 3, 4000]
    seconds = [3e-3 + 2e-5 * B + 4e-8 * h for B, h in zip(BATCH, held, strict=True)]
    fit = fit_seconds({"step": [1] * 6, "sequence": BATCH, "token": held}, seconds)
    assert fit.cost == pytest.approx({"step": 3e-3, "sequence": 2e-5, "token": 4e-8}, rel=1e-9)
    assert fit.worst < 1e-9
    assert fit.seconds(step=1, sequence=10, token=50) == pytest.approx(3e-3 + 2e-4 + 2e-6)


def test_a_cost_that_would_be_negative_is_zero_and_the_others_are_the_best_without_it() -> None:
    seconds = [0.9, 2.1, 4.0, 8.3, 64.0, 256.0]
    shrinking = [1 / B for B in BATCH]
    fit = fit_seconds(
        {"sequence": BATCH, "shrinking": shrinking, "step": [1] * 6},
        [s - 0.05 / s for s in seconds],
    )
    assert min(fit.cost.values()) >= 0


@pytest.mark.parametrize("seed", range(5))
def test_no_other_non_negative_costs_miss_less(seed: int) -> None:
    rng = np.random.default_rng(seed)
    amounts = rng.uniform(0.1, 5, (8, 3))
    seconds = rng.uniform(1, 3, 8)
    names = ["a", "b", "c"]
    fit = fit_seconds({n: amounts[:, i].tolist() for i, n in enumerate(names)}, seconds.tolist())
    found = np.array([fit.cost[n] for n in names])

    def miss(cost: np.ndarray) -> float:
        return float((((amounts @ cost) / seconds - 1) ** 2).sum())

    for _ in range(300):
        assert miss(np.maximum(0, found + rng.normal(0, 0.05, 3))) >= miss(found) - 1e-12


def test_small_times_weigh_as_much_as_large_ones() -> None:
    # one term cannot fit 1 at B=1 and 400 at B=200; with relative misses the answer lies between 1
    # and 2
    cost = fit_seconds({"sequence": [1, 200]}, [1, 400]).cost["sequence"]
    assert cost == pytest.approx((1 / 1 + 200 / 400) / (1 + (200 / 400) ** 2))


@pytest.mark.parametrize(
    ("terms", "seconds", "said"),
    [
        ({}, [1.0], "amounts"),
        ({"a": [1]}, [1.0, 2.0], "2 amounts"),
        ({"a": [1, 2]}, [1.0, 0.0], "positive"),
        ({"a": [1], "b": [2]}, [1.0], "at least as many"),
        ({"a": [1, 2, 3], "b": [2, 4, 6]}, [1.0, 2.0, 3.0], "tell the terms apart"),
        ({"a": [1, 2], "b": [0, 0]}, [1.0, 2.0], "tell the terms apart"),
    ],
)
def test_points_that_say_nothing_are_refused(
    terms: dict[str, list[float]], seconds: list[float], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        fit_seconds(terms, seconds)


def test_a_term_that_the_fit_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="no term 'tokens'"):
        fit_seconds({"step": [1, 1]}, [1.0, 2.0]).seconds(tokens=1)
