"""One row of a matrix times a vector, as fast as the row is read from memory.

LLVM makes of the plain loop one whose speed hangs on where the vector lies: with an address of 32
beyond a multiple of 64 bytes it read a matrix in bf16 at six tenths of the fastest read, at other
addresses at seven to nine (a Zen 4 with two cores; a program gets other addresses each time). With
four sums of 32 numbers, written with `lanes`, it reads at nine tenths wherever the vector lies. An
Intel Xeon reads it at eight tenths, and at nine if it is asked for 2 KB ahead, also where one row
ends and the next begins; a Zen 4, left alone, was faster by a twentieth.
"""

from typing import Any

import numpy as np
from llvmlite.binding import get_host_cpu_name  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import overload

from twophase.kernels.compiled.lanes import LANES, add_times, has_wide, load, spread, total_of
from twophase.kernels.compiled.loops import inner
from twophase.kernels.compiled.numbers import value_of
from twophase.kernels.compiled.prefetch import prefetch

_f32 = np.float32
TOGETHER = 4 * LANES  # numbers of a row in one pass
AHEAD_BYTES = 0 if get_host_cpu_name().startswith("znver") else 2048


def dot(w: np.ndarray, row: int, x: np.ndarray) -> Any:
    """One row of a matrix, [rows, n], fp32 or the bits of bf16, times x, fp32 [n]: inside loops."""
    raise NotImplementedError("dot is for compiled code.")


@overload(dot)
def _dot(w, row, x):  # type: ignore[no-untyped-def]
    # `load` asks for number after number; 16 registers of other processors are too few for the sums
    fits = w.layout == x.layout == "C" and x.dtype == types.float32 and has_wide()
    if fits and w.dtype in (types.float32, types.uint16):
        return lambda w, row, x: dot_lanes(w, row, x)
    return lambda w, row, x: dot_plain(w, row, x)


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
