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
)
from twophase.kernels.compiled.loops import inner
from twophase.kernels.compiled.numbers import value_of
from twophase.kernels.compiled.pair_registers import PAIRED, plus_pairs, read_pairs
from twophase.kernels.compiled.prefetch import (
    PIECES,
    address_of,
    ask_in_pieces,
    lines_each,
    piece_bytes,
)
from twophase.kernels.compiled.widened import (
    add_totals,
    add_totals_of_four,
    add_totals_of_two,
    nothing,
)

_f32, _u32 = np.float32, np.uint32
Array = np.ndarray


@inner
def score_pairs(
    q: Array, keys: Array, upcoming: Array, first: int, n: int, p: Array, column: int
) -> None:
    """p[i, column + s] += q[i] · keys[first + s, i // G], as `block.score`, which asks for what
    `upcoming` holds, too. q: bits of bf16 [N, H], H a multiple of 32. Four heads and four tokens at
    a time, so that each row is read once for four products; then two heads, then one."""
    K, H, Hv, width = keys.shape[1], keys.shape[2], upcoming.shape[2], p.shape[1]
    G, row = len(q) // K, K * H
    asked = due = address_of(upcoming, first * K * Hv)
    apart = piece_bytes(upcoming, n * K * Hv)
    more = lines_each(upcoming, 4 * Hv, PIECES * (G // 4 + (G % 4 + 1) // 2))
    for s in range(0, n, 4):
        last = min(4, n - s) - 1
        for k in range(K):
            t = ((first + s) * K + k) * H
            tokens = t, t + min(1, last) * row, t + min(2, last) * row, t + last * row
            fours, behind = k * G + G // 4 * 4, k * G + G
            due += 4 * Hv * upcoming.itemsize // PIECES
            for i in range(k * G, fours, 4):
                if asked < due:
                    asked = ask_in_pieces(asked, more, apart)
                at = i * width + column + s
                sums = four_by_four_in_pairs(q, i * H, keys, tokens, H)
                add_totals_of_four(p, at, at + width, at + 2 * width, at + 3 * width, sums)
            for i in range(fours, behind, 2):
                if asked < due:
                    asked = ask_in_pieces(asked, more, apart)
                at = i * width + column + s
                if i + 1 < behind:
                    sums = two_by_four_in_pairs(q, i * H, keys, tokens, H)
                    add_totals_of_two(p, at, at + width, sums)
                else:
                    add_totals(p, at, one_by_four_in_pairs(q, i * H, keys, tokens, H))
        for behind in range(last + 1, 4):
            p[:, column + s + behind] = _f32(0)


@compiled(inline="always")
def one_by_four_in_pairs(q: Array, i: int, keys: Array, tokens: Any, H: int) -> Any:
    """The query whose first number is number i of q, times four keys, given by the places of
    theirs: 4 sums, as registers whose lanes are still to be added."""
    t, u, v, z = tokens
    a = b = c = d = nothing()
    for h in range(0, H, PAIRED):
        x = read_pairs(q, i + h)
        a, b = plus_pairs(a, read_pairs(keys, t + h), x), plus_pairs(b, read_pairs(keys, u + h), x)
        c, d = plus_pairs(c, read_pairs(keys, v + h), x), plus_pairs(d, read_pairs(keys, z + h), x)
    return a, b, c, d


@compiled(inline="always")
def two_by_four_in_pairs(q: Array, i: int, keys: Array, tokens: Any, H: int) -> Any:
    """The same for this query and the one behind it: 8 sums."""
    t, u, v, z = tokens
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = nothing()
    for h in range(0, H, PAIRED):
        x, y = read_pairs(q, i + h), read_pairs(q, i + H + h)
        key = read_pairs(keys, t + h)
        a0, b0 = plus_pairs(a0, key, x), plus_pairs(b0, key, y)
        key = read_pairs(keys, u + h)
        a1, b1 = plus_pairs(a1, key, x), plus_pairs(b1, key, y)
        key = read_pairs(keys, v + h)
        a2, b2 = plus_pairs(a2, key, x), plus_pairs(b2, key, y)
        key = read_pairs(keys, z + h)
        a3, b3 = plus_pairs(a3, key, x), plus_pairs(b3, key, y)
    return a0, a1, a2, a3, b0, b1, b2, b3


@compiled(inline="always")
def four_by_four_in_pairs(q: Array, i: int, keys: Array, tokens: Any, H: int) -> Any:
    """The same for four queries: 16 sums."""
    t, u, v, z = tokens
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = nothing()
    c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = nothing()
    for h in range(0, H, PAIRED):
        k0, k1 = read_pairs(keys, t + h), read_pairs(keys, u + h)
        k2, k3 = read_pairs(keys, v + h), read_pairs(keys, z + h)
        x = read_pairs(q, i + h)
        a0, a1 = plus_pairs(a0, k0, x), plus_pairs(a1, k1, x)
        a2, a3 = plus_pairs(a2, k2, x), plus_pairs(a3, k3, x)
        x = read_pairs(q, i + H + h)
        b0, b1 = plus_pairs(b0, k0, x), plus_pairs(b1, k1, x)
        b2, b3 = plus_pairs(b2, k2, x), plus_pairs(b3, k3, x)
        x = read_pairs(q, i + 2 * H + h)
        c0, c1 = plus_pairs(c0, k0, x), plus_pairs(c1, k1, x)
        c2, c3 = plus_pairs(c2, k2, x), plus_pairs(c3, k3, x)
        x = read_pairs(q, i + 3 * H + h)
        d0, d1 = plus_pairs(d0, k0, x), plus_pairs(d1, k1, x)
        d2, d3 = plus_pairs(d2, k2, x), plus_pairs(d3, k3, x)
    return a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3


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
    G, row = len(weights) // K, K * Hv
    asked, apart = address_of(keys, following * K * H), piece_bytes(keys, n * K * H)
    for k in range(K):
        fours = k * G + G // 4 * 4
        for h in range(0, Hv, LANES):
            more, t = lines_each(keys, 4 * H, PIECES * (Hv // LANES)), (first * K + k) * Hv + h
            for i in range(k * G, fours, 4):
                asked = four_heads_in_pairs(
                    pairs, i, column, values, t, row, n, out, h, asked, more, apart
                )
                more = 0  # asked for once is enough
            for i in range(fours, k * G + G, 2):
                j = min(i + 1, k * G + G - 1)  # a last head goes with itself
                asked = two_heads_in_pairs(
                    pairs, i, j, column, values, t, row, n, out, h, asked, more, apart
                )
                more = 0
    if n % 2:
        add_last(weights, column + n - 1, values, first + n - 1, out)


@compiled(inline="always")
def four_heads_in_pairs(
    pairs: Array, i: int, column: int, values: Array, t: int, row: int, n: int, out: Array, h: int,
    asked: int, more: int, apart: int,
) -> int:  # fmt: skip
    """32 numbers of the values' rows, times the weights of four heads from i on, two tokens at a
    time: n tokens, of which an odd one is left; the first begins at t, each `row` numbers behind
    the one before. Weights are in `pairs` [N, width / 2] from that of an even column on, sums in
    out from number h on. With every four tokens ask for `more` lines of each piece from the
    address `asked` on; returns where to go on."""
    W, Hv = pairs.shape[1], out.shape[1]
    at, w = i * Hv + h, i * W + column // 2
    a, b = load(out, at), load(out, at + Hv)
    c, d = load(out, at + 2 * Hv), load(out, at + 3 * Hv)
    for s in range(0, n - 1, 2):
        if s % 4 == 0:
            asked = ask_in_pieces(asked, more, apart)
        two, m = side_by_side(values, t + s * row, t + s * row + row), w + s // 2
        a = add_pairs(a, two, pick(pairs, m))
        b = add_pairs(b, two, pick(pairs, m + W))
        c = add_pairs(c, two, pick(pairs, m + 2 * W))
        d = add_pairs(d, two, pick(pairs, m + 3 * W))
    store(out, at, a)
    store(out, at + Hv, b)
    store(out, at + 2 * Hv, c)
    store(out, at + 3 * Hv, d)
    return asked


@compiled(inline="always")
def two_heads_in_pairs(
    pairs: Array, i: int, j: int, column: int, values: Array, t: int, row: int, n: int, out: Array,
    h: int, asked: int, more: int, apart: int,
) -> int:  # fmt: skip
    """The same for heads i and j, which may be one."""
    W, Hv = pairs.shape[1], out.shape[1]
    a, b = load(out, i * Hv + h), load(out, j * Hv + h)
    for s in range(0, n - 1, 2):
        if s % 4 == 0:
            asked = ask_in_pieces(asked, more, apart)
        two, m = side_by_side(values, t + s * row, t + s * row + row), (column + s) // 2
        a = add_pairs(a, two, pick(pairs, i * W + m))
        b = add_pairs(b, two, pick(pairs, j * W + m))
    store(out, i * Hv + h, a)
    store(out, j * Hv + h, b)
    return asked


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
