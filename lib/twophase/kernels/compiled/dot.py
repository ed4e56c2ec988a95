"""Rows of a matrix times a vector, as fast as they are read from memory.

LLVM makes of the plain loop one whose speed hangs on where the vector lies: with an address of 32
beyond a multiple of 64 bytes it read a matrix in bf16 at six tenths of the fastest read, at other
addresses at seven to nine (a Zen 4 with two cores; a program gets other addresses each time). With
four sums of 32 numbers, written with `lanes`, it reads at nine tenths wherever the vector lies. An
Intel Xeon reads it at eight tenths, and at nine if it is asked for 2 KB ahead, also where one row
ends and the next begins; a Zen 4, left alone, was faster by a twentieth.

Rows that lie in a cache are short, or few. There the end of a row costs more than the row: to sum
the lanes of a register takes as long as 128 numbers of weights or more. So eight rows are read side
by side, and their lanes summed together (`dots`): a matrix of rows of 128 in bf16 that fits the
second-level cache is read at 59 GB/s, one row at a time at 8; with rows of 1,024 at 64 and 28.
"""

from typing import Any

import numpy as np
from llvmlite.binding import get_host_cpu_name  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import overload

from twophase.kernels.compiled.lanes import (
    LANES,
    add_times,
    has_wide,
    load,
    spread,
    store_totals,
    total_of,
)
from twophase.kernels.compiled.loops import inner
from twophase.kernels.compiled.numbers import value_of
from twophase.kernels.compiled.prefetch import prefetch

_f32 = np.float32
TOGETHER = 4 * LANES  # numbers of a row in one pass
ROWS = 8  # that are read side by side
AHEAD_BYTES = 0 if get_host_cpu_name().startswith("znver") else 2048


def dot(w: np.ndarray, row: int, x: np.ndarray) -> Any:
    """One row of a matrix, [rows, n], fp32 or the bits of bf16, times x, fp32 [n]: inside loops."""
    raise NotImplementedError("dot is for compiled code.")


@overload(dot)
def _dot(w, row, x):  # type: ignore[no-untyped-def]
    if _in_lanes(w, x):
        return lambda w, row, x: dot_lanes(w, row, x)
    return lambda w, row, x: dot_plain(w, row, x)


def dots(w: np.ndarray, row: int, end: int, x: np.ndarray, sums: np.ndarray) -> int:
    """The rows from `row` on, ROWS of them or fewer before `end`, each times x as in `dot`: inside
    loops. Puts what they give into sums, fp32 [ROWS]; returns how many they were."""
    raise NotImplementedError("dots is for compiled code.")


@overload(dots)
def _dots(w, row, end, x, sums):  # type: ignore[no-untyped-def]
    if not _in_lanes(w, x):
        return lambda w, row, end, x, sums: dots_one_by_one(w, row, end, x, sums)

    def rows(w, row, end, x, sums):  # type: ignore[no-untyped-def]
        if end - row < ROWS:
            return dots_one_by_one(w, row, end, x, sums)
        dots_lanes(w, row, x, sums)
        return ROWS

    return rows


def _in_lanes(w: Any, x: Any) -> bool:
    """Whether `load` can read arrays of these types, which asks for number after number; the 16
    registers of other processors are too few for the sums."""
    fits = w.layout == x.layout == "C" and x.dtype == types.float32 and has_wide()
    return fits and w.dtype in (types.float32, types.uint16)


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
    first, whole = row * n, n // TOGETHER * TOGETHER
    a = b = c = d = spread(_f32(0))
    for i in range(0, whole, TOGETHER):
        j, k, m = i + LANES, i + 2 * LANES, i + 3 * LANES
        if AHEAD_BYTES:
            soon = first + i + AHEAD_BYTES // w.itemsize
            prefetch(w, 0, soon, soon + TOGETHER)
        a = add_times(a, load(w, first + i), load(x, i))
        b = add_times(b, load(w, first + j), load(x, j))
        c = add_times(c, load(w, first + k), load(x, k))
        d = add_times(d, load(w, first + m), load(x, m))
    total: np.float32 = total_of((a, b, c, d))
    for i in range(whole, n):
        total += value_of(w[row, i]) * x[i]
    return total


@inner
def dots_one_by_one(w: np.ndarray, row: int, end: int, x: np.ndarray, sums: np.ndarray) -> int:
    """`dots`, a row at a time."""
    n = min(ROWS, end - row)
    for i in range(n):
        sums[i] = dot(w, row + i, x)
    return n


@inner
def dots_lanes(w: np.ndarray, row: int, x: np.ndarray, sums: np.ndarray) -> None:
    """Eight rows from `row` on, side by side."""
    n = w.shape[1]
    first, whole = row * n, n // LANES * LANES
    a = b = c = d = e = f = g = h = spread(_f32(0))
    for i in range(0, whole, LANES):
        some, at = load(x, i), first + i
        a = add_times(a, load(w, at), some)
        b = add_times(b, load(w, at + n), some)
        c = add_times(c, load(w, at + 2 * n), some)
        d = add_times(d, load(w, at + 3 * n), some)
        e = add_times(e, load(w, at + 4 * n), some)
        f = add_times(f, load(w, at + 5 * n), some)
        g = add_times(g, load(w, at + 6 * n), some)
        h = add_times(h, load(w, at + 7 * n), some)
    store_totals(sums, (a, b, c, d, e, f, g, h))
    for i in range(whole, n):
        for k in range(ROWS):
            sums[k] += value_of(w[row + k, i]) * x[i]
