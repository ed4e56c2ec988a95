"""Attention of one query token to one block of tokens in bf16, as products of pairs of bf16.

Scores and sums are those of `block`, but queries and weights are rounded to bf16, as torch's own
attention in bf16 rounds them, and 32 numbers are multiplied in an instruction, not 16. A score
pairs a head's numbers h and h + 1; a weighted sum pairs the tokens s and s + 1, whose values stand
side by side in registers while four heads are served.
"""

from typing import Any

import numpy as np

from twophase.kernels.compiled.block import AHEAD_BYTES
from twophase.kernels.compiled.lanes import (
    LANES,
    add_pairs,
    add_times,
    load,
    pick,
    side_by_side,
    spread,
    store,
    total_of,
)
from twophase.kernels.compiled.loops import inner
from twophase.kernels.compiled.numbers import value_of
from twophase.kernels.compiled.prefetch import prefetch

_f32, _u32 = np.float32, np.uint32
PAIRED = 2 * LANES  # numbers of a key that fill the registers
Array = np.ndarray


@inner
def score_pairs(
    q: Array, keys: Array, upcoming: Array, first: int, n: int, p: Array, column: int
) -> None:
    """p[i, column + s] += q[i] · keys[first + s, i // G], as `block.score`; q: bits of bf16 [N, H].
    H is a multiple of 64. (In one text: a call for each key costs more than its products.)
    """
    K, H, Hv = keys.shape[1], keys.shape[2], upcoming.shape[2]
    q2, keys2 = q.view(_u32), keys.view(_u32)  # [N, W], [tokens, K, W]: two bf16 in each
    G, W, nothing = len(q) // K, H // 2, spread(_f32(0))
    ahead = max(2, AHEAD_BYTES // (K * H * keys.itemsize))
    for s in range(0, n, 2):
        t, u, c = first + s, first + min(s + 1, n - 1), column + s
        for k in range(K):
            if s + ahead < n:
                prefetch(keys, t + ahead, k * H, (k + 1) * H)
                prefetch(keys, u + ahead, k * H, (k + 1) * H)
            prefetch(upcoming, t, k * Hv, (k + 1) * Hv)
            prefetch(upcoming, u, k * Hv, (k + 1) * Hv)
            t_key, u_key, fours = (t * K + k) * W, (u * K + k) * W, k * G + G // 4 * 4
            for i in range(k * G, fours, 4):
                a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = nothing
                for w in range(0, W, LANES):
                    x, y, two = load(keys2, t_key + w), load(keys2, u_key + w), load(q2, i * W + w)
                    a0, b0 = add_pairs(a0, x, two), add_pairs(b0, y, two)
                    two = load(q2, (i + 1) * W + w)
                    a1, b1 = add_pairs(a1, x, two), add_pairs(b1, y, two)
                    two = load(q2, (i + 2) * W + w)
                    a2, b2 = add_pairs(a2, x, two), add_pairs(b2, y, two)
                    two = load(q2, (i + 3) * W + w)
                    a3, b3 = add_pairs(a3, x, two), add_pairs(b3, y, two)
                add_two(a0, b0, p, i, c)
                add_two(a1, b1, p, i + 1, c)
                add_two(a2, b2, p, i + 2, c)
                add_two(a3, b3, p, i + 3, c)
            for i in range(fours, k * G + G):
                a0 = b0 = nothing
                for w in range(0, W, LANES):
                    x, y, two = load(keys2, t_key + w), load(keys2, u_key + w), load(q2, i * W + w)
                    a0, b0 = add_pairs(a0, x, two), add_pairs(b0, y, two)
                add_two(a0, b0, p, i, c)


@inner
def add_two(a: Any, b: Any, p: Array, i: int, c: int) -> None:
    """What two registers hold in all, to the scores of two tokens."""
    p[i, c] += total_of(a)
    p[i, c + 1] += total_of(b)


@inner
def add_pair_values(
    weights: Array,
    column: int,
    values: Array,
    first: int,
    n: int,
    out: Array,
    keys: Array,
    following: int,
) -> None:
    """out[i] += Σ_s weights[i, column + s] · values[first + s, i // G], and ask for n tokens' keys
    from `following` on, as `block.add_values`; weights: bits of bf16 [N, width], width and column
    even. Hv is a multiple of 32. A last token without a partner is multiplied alone.
    """
    K, Hv, H = values.shape[1], values.shape[2], keys.shape[2]
    pairs = weights.view(_u32)  # [N, W]: the weights of two tokens in each
    G, W = len(weights) // K, pairs.shape[1]
    asked, step = 0, 2 * LANES * H // Hv
    for k in range(K):
        fours = k * G + G // 4 * 4
        for h in range(0, Hv, LANES):
            more = step
            for i in range(k * G, fours, 4):
                at = i * Hv + h
                a, b = load(out, at), load(out, at + Hv)
                c, d = load(out, at + 2 * Hv), load(out, at + 3 * Hv)
                for s in range(0, n - 1, 2):
                    prefetch(keys, following, asked, asked + more)
                    asked += more
                    t, w = ((first + s) * K + k) * Hv + h, i * W + (column + s) // 2
                    two = side_by_side(values, t, t + K * Hv)
                    a, b = add_pairs(a, two, pick(pairs, w)), add_pairs(b, two, pick(pairs, w + W))
                    c = add_pairs(c, two, pick(pairs, w + 2 * W))
                    d = add_pairs(d, two, pick(pairs, w + 3 * W))
                more = 0  # asked for once is enough
                store(out, at, a)
                store(out, at + Hv, b)
                store(out, at + 2 * Hv, c)
                store(out, at + 3 * Hv, d)
            for i in range(fours, k * G + G):
                a = load(out, i * Hv + h)
                for s in range(0, n - 1, 2):
                    prefetch(keys, following, asked, asked + more)
                    asked += more
                    t = ((first + s) * K + k) * Hv + h
                    two = side_by_side(values, t, t + K * Hv)
                    a = add_pairs(a, two, pick(pairs, i * W + (column + s) // 2))
                more = 0
                store(out, i * Hv + h, a)
    if n % 2:
        add_last(weights, column + n - 1, values, first + n - 1, out)


@inner
def add_last(weights: Array, column: int, values: Array, token: int, out: Array) -> None:
    """out[i] += weights[i, column] · values[token, i // G]."""
    K, Hv = values.shape[1], values.shape[2]
    G = len(weights) // K
    for i in range(len(weights)):
        weight = spread(value_of(weights[i, column]))
        for h in range(0, Hv, LANES):
            x = load(values, (token * K + i // G) * Hv + h)
            store(out, i * Hv + h, add_times(load(out, i * Hv + h), weight, x))
