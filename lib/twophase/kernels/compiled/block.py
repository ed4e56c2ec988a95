"""Attention of one query token to one block of cached tokens: scores, a step of the online softmax,
weighted values.

Keys and values [tokens, K, H] come as whole arrays with the number of a token, never as slices:
that their rows lie side by side is part of the type then, and the loops over H run on vectors.
Query head i reads KV head i // G; a key that is read once serves four heads in registers, and four
values at a time are added to the output. A tile of 2 keys by 4 heads reads 2 rows of keys and 4 of
queries for 8 products; one key with one head reads 2 rows for 1.

The four arrays of an online softmax (Milakov and Gimelshein 2018, arXiv 1805.02867, algorithm 3):
`p` [N, block] scores, then weights; `out` [N, Hv] the sum so far; `top`, `total` [N] its maximum
and the sum of its weights.
"""

import numpy as np

from twophase.kernels.compiled.loops import inner
from twophase.kernels.compiled.numbers import exp, tanh, value_of
from twophase.kernels.compiled.prefetch import prefetch

_f32, _i32 = np.float32, np.int32
# How far ahead keys are asked for: those of a task's first block nobody else has asked for.
AHEAD_BYTES = 8192
Array = np.ndarray


@inner
def score(
    q: Array, keys: Array, upcoming: Array, first: int, n: int, p: Array, column: int
) -> None:
    """p[i, column + s] += q[i] · keys[first + s, i // G] for the n tokens from `first` on.
    Meanwhile ask for their keys some tokens ahead, and for what `upcoming` holds of them: their
    values.

    q: fp32 [N, H]. Two tokens a pass: p has an even width, and where n is odd
    the last token fills two columns, of which the second means nothing.
    """
    K, H = keys.shape[1], keys.shape[2]
    Hv = upcoming.shape[2]
    G = len(q) // K
    ahead = max(2, AHEAD_BYTES // (K * H * keys.itemsize))
    for s in range(0, n, 2):
        t, u, c = first + s, first + min(s + 1, n - 1), column + s
        for k in range(K):
            if s + ahead < n:  # what lies behind a block may be anybody's
                prefetch(keys, t + ahead, k * H, (k + 1) * H)
                prefetch(keys, u + ahead, k * H, (k + 1) * H)
            prefetch(upcoming, t, k * Hv, (k + 1) * Hv)
            prefetch(upcoming, u, k * Hv, (k + 1) * Hv)
            fours, twos = k * G + G // 4 * 4, k * G + G // 2 * 2
            for i in range(k * G, fours, 4):
                score_four(q, i, keys, t, u, k, p, c)
            for i in range(fours, twos, 2):
                score_two(q, i, keys, t, u, k, p, c)
            for i in range(twos, k * G + G):
                score_one(q, i, keys, t, u, k, p, c)


@inner
def score_four(q: Array, i: int, keys: Array, t: int, u: int, k: int, p: Array, s: int) -> None:
    """Scores of the heads i to i + 3, which read KV head k, with the tokens t and u."""
    a = b = c = d = e = f = g = j = _f32(0)
    for h in range(keys.shape[2]):
        x, y = value_of(keys[t, k, h]), value_of(keys[u, k, h])
        a += x * q[i, h]
        b += x * q[i + 1, h]
        c += x * q[i + 2, h]
        d += x * q[i + 3, h]
        e += y * q[i, h]
        f += y * q[i + 1, h]
        g += y * q[i + 2, h]
        j += y * q[i + 3, h]
    p[i, s] += a
    p[i + 1, s] += b
    p[i + 2, s] += c
    p[i + 3, s] += d
    p[i, s + 1] += e
    p[i + 1, s + 1] += f
    p[i + 2, s + 1] += g
    p[i + 3, s + 1] += j


@inner
def score_two(q: Array, i: int, keys: Array, t: int, u: int, k: int, p: Array, s: int) -> None:
    """Scores of the heads i and i + 1."""
    a = b = e = f = _f32(0)
    for h in range(keys.shape[2]):
        x, y = value_of(keys[t, k, h]), value_of(keys[u, k, h])
        a += x * q[i, h]
        b += x * q[i + 1, h]
        e += y * q[i, h]
        f += y * q[i + 1, h]
    p[i, s] += a
    p[i + 1, s] += b
    p[i, s + 1] += e
    p[i + 1, s + 1] += f


@inner
def score_one(q: Array, i: int, keys: Array, t: int, u: int, k: int, p: Array, s: int) -> None:
    """Scores of the head i."""
    a = e = _f32(0)
    for h in range(keys.shape[2]):
        a += value_of(keys[t, k, h]) * q[i, h]
        e += value_of(keys[u, k, h]) * q[i, h]
    p[i, s] += a
    p[i, s + 1] += e


@inner
def soften(
    p: Array, n: int, scale: np.float32, softcap: np.float32, out: Array, top: Array, total: Array
) -> None:
    """Products of n tokens into weights: p becomes exp(scale·p − top), where top is the largest
    score scale·p so far; what was summed under a smaller one shrinks accordingly.

    A positive `softcap` first bounds the scores: softcap·tanh(scale·p / softcap).
    """
    for i in range(len(p)):
        largest = _rank(top[i])
        for s in range(n):
            p[i, s] *= scale
            if softcap > 0:
                p[i, s] = softcap * tanh(p[i, s] / softcap)
            largest = max(largest, _rank(p[i, s]))
        new = _from_rank(largest)
        shrink = exp(top[i] - new)
        summed = total[i] * shrink
        for s in range(n):
            p[i, s] = exp(p[i, s] - new)
            summed += p[i, s]
        top[i], total[i] = new, summed
        for h in range(out.shape[1]):
            out[i, h] *= shrink


@inner
def _rank(x: np.float32) -> np.int32:
    """An int32 in the order of fp32 numbers, NaN above inf (or below -inf: both come through): a
    maximum of integers runs on vectors, one of floats that respects NaN does not."""
    bits = _f32(x).view(_i32)
    return _i32(bits ^ _i32(_i32(bits >> _i32(31)) & _i32(0x7FFFFFFF)))


@inner
def _from_rank(rank: np.int32) -> np.float32:
    return _i32(rank ^ _i32(_i32(rank >> _i32(31)) & _i32(0x7FFFFFFF))).view(_f32)


@inner
def add_values(
    p: Array,
    column: int,
    values: Array,
    first: int,
    n: int,
    out: Array,
    keys: Array,
    following: int,
) -> None:
    """out[i] += Σ_s p[i, column + s] · values[first + s, i // G], and ask for n tokens' keys from
    `following` on, those of a later block, meanwhile."""
    K, Hv = values.shape[1], values.shape[2]
    H = keys.shape[2]
    G = len(p) // K
    whole = n // 4 * 4
    for k in range(K):
        fours = k * G + G // 4 * 4
        for s in range(0, whole, 4):
            t, c = first + s, column + s
            prefetch(keys, following, (k * n + s) * H, (k * n + s + 4) * H)
            for i in range(k * G, fours, 4):
                a0, a1, a2, a3 = p[i, c], p[i, c + 1], p[i, c + 2], p[i, c + 3]
                b0, b1, b2, b3 = p[i + 1, c], p[i + 1, c + 1], p[i + 1, c + 2], p[i + 1, c + 3]
                c0, c1, c2, c3 = p[i + 2, c], p[i + 2, c + 1], p[i + 2, c + 2], p[i + 2, c + 3]
                d0, d1, d2, d3 = p[i + 3, c], p[i + 3, c + 1], p[i + 3, c + 2], p[i + 3, c + 3]
                for h in range(Hv):
                    w, x = value_of(values[t, k, h]), value_of(values[t + 1, k, h])
                    y, z = value_of(values[t + 2, k, h]), value_of(values[t + 3, k, h])
                    out[i, h] += a0 * w + a1 * x + a2 * y + a3 * z
                    out[i + 1, h] += b0 * w + b1 * x + b2 * y + b3 * z
                    out[i + 2, h] += c0 * w + c1 * x + c2 * y + c3 * z
                    out[i + 3, h] += d0 * w + d1 * x + d2 * y + d3 * z
            for i in range(fours, k * G + G):
                a0, a1, a2, a3 = p[i, c], p[i, c + 1], p[i, c + 2], p[i, c + 3]
                for h in range(Hv):
                    w, x = value_of(values[t, k, h]), value_of(values[t + 1, k, h])
                    y, z = value_of(values[t + 2, k, h]), value_of(values[t + 3, k, h])
                    out[i, h] += a0 * w + a1 * x + a2 * y + a3 * z
        for s in range(whole, n):
            for i in range(k * G, k * G + G):
                weight = p[i, column + s]
                for h in range(Hv):
                    out[i, h] += weight * value_of(values[first + s, k, h])
