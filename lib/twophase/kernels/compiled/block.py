"""Attention of one query token to one block of cached tokens: scores, a step of the online softmax,
weighted values.

Keys and values [tokens, K, H] come as whole arrays with the number of a token, never as slices:
that their rows lie side by side is part of the type then, and registers are filled from them
(`widened`). Query head i reads KV head i // G. A tile of scores is 4 heads by 4 tokens where there
are registers for 16 sums, else 2 by 4, or 1 by 4 (`block_products`). A tile of weighted values is 4
heads by one step of a row, or one head by 4 tokens.

The four arrays of an online softmax (Milakov and Gimelshein 2018, arXiv 1805.02867, algorithm 3):
`p` [N, block] scores, then weights; `out` [N, Hv] the sum so far; `top`, `total` [N] its maximum
and the sum of its weights.
"""

import numpy as np

from twophase.kernels.compiled.block_products import four_by_four, one_by_four, two_by_four
from twophase.kernels.compiled.compiling import compiled
from twophase.kernels.compiled.lanes import pick
from twophase.kernels.compiled.loops import inner
from twophase.kernels.compiled.numbers import exp, tanh, value_of
from twophase.kernels.compiled.prefetch import (
    PIECES,
    address_of,
    ask_in_pieces,
    lines_each,
    piece_bytes,
)
from twophase.kernels.compiled.widened import (
    STEP,
    WIDTH,
    add_totals,
    add_totals_of_four,
    add_totals_of_two,
    nothing,
    plus_weighted,
    read,
    write,
)

_f32, _i32 = np.float32, np.int32
BEHIND = 4  # columns that p has behind those of a block's tokens, an even number
Array = np.ndarray


