"""What a series of timings says about the machine: seconds as a sum of terms, each with a cost that
cannot be negative."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np


@dataclass(frozen=True)
class Fit:
    """`cost[name]`: seconds per unit of that term. `worst` is the largest relative miss over the
    points of the fit."""

    cost: dict[str, float]
    worst: float

    def seconds(self, **terms: float) -> float:
        """What the fit expects; terms left out count as 0. Raises ValueError for a term that the
        fit does not know, and for an amount that is negative or infinite."""
        unknown = sorted(set(terms) - set(self.cost))
        if unknown:
            raise ValueError(f"The fit has no term {unknown[0]!r}; it has {', '.join(self.cost)}.")
        for name, amount in terms.items():
            if not 0 <= amount < math.inf:
                raise ValueError(f"An amount of {name} is a number of at least 0; got {amount}.")
        return sum(self.cost[name] * amount for name, amount in terms.items())


def fit_seconds(terms: Mapping[str, Sequence[float]], seconds: Sequence[float]) -> Fit:
    """Seconds as a sum of `cost x amount` over the terms, costs zero or more, smallest squared
    *relative* misses.

    `terms[name]` holds the amount of that term at every point; all ones is what each point costs
    anyway. Points in which a term is small weigh as much as large ones, since misses are relative.
    Raises ValueError if lengths differ, a time is not positive, an amount is NaN or infinite, there
    are fewer points than terms, or the terms cannot be told apart at these points.
    """
    names = list(terms)
    times = np.asarray(seconds, dtype=float)
    if not names or any(len(terms[name]) != len(times) for name in names):
        raise ValueError(f"Every term needs {len(times)} amounts, one for each time.")
    if not ((times > 0) & np.isfinite(times)).all() or len(times) < len(names):
        raise ValueError(
            f"A fit of {len(names)} terms needs at least as many times, all positive and finite;"
            f" got {len(times)}."
        )
    amounts = (
        np.array([terms[name] for name in names], dtype=float).T / times[:, None]
    )  # [points, terms]
    if not np.isfinite(amounts).all():
        raise ValueError("An amount of a term is NaN or infinite: leave that point out.")
    scale = np.abs(amounts).max(axis=0)
    if (scale == 0).any() or np.linalg.matrix_rank(amounts / scale, tol=1e-9) < len(names):
        raise ValueError("These points cannot tell the terms apart: vary each term on its own.")
    found = non_negative(amounts / scale, np.ones(len(times))) / scale
    misses = np.abs(amounts @ found - 1)
    return Fit(dict(zip(names, map(float, found), strict=True)), float(misses.max()))


def non_negative(amounts: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The least squares solution of `amounts @ x = target` with x >= 0, [terms]: the best over all
    choices of which terms are zero. ValueError for NaN and infinity: LAPACK may not end on them."""
    if not (np.isfinite(amounts).all() and np.isfinite(target).all()):
        raise ValueError("Least squares are of finite numbers; got NaN or infinity among them.")
    n = amounts.shape[1]
    free: np.ndarray = np.linalg.lstsq(amounts, target, rcond=None)[0]
    if (free >= 0).all():
        return free
    best, least = np.zeros(n), float(target @ target)
    for size in range(1, n + 1):
        for kept in map(list, combinations(range(n), size)):
            x = np.zeros(n)
            x[kept] = np.linalg.lstsq(amounts[:, kept], target, rcond=None)[0]
            miss = float(((amounts @ x - target) ** 2).sum())
            if (x >= 0).all() and miss < least:
                best, least = x, miss
    return best
