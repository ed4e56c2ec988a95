"""One token through a mixture of experts: the router's choice, then k experts, which are read, and
the others are not.

What it computes is in `kernels.mixture_of_experts`.
"""

from typing import Any, NamedTuple

import numba
import numpy as np

from twophase.kernels.compiled.dot import dots
from twophase.kernels.compiled.linear import activate, share
from twophase.kernels.compiled.loops import inner, loop

_f32 = np.float32


class Choice(NamedTuple):
    """How a router chooses, as in `kernels.mixture_of_experts.route`; bias fp32 [E], zeros where
    there is none."""

    sigmoid: bool
    normalize: bool
    scale: np.float32
    groups: int
    groups_kept: int
    group_top: int
    bias: np.ndarray


@inner
def take_best(values: np.ndarray, best: np.ndarray) -> None:
    """The places of the len(best) largest values, the largest first; NaN is larger than any."""
    taken = np.zeros(len(values), np.bool_)
    for j in range(len(best)):
        top: Any = -1
        for i in range(len(values)):
            if not taken[i] and (top < 0 or values[i] > values[top] or values[i] != values[i]):
                top = i
        best[j], taken[top] = top, True


@inner
def score_experts(logits: np.ndarray, sigmoid: bool, scores: np.ndarray) -> None:
    """Logits [E] as scores: each its sigmoid, or the softmax of all."""
    if sigmoid:
        for e in range(len(logits)):
            scores[e] = _f32(1) / (_f32(1) + np.exp(-logits[e]))
        return
    top, total = logits[0], _f32(0)
    for e in range(len(logits)):
        top = max(top, logits[e])
    for e in range(len(logits)):
        scores[e] = np.exp(logits[e] - top)
        total += scores[e]
    for e in range(len(logits)):
        scores[e] /= total


@inner
def keep_best_groups(values: np.ndarray, groups: int, kept: int, group_top: int) -> None:
    """-inf for every expert outside the `kept` groups whose `group_top` best values sum to most."""
    size = len(values) // groups
    sums, outside = np.zeros(groups, np.float32), np.ones(groups, np.bool_)
    best, best_groups = np.empty(group_top, np.int64), np.empty(kept, np.int64)
    for g in range(groups):
        group = values[g * size : (g + 1) * size]
        take_best(group, best)
        for i in best:
            sums[g] += group[i]
    take_best(sums, best_groups)
    for kept_group in best_groups:
        outside[kept_group] = False
    for e in range(len(values)):
        if outside[e // size]:
            values[e] = -np.inf


@inner
def route(
    logits: np.ndarray, how: Choice, scores: np.ndarray, experts: np.ndarray, weights: np.ndarray
) -> None:
    """The experts int64 [k] of a token, and their weights fp32 [k]; scores [E] is scratch."""
    score_experts(logits, how.sigmoid, scores)
    values = scores + how.bias
    if how.groups_kept < how.groups:
        keep_best_groups(values, how.groups, how.groups_kept, how.group_top)
    take_best(values, experts)
    total = _f32(1)
    if how.normalize:
        total = _f32(1e-20)  # k sigmoids may all have rounded to 0
        for e in experts:
            total += scores[e]
    for j in range(len(experts)):
        weights[j] = scores[experts[j]] / total * how.scale


@inner
def activate_some(
    w_gate: np.ndarray, w_up: np.ndarray, activation: int, h: np.ndarray, begin: int, end: int,
    y: np.ndarray,
) -> None:  # fmt: skip
    """y = activation(w_gate h) · (w_up h) of one expert, [F]: those from `begin` to `end`."""
    ups = np.empty(max(0, end - begin), _f32)
    dots(w_gate, begin, end, h, y, begin)
    dots(w_up, begin, end, h, ups, 0)
    for i in range(len(ups)):
        y[begin + i] = activate(activation, y[begin + i]) * ups[i]


@loop
def visit_experts(
    logits: np.ndarray,
    how: Choice,
    h: np.ndarray,
    w_gate: np.ndarray,
    w_up: np.ndarray,
    w_down: np.ndarray,
    activation: int,
    between: np.ndarray,
    x: np.ndarray,
    workers: int,
) -> None:
    """x [D] += Σ_j weights[j] · expert experts[j] of h [D], those that the router's logits [E]
    choose.

    w_gate, w_up [E, F, D], w_down [E, D, F]; between [k, F] is scratch.
    """
    k, F = between.shape
    experts, weights = np.empty(k, np.int64), np.empty(k, np.float32)
    route(logits, how, np.empty(len(logits), np.float32), experts, weights)
    for worker in numba.prange(workers):
        begin, end = share(worker, workers, k * F)
        for j in range(k):
            e, first, last = experts[j], max(0, begin - j * F), min(F, end - j * F)
            activate_some(w_gate[e], w_up[e], activation, h, first, last, between[j])
    for worker in numba.prange(workers):
        begin, end = share(worker, workers, x.shape[0])
        added = np.empty(end - begin, _f32)
        for j in range(k):
            dots(w_down[experts[j]], begin, end, between[j], added, 0)
            for i in range(end - begin):
                x[begin + i] += weights[j] * added[i]
