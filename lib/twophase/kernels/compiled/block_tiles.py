"""Attention of one query token to one block of tokens in bf16, in tile registers.

Scores and sums are those of `block_pairs`, rounded as there; an instruction multiplies 16 tokens
with up to 16 heads that share a key, 32 numbers of each. Tokens that fill no 16 go by pairs. A
block of 64 tokens in the second-level cache (32/8 heads of 128) takes 2.3 µs for its scores and 4.6
for its values.

For keys a register holds 16 tokens as they lie in memory, another one the queries, turned once
(`queries_in_tiles`). For values it takes pairs of tokens side by side, which are laid out in a room
of their own, a step ahead of the products.
"""

import numpy as np

from twophase.kernels.compiled.block_pairs import add_pair_values, score_pairs
from twophase.kernels.compiled.lanes import LANES, side_by_side, store
from twophase.kernels.compiled.loops import inner
from twophase.kernels.compiled.prefetch import LINE_BYTES, prefetch_at
from twophase.kernels.compiled.tile_registers import (
    ROW_BYTES,
    ROWS,
    aligned_words,
    clear,
    configuration,
    configure,
    load_rows,
    multiply,
    store_rows,
)

_f32, _u32 = np.float32, np.uint32
# How far ahead of its use everything is asked for: less leaves memory idle during the softmax.
AHEAD_BYTES = 2**15
# Registers: of scores those of 16 tokens; of values the sums of 32 numbers of each head.
SCORES, KEYS, QUERIES, LOW, HIGH, WEIGHTS, LOW_VALUES, HIGH_VALUES = range(8)
Array = np.ndarray
# What `queries_in_tiles` makes: queries as pairs [N, H], and turned [K, groups, H/2, heads]; room
# for the scores of a block; room for values of a KV head, `_together` tokens, twice.
Queries = tuple[Array, Array, Array, Array]


