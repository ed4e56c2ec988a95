"""The products of a layer for a few tokens of one sequence, as a verification of drafted tokens has
them: a row of a matrix that is read once meets all of them.

As `linear` for one token, with a row of every array for each token: `x` fp32 [T, D] is their
stream. Four rows of a matrix and up to five tokens (two, where registers are narrow) are a tile,
whose sums lie in registers (`token_tiles`); the four rows stay in the caches until all tokens have
met them, and from memory they come once. Where registers are wide, but not on a Zen, they come from
four places, a quarter of the matrix apart (`dot` says why), elsewhere one behind the other.
"""

import numba
import numpy as np

from twophase.kernels.compiled.dot import NEAR_BYTES, ROWS_AHEAD_BYTES, add_rest
from twophase.kernels.compiled.lanes import ZEN, has_wide
from twophase.kernels.compiled.linear import activate_all, normalize, scaled_row, share
from twophase.kernels.compiled.loops import inner, loop
from twophase.kernels.compiled.token_tiles import SUM_ROWS, SUM_TOKENS, tile_of, write_tile
from twophase.kernels.compiled.widened import STEP, arranged

_f32 = np.float32
FROM_PLACES = has_wide() and not ZEN  # as `dots`
Array = np.ndarray


@inner
def scaled_rows(table: Array, rows: Array, factor: np.float32) -> Array:
    """`linear.scaled_row` for T tokens: [T, D]."""
    x = np.empty((len(rows), table.shape[1]), _f32)
    for t in range(len(rows)):
        x[t] = scaled_row(table, rows[t], factor)
    return x


@inner
def dots_each(w: Array, begin: int, end: int, x: Array, y: Array, at: int) -> None:
    """The rows of a matrix from `begin` to `end`, each times all tokens x [T, inputs], `arranged`
    for the matrix: into y [T, ...], from the column `at` on."""
    whole = x.shape[1] // STEP * STEP
    far = ROWS_AHEAD_BYTES // w.itemsize if w.size * w.itemsize > NEAR_BYTES else 0
    tiles, rest = max(0, end - begin) // SUM_ROWS, max(0, end - begin) % SUM_ROWS
    for tile in range(tiles):
        if FROM_PLACES:
            dots_of_tile(w, begin + tile, SUM_ROWS, tiles, x, whole, y, at + tile, 0)
        else:
            row = tile * SUM_ROWS
            dots_of_tile(w, begin + row, SUM_ROWS, 1, x, whole, y, at + row, far)
    if rest:
        dots_of_tile(w, end - rest, rest, 1, x, whole, y, at + tiles * SUM_ROWS, 0)
    for t in range(len(x) if whole < x.shape[1] else 0):
        add_rest(w, begin, end, x[t], y[t], at)


