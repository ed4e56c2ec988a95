"""Rows of a matrix times a vector, as fast as they are read from memory.

LLVM makes of the plain loop one whose speed hangs on where the vector lies: with an address of 32
beyond a multiple of 64 bytes it read a matrix in bf16 at six tenths of the fastest read, at other
addresses at seven to nine (a Zen 4 with two cores; a program gets other addresses each time). With
four sums of 32 numbers, written with `lanes`, it reads at nine tenths wherever the vector lies. An
Intel Xeon reads it at eight tenths, and at nine if it is asked for 2 KB ahead, also where one row
ends and the next begins; a Zen 4, left alone, was faster by a twentieth.

A short row costs less than its end: to sum the lanes of a register takes as long as hundreds of
numbers. So eight short rows are read together, and their lanes summed together (`dots`), in words
of two bf16 (`widened`), of which a shift and a mask make fp32. One core of that Xeon then reads a
matrix in bf16 with rows of 128 that fits the second-level cache at 50 to 75 GB/s, and at 8 one row
at a time; asking for what is there already would take a third of that.

Which eight rows? The processor itself reads ahead of each place that is read, an Intel one no
further than the end of a page of 4 KiB. On the Xeon eight rows that lie an eighth of the matrix
apart came at 26 to 29 GB/s on two cores where one row after another came at 18 to 20, and torch's
sum at 20 to 22 (`kernels.reading` tells what the order alone was worth then, and on another day,
without products). On a Zen, where that has not been timed, long rows are read one by one, short
ones side by side, asked for 16 KB ahead.
"""

from typing import Any

import numpy as np
from numba.core import types
from numba.extending import overload

from twophase.kernels.compiled.lanes import (
    LANES,
    ZEN,
    add_times,
    has_wide,
    load,
    spread,
    total_of,
)
from twophase.kernels.compiled.loops import inner
from twophase.kernels.compiled.numbers import value_of
from twophase.kernels.compiled.prefetch import address_of, ask, lines_each
from twophase.kernels.compiled.widened import (
    STEP,
    nothing,
    plus_products,
    read_apart,
    write_totals,
    write_totals_apart,
)

_f32 = np.float32
NUMBERS_AT_ONCE = 4 * LANES  # numbers of a row in one pass
ROWS_AT_ONCE = 8  # that are read together
LONG = 1024  # numbers in a row that a Zen reads alone
NEAR_BYTES = 2**17  # of a matrix that is asked for by no one: it lies in the second-level cache
# How far ahead of its use memory is asked for: of a lone row, which a Zen does by itself; of rows
# side by side, in `several`, too.
LONE_AHEAD_BYTES, ROWS_AHEAD_BYTES = 0 if ZEN else 2048, 16384


def dot(w: np.ndarray, row: int, x: np.ndarray) -> Any:
    """One row of a matrix, [rows, n], fp32 or the bits of bf16, times x, fp32 [n]: inside loops."""
    raise NotImplementedError("dot is for compiled code.")


@overload(dot)
def _dot(w, row, x):  # type: ignore[no-untyped-def]
    if _in_lanes(w, x):
        return lambda w, row, x: dot_lanes(w, row, x)
    return lambda w, row, x: dot_plain(w, row, x)


def dots(w: np.ndarray, begin: int, end: int, x: np.ndarray, sums: np.ndarray, at: int) -> None:
    """The rows of a matrix from `begin` to `end` (none where that lies before it), each times x as
    in `dot`: inside loops. What they give goes into sums, fp32, from `at` on."""
    raise NotImplementedError("dots is for compiled code.")


@overload(dots)
def _dots(w, begin, end, x, sums, at):  # type: ignore[no-untyped-def]
    if _in_lanes(w, x, sums):
        if ZEN:
            return lambda w, begin, end, x, sums, at: dots_lanes(w, begin, end, x, sums, at)
        return lambda w, begin, end, x, sums, at: dots_from_places(w, begin, end, x, sums, at)
    return lambda w, begin, end, x, sums, at: dots_one_by_one(w, begin, end, x, sums, at)


def _in_lanes(w: Any, *vectors: Any) -> bool:
    """Whether `load` and `read_apart` can take arrays of these types: they ask for number after
    number, and vectors in fp32. The 16 registers of other processors are too few for the sums."""
    lie = all(array.layout == "C" for array in (w, *vectors))
    fit = w.dtype in (types.float32, types.uint16) and {x.dtype for x in vectors} == {types.float32}
    return lie and fit and has_wide()


@inner
def dot_plain(w: np.ndarray, row: int, x: np.ndarray) -> np.float32:
    """The plain loop."""
    total = _f32(0)
    for i in range(w.shape[1]):
        total += value_of(w[row, i]) * x[i]
    return total