@inner
def score(
    q: Array, keys: Array, upcoming: Array, first: int, n: int, p: Array, column: int
) -> None:
    """p[i, column + s] += q[i] · keys[first + s, i // G] for the n tokens from `first` on.
    Meanwhile ask for what `upcoming` holds of them, their values: a few lines before each tile,
    since most of a burst is dropped.

    q: fp32 [N, H], `arranged` for the keys. Four heads and four tokens at a time, or two, then a
    last head. Behind the last token the last one is multiplied again, and these columns, which p
    needs (BEHIND), are set to zero.
    """
    width = p.shape[1]
    K, H, Hv = keys.shape[1], keys.shape[2], upcoming.shape[2]
    G, whole = len(q) // K, H // WIDTH * WIDTH
    asked = due = address_of(upcoming, first * K * Hv)
    apart = piece_bytes(upcoming, n * K * Hv)
    of_four = G // 4 if WIDTH == 16 and H % STEP == 0 else 0
    more = lines_each(upcoming, 4 * Hv, PIECES * (of_four + (G - 4 * of_four + 1) // 2))
    for s in range(0, n, 4):
        last = min(4, n - s) - 1
        for k in range(K):
            due += 4 * Hv * upcoming.itemsize // PIECES
            t = ((first + s) * K + k) * H
            u, v, z = t + min(1, last) * K * H, t + min(2, last) * K * H, t + last * K * H
            fours = k * G + 4 * of_four
            for i in range(k * G, fours, 4):
                if asked < due:
                    asked = ask_in_pieces(asked, more, apart)
                at = i * width + column + s
                sums = four_by_four(q, i * H, keys, (t, u, v, z), whole)
                add_totals_of_four(p, at, at + width, at + 2 * width, at + 3 * width, sums)
            for i in range(fours, k * G + G, 2):
                if asked < due:
                    asked = ask_in_pieces(asked, more, apart)
                at = i * width + column + s
                if i + 1 < k * G + G:
                    eight = two_by_four(q, i * H, keys, t, u, v, z, whole)
                    add_totals_of_two(p, at, at + width, eight)
                else:
                    add_totals(p, at, one_by_four(q, i * H, keys, t, u, v, z, whole))
            if whole < H:
                score_rest(q, keys, first + s, last + 1, k, whole, p, column + s)
        for behind in range(last + 1, 4):
            p[:, column + s + behind] = _f32(0)


@inner
def score_rest(
    q: Array, keys: Array, first: int, n: int, k: int, whole: int, p: Array, column: int
) -> None:
    """What is left of scores with KV head k: numbers from `whole` on, which fill no register."""
    G = len(q) // keys.shape[1]
    for i in range(k * G, k * G + G):
        for s in range(n):
            total = _f32(0)
            for h in range(whole, keys.shape[2]):
                total += value_of(keys[first + s, k, h]) * q[i, h]
            p[i, column + s] += total


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
    `following` on, those of a later block, meanwhile. out [N, Hv] is `arranged` for the values."""
    K, Hv, H, width = values.shape[1], values.shape[2], keys.shape[2], p.shape[1]
    G, whole, row = len(p) // K, Hv // STEP * STEP, K * Hv
    asked, apart = address_of(keys, following * K * H), piece_bytes(keys, n * K * H)
    for k in range(K):
        fours = k * G + G // 4 * 4
        for h in range(0, whole, STEP):
            t, more = (first * K + k) * Hv + h, lines_each(keys, 4 * H, PIECES * (Hv // STEP))
            for i in range(k * G, fours, 4):
                w, o = i * width + column, i * Hv + h
                asked = four_heads(p, w, values, t, row, n, out, o, asked, more, apart)
                more = 0  # asked for once is enough
            for i in range(fours, k * G + G):
                w, o = i * width + column, i * Hv + h
                asked = one_head(p, w, values, t, row, n, out, o, asked, more, apart)
                more = 0
        for i in range(k * G, k * G + G):
            for s in range(n if whole < Hv else 0):
                for h in range(whole, Hv):
                    out[i, h] += p[i, column + s] * value_of(values[first + s, k, h])


@compiled(inline="always")
def four_heads(
    p: Array,
    w: int,
    values: Array,
    t: int,
    row: int,
    n: int,
    out: Array,
    at: int,
    asked: int,
    more: int,
    apart: int,
) -> int:
    """A step of the values' rows, times the weights of four heads: n tokens, the first of which
    begins at t, each `row` numbers behind the one before. Weights are in p from w on, sums in out
    from `at` on, of other heads a whole row behind. With every fourth token ask for `more` lines
    of each piece from the address `asked` on; returns where to go on."""
    width, Hv = p.shape[1], out.shape[1]
    a, b, c, d = read(out, at), read(out, at + Hv), read(out, at + 2 * Hv), read(out, at + 3 * Hv)
    for s in range(n):
        if s % 4 == 0:
            asked = ask_in_pieces(asked, more, apart)
        x = read(values, t + s * row)
        a = plus_weighted(a, pick(p, w + s), x)
        b = plus_weighted(b, pick(p, w + width + s), x)
        c = plus_weighted(c, pick(p, w + 2 * width + s), x)
        d = plus_weighted(d, pick(p, w + 3 * width + s), x)
    write(out, at, a)
    write(out, at + Hv, b)
    write(out, at + 2 * Hv, c)
    write(out, at + 3 * Hv, d)
    return asked


@compiled(inline="always")
def one_head(
    p: Array,
    w: int,
    values: Array,
    t: int,
    row: int,
    n: int,
    out: Array,
    at: int,
    asked: int,
    more: int,
    apart: int,
) -> int:
    """The same for one head, with four tokens at a time, in sums of their own."""
    a, whole = read(out, at), n // 4 * 4
    b = c = d = (nothing(), nothing())
    for s in range(0, whole, 4):
        asked = ask_in_pieces(asked, more, apart)
        x = t + s * row
        a = plus_weighted(a, pick(p, w + s), read(values, x))
        b = plus_weighted(b, pick(p, w + s + 1), read(values, x + row))
        c = plus_weighted(c, pick(p, w + s + 2), read(values, x + 2 * row))
        d = plus_weighted(d, pick(p, w + s + 3), read(values, x + 3 * row))
    for s in range(whole, n):
        a = plus_weighted(a, pick(p, w + s), read(values, t + s * row))
    one = _f32(1)
    write(out, at, plus_weighted(plus_weighted(a, one, b), one, plus_weighted(c, one, d)))
    return asked