@inner
def queries_in_tiles(q: Array, K: int, width: int, Hv: int) -> Queries:
    """Queries q, bits of bf16 [N, H], for blocks of fewer than `width` tokens with K KV heads.
    Gives this thread's registers the shapes that they need, too. Of the heads that share a key, as
    many as fill a register without a rest, at most 16, go together."""
    N, H = q.shape
    G = N // K
    heads = min(G, ROWS)
    while G % heads:
        heads -= 1
    turned = np.empty((K, G // heads, H // 2, heads), _u32)
    pairs = q.view(_u32)  # [N, H/2]
    for i in range(N):
        for w in range(H // 2):
            turned[i // G, i % G // heads, w, i % heads] = pairs[i, w]
    scores, values = aligned_words(N * width).view(_f32), aligned_words(_together(K) * Hv)
    configure(
        configuration(
            (ROWS, ROWS, ROWS, heads, heads, heads, ROWS // 2, ROWS // 2),
            (4 * heads, ROW_BYTES, 4 * heads, ROW_BYTES, ROW_BYTES, 2 * ROWS, ROW_BYTES, ROW_BYTES),
        )
    )
    return q, turned, scores, values


@inner
def score_tiles(
    q: Queries, keys: Array, upcoming: Array, first: int, n: int, p: Array, column: int
) -> None:
    """p[i, column + s] += q[i] · keys[first + s, i // G], as `score_pairs`. Meanwhile ask for what
    comes next: the rest of the keys, then values of these tokens, in `upcoming`."""
    pairs, turned, room, _ = q
    K, H, groups, heads = keys.shape[1], keys.shape[2], turned.shape[1], turned.shape[3]
    now, end = _lines(keys, first, n)
    later, _ = _lines(upcoming, first, n)
    asked, whole = min(now + AHEAD_BYTES, end), n // ROWS * ROWS
    for s in range(0, whole, ROWS):
        for k in range(K):
            for group in range(k * groups, k * groups + groups):
                clear(SCORES)
                for h in range(0, H, LANES):
                    if group == k * groups:
                        asked = _ask(asked, end, later, ROWS)
                    load_rows(KEYS, keys, ((first + s) * K + k) * H + h, K * H)
                    load_rows(QUERIES, turned, (group * H + h) // 2 * heads, heads)
                    multiply(SCORES, KEYS, QUERIES)
                store_rows(SCORES, room, (group * whole + s) * heads, heads)
    for i in range(len(p)):  # when all have arrived
        for s in range(whole):
            p[i, column + s] += room[(i // heads * whole + s) * heads + i % heads]
    if whole < n:
        score_pairs(pairs, keys, upcoming, first + whole, n - whole, p, column + whole)


@inner
def add_tile_values(
    q: Queries,
    weights: Array,
    column: int,
    values: Array,
    first: int,
    n: int,
    out: Array,
    keys: Array,
    following: int,
) -> None:
    """out[i] += Σ_s weights[i, column + s] · values[first + s, i // G], as `add_pair_values`.
    Meanwhile ask for what comes next: the rest of the values, then n keys from `following` on."""
    _, turned, _, room = q
    K, heads = values.shape[1], turned.shape[3]
    now, end = _lines(values, first, n)
    later, _ = _lines(keys, following, n)
    asked, whole, size = min(now + AHEAD_BYTES, end), n // ROWS * ROWS, len(room) // 2
    together = _together(K)
    steps = -(-whole // together) * K
    for step in range(steps + 1):
        if step < steps:
            s, k, laid = step // K * together, step % K, step % 2 * size
            t = (first + s) * K + k
            asked = _lay_out(values, t, min(together, whole - s), room, laid, asked, end, later)
        if step > 0:
            s, k, laid = (step - 1) // K * together, (step - 1) % K, (step - 1) % 2 * size
            for i in range(k * len(out) // K, (k + 1) * len(out) // K, heads):
                _add_laid_out(weights, i, column + s, min(together, whole - s), room, laid, out)
    if whole < n:
        add_pair_values(
            weights, column + whole, values, first + whole, n - whole, out, keys, following
        )


@inner
def _together(K: int) -> int:
    """Tokens of a KV head that are laid out at once: more, where they follow each other in memory,
    so that sums are fetched and put back less often."""
    return 4 * ROWS if K == 1 else ROWS


@inner
def _lay_out(
    values: Array, row: int, n: int, room: Array, laid: int, asked: int, end: int, later: int
) -> int:
    """Values of n tokens of a KV head, the first of which are row `row` of [tokens·K, Hv], into the
    room from word `laid` on: 16 tokens after 16, of which 32 numbers after 32, a row of the two
    registers for each pair of tokens. Returns where to go on with asking."""
    K, Hv = values.shape[1], values.shape[2]
    for s in range(0, n, 2):
        t = (row + s * K) * Hv
        at = laid + s // ROWS * ROWS * Hv // 2 + s % ROWS * ROWS
        for h in range(0, Hv, LANES):
            asked = _ask(asked, end, later, 2)
            store(room, at + h * ROWS // 2, side_by_side(values, t + h, t + h + K * Hv))
    return asked


@inner
def _add_laid_out(
    weights: Array, i: int, column: int, n: int, room: Array, laid: int, out: Array
) -> None:
    """out of the heads from i on += their weights, n columns of them, times what is laid out."""
    Hv, width = out.shape[1], weights.shape[1]
    for h in range(0, Hv, LANES):
        load_rows(LOW, out, i * Hv + h, Hv)
        load_rows(HIGH, out, i * Hv + h + ROWS, Hv)
        for s in range(0, n, ROWS):
            at = laid + (s * Hv + h * ROWS) // 2
            load_rows(WEIGHTS, weights, i * width + column + s, width)
            load_rows(LOW_VALUES, room, at, LANES)
            load_rows(HIGH_VALUES, room, at + ROWS, LANES)
            multiply(LOW, WEIGHTS, LOW_VALUES)
            multiply(HIGH, WEIGHTS, HIGH_VALUES)
        store_rows(LOW, out, i * Hv + h, Hv)
        store_rows(HIGH, out, i * Hv + h + ROWS, Hv)


@inner
def _lines(store: Array, first: int, n: int) -> tuple[int, int]:
    """Where n tokens of a store in bf16 begin and end."""
    row = 2 * store.shape[1] * store.shape[2]
    begin = store.ctypes.data + first * row
    return begin, begin + n * row


@inner
def _ask(asked: int, end: int, later: int, lines: int) -> int:
    """Ask for some lines from address `asked` on; what is behind `end` is at `later`. Returns where
    to go on. (All by addresses: with arrays each line counted references.)"""
    where = asked if asked < end else later + asked - end
    for line in range(lines):
        prefetch_at(where + line * LINE_BYTES)
    return asked + lines * LINE_BYTES