@inner
def dot_lanes(w: np.ndarray, row: int, x: np.ndarray) -> np.float32:
    """The same in four sums of 32 numbers; what fills no pass comes behind, one by one."""
    n = w.shape[1]
    first, whole = row * n, n // NUMBERS_AT_ONCE * NUMBERS_AT_ONCE
    base, lines = address_of(w, first) + LONE_AHEAD_BYTES, lines_each(w, NUMBERS_AT_ONCE, 1)
    a = b = c = d = spread(_f32(0))
    for i in range(0, whole, NUMBERS_AT_ONCE):
        j, k, m = i + LANES, i + 2 * LANES, i + 3 * LANES
        if LONE_AHEAD_BYTES:
            ask(base + i * w.itemsize, lines)
        a = add_times(a, load(w, first + i), load(x, i))
        b = add_times(b, load(w, first + j), load(x, j))
        c = add_times(c, load(w, first + k), load(x, k))
        d = add_times(d, load(w, first + m), load(x, m))
    total: np.float32 = total_of((a, b, c, d))
    for i in range(whole, n):
        total += value_of(w[row, i]) * x[i]
    return total


@inner
def dots_one_by_one(
    w: np.ndarray, begin: int, end: int, x: np.ndarray, sums: np.ndarray, at: int
) -> None:
    """`dots`, a row at a time."""
    for row in range(begin, end):
        sums[at + row - begin] = dot(w, row, x)


@inner
def dots_lanes(
    w: np.ndarray, begin: int, end: int, x: np.ndarray, sums: np.ndarray, at: int
) -> None:
    """The same, eight short rows side by side; what is left over comes behind, row by row."""
    n = max(0, end - begin) // ROWS_AT_ONCE if w.shape[1] < LONG else 0
    for i in range(0, n * ROWS_AT_ONCE, ROWS_AT_ONCE):
        dots_of_eight(w, begin + i, x, sums, at + i)
    dots_of_rest(w, begin, begin + n * ROWS_AT_ONCE, end, x, sums, at)


@inner
def dots_from_places(
    w: np.ndarray, begin: int, end: int, x: np.ndarray, sums: np.ndarray, at: int
) -> None:
    """The same, eight rows together, each from an eighth of them, however long."""
    n = max(0, end - begin) // ROWS_AT_ONCE
    for i in range(n):
        dots_of_eight_apart(w, begin + i, n, x, sums, at + i)
    dots_of_rest(w, begin, begin + n * ROWS_AT_ONCE, end, x, sums, at)


@inner
def dots_of_rest(
    w: np.ndarray, begin: int, whole: int, end: int, x: np.ndarray, sums: np.ndarray, at: int
) -> None:
    """What the rows before `whole`, read together, lack, and those from there on, row by row."""
    if w.shape[1] % STEP:
        add_rest(w, begin, whole, x, sums, at)
    dots_one_by_one(w, whole, end, x, sums, at + whole - begin)


@inner
def dots_of_eight_apart(
    w: np.ndarray, row: int, apart: int, x: np.ndarray, sums: np.ndarray, at: int
) -> None:
    """Eight rows, each so many behind the one before, but for what fills no register. What they
    give goes into sums from `at` on, as far apart."""
    n = w.shape[1]
    m = n * apart
    a = b = c = d = e = f = g = h = nothing()
    for i in range(0, n // STEP * STEP, STEP):
        some, j = read_apart(x, i), row * n + i
        a = plus_products(a, some, read_apart(w, j))
        b = plus_products(b, some, read_apart(w, j + m))
        c = plus_products(c, some, read_apart(w, j + 2 * m))
        d = plus_products(d, some, read_apart(w, j + 3 * m))
        e = plus_products(e, some, read_apart(w, j + 4 * m))
        f = plus_products(f, some, read_apart(w, j + 5 * m))
        g = plus_products(g, some, read_apart(w, j + 6 * m))
        h = plus_products(h, some, read_apart(w, j + 7 * m))
    write_totals_apart(sums, at, apart, (a, b, c, d, e, f, g, h))


@inner
def dots_of_eight(w: np.ndarray, row: int, x: np.ndarray, sums: np.ndarray, at: int) -> None:
    """The eight rows from `row` on, but for what fills no register, asked for ahead unless they lie
    near; sums from `at` on take what they give."""
    n = w.shape[1]
    first, whole = row * n, n // STEP * STEP
    far = w.size * w.itemsize > NEAR_BYTES
    base, lines = address_of(w, first) + ROWS_AHEAD_BYTES, lines_each(w, ROWS_AT_ONCE * STEP, 1)
    a = b = c = d = e = f = g = h = nothing()
    for i in range(0, whole, STEP):
        some, j = read_apart(x, i), first + i
        if far:
            ask(base + ROWS_AT_ONCE * i * w.itemsize, lines)
        a = plus_products(a, some, read_apart(w, j))
        b = plus_products(b, some, read_apart(w, j + n))
        c = plus_products(c, some, read_apart(w, j + 2 * n))
        d = plus_products(d, some, read_apart(w, j + 3 * n))
        e = plus_products(e, some, read_apart(w, j + 4 * n))
        f = plus_products(f, some, read_apart(w, j + 5 * n))
        g = plus_products(g, some, read_apart(w, j + 6 * n))
        h = plus_products(h, some, read_apart(w, j + 7 * n))
    write_totals(sums, at, (a, b, c, d, e, f, g, h))


@inner
def add_rest(w: np.ndarray, begin: int, end: int, x: np.ndarray, sums: np.ndarray, at: int) -> None:
    """What loops by registers leave of these rows: numbers that fill no step."""
    for row in range(begin, end):
        for i in range(w.shape[1] // STEP * STEP, w.shape[1]):
            sums[at + row - begin] += value_of(w[row, i]) * x[i]