@inner
def dots_of_tile(
    w: Array, row: int, rows: int, apart: int, x: Array, n: int, y: Array, at: int, ahead: int
) -> None:
    """Up to four rows, each so many behind the one before, times all tokens, n numbers of each:
    into the columns of y from `at` on, as far apart."""
    groups = -(-len(x) // SUM_TOKENS)
    for group in range(groups):  # 6 tokens are 3 and 3: a tile of one waits for its own sums
        t, behind = share(group, groups, len(x))
        dots_of_group(w, row, rows, apart, x, t, behind - t, n, y, at, 0 if group else ahead)


@inner
def dots_of_group(
    w: Array, row: int, rows: int, apart: int, x: Array, t: int, tokens: int, n: int, y: Array,
    at: int, ahead: int,
) -> None:  # fmt: skip
    """`dots_of_tile` for up to five tokens, from t on. Fewer than four rows: the last is taken
    again, and goes nowhere."""
    there = rows == SUM_ROWS and apart == 1
    sums = y if there else np.empty((tokens, SUM_ROWS), _f32)
    place, behind = (t * y.shape[1] + at, y.shape[1]) if there else (0, SUM_ROWS)
    k, m = w.shape[1] * apart, x.shape[1]
    a, first = row * w.shape[1], t * m
    four = a, a + min(1, rows - 1) * k, a + min(2, rows - 1) * k, a + (rows - 1) * k
    if tokens == 1:
        write_tile(sums, place, behind, tile_of(w, four, x, (first,), n, ahead))
    elif tokens == 2:
        write_tile(sums, place, behind, tile_of(w, four, x, (first, first + m), n, ahead))
    elif tokens == 3:
        three = first, first + m, first + 2 * m
        write_tile(sums, place, behind, tile_of(w, four, x, three, n, ahead))
    elif tokens == 4:
        all_four = first, first + m, first + 2 * m, first + 3 * m
        write_tile(sums, place, behind, tile_of(w, four, x, all_four, n, ahead))
    else:
        five = first, first + m, first + 2 * m, first + 3 * m, first + 4 * m
        write_tile(sums, place, behind, tile_of(w, four, x, five, n, ahead))
    for r in range(0 if there else rows):
        for i in range(tokens):
            y[t + i, at + r * apart] = sums[i, r]


@inner
def project_each(
    w: Array, x: Array, bias: Array, first: int, begin: int, end: int, y: Array
) -> None:
    """y = w x + bias for all tokens, where w's rows begin at `first` of y's columns: those from
    `begin` to `end` of y."""
    begin, end = max(0, begin - first), min(w.shape[0], end - first)  # of w
    dots_each(w, begin, end, x, y, first + begin)
    begin, end = first + begin, first + end  # of y
    for t in range(len(y)):
        y[t, begin:end] += bias[begin:end]  # whole rows: with an index, no vectors


@inner
def normalize_each(x: Array, scale: Array, shift: Array, eps: np.float32) -> Array:
    """`linear.normalize` of every token: [T, D]."""
    h = np.empty_like(x)
    for t in range(len(x)):
        normalize(x[t], scale, shift, eps, h[t])
    return h


@loop
def project_several(
    x: Array, scale: Array, shift: Array, eps: np.float32, w_first: Array, w_second: Array,
    w_third: Array, bias: Array, y: Array, workers: int,
) -> None:  # fmt: skip
    """`linear.norm_project` for T tokens: y [T, outputs]."""
    h = normalize_each(x, scale, shift, eps)
    for_first, for_second = arranged(h, w_first), arranged(h, w_second)
    for_third = arranged(h, w_third)
    second, third = w_first.shape[0], w_first.shape[0] + w_second.shape[0]
    for worker in numba.prange(workers):
        begin, end = share(worker, workers, y.shape[1])
        project_each(w_first, for_first, bias, 0, begin, end, y)
        project_each(w_second, for_second, bias, second, begin, end, y)
        project_each(w_third, for_third, bias, third, begin, end, y)


@loop
def activate_several(
    x: Array, scale: Array, shift: Array, eps: np.float32, w_gate: Array, w_up: Array, bias: Array,
    activation: int, y: Array, workers: int,
) -> None:  # fmt: skip
    """`linear.norm_activate` for T tokens: y [T, F]."""
    h = normalize_each(x, scale, shift, eps)
    for_gate, for_up, gates = arranged(h, w_gate), arranged(h, w_up), w_gate.shape[0]
    ups = np.empty_like(y)
    for worker in numba.prange(workers):
        begin, end = share(worker, workers, y.shape[1])
        if gates:
            project_each(w_gate, for_gate, bias, 0, begin, end, y)
            project_each(w_up, for_up, bias[gates:], 0, begin, end, ups)
        else:
            project_each(w_up, for_up, bias, 0, begin, end, y)
        for t in range(len(y)):
            activate_all(activation, y[t, begin:end])
            if gates:
                y[t, begin:end] *= ups[t, begin:end]


@loop
def add_several(w: Array, bias: Array, h: Array, x: Array, workers: int) -> None:
    """`linear.project_add` for T tokens: x [T, D] += h [T, inputs] wᵀ + bias."""
    asked, y = arranged(h, w), np.empty_like(x)
    for worker in numba.prange(workers):
        begin, end = share(worker, workers, x.shape[1])
        project_each(w, asked, bias, 0, begin, end, y)
        for t in range(len(x)):
            x[t, begin:end] += y[t, begin:end]


@loop
def add_norm_several(
    w: Array, bias: Array, h: Array, scale: Array, shift: Array, eps: np.float32, x: Array,
    workers: int,
) -> None:  # fmt: skip
    """`linear.project_norm_add` for T tokens: x [T, D] += norm(h [T, inputs] wᵀ + bias)."""
    asked, y = arranged(h, w), np.empty_like(x)
    for worker in numba.prange(workers):
        begin, end = share(worker, workers, x.shape[1])
        project_each(w, asked, bias, 0, begin, end, y)
    x += normalize_each(y, scale, shift, eps)
