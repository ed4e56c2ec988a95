"""Attention of one query token to one block of tokens in bf16, as products of pairs of bf16.

Scores and sums are those of `block`, but queries and weights are rounded to bf16, and an
instruction multiplies 32 numbers, not 16. torch's own attention in bf16 rounds weights so, too. A
number below 2⁻¹²⁶ counts as zero. A score pairs a head's numbers h and h + 1; a weighted sum pairs
the tokens s and s + 1, whose values stand side by side in registers while four heads are served.
"""

from typing import Any

import numpy as np

from twophase.kernels.compiled.compiling import compiled
from twophase.kernels.compiled.lanes import (
    LANES,
    add_pairs,
    add_times,
    load,
    pick,
    side_by_side,
    spread,
    store,
    store_totals,
)
from twophase.kernels.compiled.loops import inner
from twophase.kernels.compiled.numbers import value_of
from twophase.kernels.compiled.prefetch import prefetch

_f32, _u32 = np.float32, np.uint32
PAIRED = 2 * LANES  # numbers of a key that fill the registers
# How far ahead keys are asked for: those of a task's first block nobody else has asked for.
AHEAD_BYTES = 8192
Array = np.ndarray


@inner
def score_pairs(
    q: Array, keys: Array, upcoming: Array, first: int, n: int, p: Array, column: int
) -> None:
    """p[i, column + s] += q[i] · keys[first + s, i // G], as `block.score`; q: bits of bf16 [N, H],
    H a multiple of 32. Two heads and four tokens at a time, all in one function: four tokens in one
    of their own took a third longer."""
    K, H, Hv = keys.shape[1], keys.shape[2], upcoming.shape[2]
    q2, keys2 = q.view(_u32), keys.view(_u32)  # [N, W], [tokens, K, W]: two bf16 in each
    G, W, nothing, sums = len(q) // K, H // 2, spread(_f32(0)), np.empty(8, _f32)
    whole = W // LANES * LANES  # where half a register of pairs may be left: 32 numbers
    for s in range(0, n, 4):
        last = min(4, n - s) - 1
        for k in range(K):
            at = AHEAD_BYTES // keys.itemsize + (s * K + 4 * k) * H
            prefetch(keys, first, min(at, n * K * H), min(at + 4 * H, n * K * H))
            at = (s * K + (last + 1) * k) * Hv
            prefetch(upcoming, first, at, at + (last + 1) * Hv)
            t = ((first + s) * K + k) * W
            u, v, z = t + min(1, last) * K * W, t + min(2, last) * K * W, t + last * K * W
            rest = 2 * (t + whole), 2 * (u + whole), 2 * (v + whole), 2 * (z + whole)
            for i in range(k * G, k * G + G, 2):
                j = min(i + 1, k * G + G - 1)
                a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = nothing
                for w in range(0, whole, LANES):
                    x, y = load(q2, i * W + w), load(q2, j * W + w)
                    key = load(keys2, t + w)
                    a0, b0 = add_pairs(a0, key, x), add_pairs(b0, key, y)
                    key = load(keys2, u + w)
                    a1, b1 = add_pairs(a1, key, x), add_pairs(b1, key, y)
                    key = load(keys2, v + w)
                    a2, b2 = add_pairs(a2, key, x), add_pairs(b2, key, y)
                    key = load(keys2, z + w)
                    a3, b3 = add_pairs(a3, key, x), add_pairs(b3, key, y)
                if whole < W:
                    a0, a1, a2, a3 = plus_row((a0, a1, a2, a3), q, i * H + 2 * whole, keys, rest)
                    b0, b1, b2, b3 = plus_row((b0, b1, b2, b3), q, j * H + 2 * whole, keys, rest)
                store_totals(sums, 0, (a0, a1, a2, a3, b0, b1, b2, b3))
                for c in range(last + 1):
                    p[i, column + s + c] += sums[c]
                    p[j, column + s + c] += sums[4 + c] if j > i else _f32(0)


@compiled(inline="always")
def plus_row(sums: Any, q: Array, i: int, keys: Array, places: Any) -> Any:
    """Four sums, each with 32 products more: of a query's numbers from number i of q on, and of a
    key's from one of four places in `keys` on."""
    a, b, c, d = sums
    t, u, v, z = places
    x = load(q, i)
    a, b = add_times(a, load(keys, t), x), add_times(b, load(keys, u), x)
    return a, b, add_times(c, load(keys, v), x), add_times(d, load(keys, z), x)


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
    """out[i] += Σ_s weights[i, column + s] · values[first + s, i // G], and ask for the keys
    of as many tokens from `following` on, as `block.add_values`; weights: bits of bf16 [N, width],
    width and column even. Hv is a multiple of 32. Four heads at a time, then two; a last token
    without a partner is multiplied alone. Keys are asked for in the order of memory: rows in turns
    took a fifth longer.
    """
    K, Hv, H = values.shape[1], values.shape[2], keys.shape[2]
    pairs = weights.view(_u32)  # [N, W]: the weights of two tokens in each
    G, W, at = len(weights) // K, pairs.shape[1], 0
    for k in range(K):
        fours = k * G + G // 4 * 4
        for h in range(0, Hv, LANES):
            more = 2 * LANES * H // Hv
            for i in range(k * G, fours, 4):
                o = i * Hv + h
                a, b = load(out, o), load(out, o + Hv)
                c, d = load(out, o + 2 * Hv), load(out, o + 3 * Hv)
                for s in range(0, n - 1, 2):
                    prefetch(keys, following, at, at + more)
                    at += more
                    t, w = ((first + s) * K + k) * Hv + h, i * W + (column + s) // 2
                    two = side_by_side(values, t, t + K * Hv)
                    a, b = add_pairs(a, two, pick(pairs, w)), add_pairs(b, two, pick(pairs, w + W))
                    c = add_pairs(c, two, pick(pairs, w + 2 * W))
                    d = add_pairs(d, two, pick(pairs, w + 3 * W))
                more = 0  # asked for once is enough
                store(out, o, a)
                store(out, o + Hv, b)
                store(out, o + 2 * Hv, c)
                store(out, o + 3 * Hv, d)
            for i in range(fours, k * G + G, 2):
                j = min(i + 1, k * G + G - 1)  # a last head goes with itself
                a, b = load(out, i * Hv + h), load(out, j * Hv + h)
                for s in range(0, n - 1, 2):
                    prefetch(keys, following, at, at + more)
                    at += more
                    t, w = ((first + s) * K + k) * Hv + h, (column + s) // 2
                    two = side_by_side(values, t, t + K * Hv)
                    a = add_pairs(a, two, pick(pairs, i * W + w))
                    b = add_pairs(b, two, pick(pairs, j * W + w))
                more = 0
                store(out, i * Hv + h, a)
                store(out, j * Hv + h, b)
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
