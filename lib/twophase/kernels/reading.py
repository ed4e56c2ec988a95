"""Reading memory as fast as it comes: from eight places of an array in turns.

A processor runs ahead of a loop by itself, but for each place on its own, and an Intel processor no
further than the end of a page of 4 KiB. So a loop that goes from one end to the other may leave
memory idle: two cores of an Intel Xeon, the one machine where this was timed, read 18 to 20 GB/s
so, and 22 to 29 from eight places; on another day 20 to 24, and 24 to 28. As a yardstick
(`measure.yardsticks`) this loop adds up squares, which takes no time beside the read. From one
place it is the control: the same loop, another order.
"""

import numba
import numpy as np
import torch

from twophase.kernels.compiled.linear import share
from twophase.kernels.compiled.loops import inner, loop
from twophase.kernels.compiled.threads import workers_even_if_forked
from twophase.kernels.compiled.widened import STEP, add_totals, nothing, plus_products, read

PLACES = 8


def sum_of_squares(x: torch.Tensor, places: int = PLACES) -> float:
    """Σ x², of a contiguous fp32 tensor on the CPU, of any shape; each number is read once. Sums
    are fp32, of as many parts as there are threads. Each thread reads from eight places of its part
    in turns, or from one end to the other (`places` 1). Raises ValueError for another tensor, and
    for other places."""
    if places not in (1, PLACES):
        raise ValueError(f"sum_of_squares reads from 1 place or from {PLACES}; got {places!r}.")
    if x.dtype != torch.float32 or x.device.type != "cpu" or not x.is_contiguous():
        raise ValueError(
            "sum_of_squares reads a contiguous fp32 tensor on the CPU; got"
            f" {x.dtype}{'' if x.is_contiguous() else ', not contiguous,'} on {x.device}."
        )
    n = workers_even_if_forked()
    sums = np.zeros(n, np.float32)
    _add_squares.on(n)(x.detach().numpy().reshape(-1), places == 1, sums)  # [numbers]
    return float(sums.sum())


@loop
def _add_squares(x: np.ndarray, in_order: bool, sums: np.ndarray) -> None:
    """A run of x for each sum, [workers]."""
    for worker in numba.prange(len(sums)):
        begin, end = share(worker, len(sums), len(x))
        sums[worker] = _squares(x, begin, end, in_order)


@inner
def _squares(x: np.ndarray, begin: int, end: int, in_order: bool) -> np.float32:
    turns = (end - begin) // (PLACES * STEP)
    whole = turns * PLACES * STEP
    # eight places lie an eighth apart and go on by a step a turn; in order it is the other way
    apart, step = (STEP, PLACES * STEP) if in_order else (turns * STEP, STEP)
    a = b = c = d = e = f = g = h = nothing()
    for i in range(begin, begin + turns * step, step):
        here = read(x, i)
        a = plus_products(a, here, here)
        here = read(x, i + apart)
        b = plus_products(b, here, here)
        here = read(x, i + 2 * apart)
        c = plus_products(c, here, here)
        here = read(x, i + 3 * apart)
        d = plus_products(d, here, here)
        here = read(x, i + 4 * apart)
        e = plus_products(e, here, here)
        here = read(x, i + 5 * apart)
        f = plus_products(f, here, here)
        here = read(x, i + 6 * apart)
        g = plus_products(g, here, here)
        here = read(x, i + 7 * apart)
        h = plus_products(h, here, here)
    sums = np.zeros(PLACES, np.float32)
    add_totals(sums, 0, (a, b, c, d, e, f, g, h))
    total = sums.sum()
    for i in range(begin + whole, end):
        total += x[i] * x[i]
    return total  # type: ignore[no-any-return]
