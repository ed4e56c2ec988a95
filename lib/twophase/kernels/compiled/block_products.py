"""Queries of one token times four keys, in registers: tiles of one, two or four heads.

A tile reads each of its rows once for all of its products: two heads by four tokens 6 rows for 8,
four by four 8 for 16, which takes the 32 registers of AVX-512.
"""

from typing import Any

import numpy as np

from twophase.kernels.compiled.compiling import compiled
from twophase.kernels.compiled.lanes import add_times
from twophase.kernels.compiled.widened import STEP, nothing, plus_products, read, read_one

Array = np.ndarray


@compiled(inline="always")
def one_by_four(q: Array, i: int, keys: Array, t: int, u: int, v: int, z: int, n: int) -> Any:
    """A query times four keys, n numbers of each, a multiple of WIDTH: 4 sums, as registers whose
    lanes are still to be added. The query and the keys are given by the place of their first number
    behind the first of all."""
    a = b = c = d = nothing()
    steps = n // STEP * STEP
    for m in range(0, steps, STEP):
        x = read(q, i + m)
        a, b = plus_products(a, x, read(keys, t + m)), plus_products(b, x, read(keys, u + m))
        c, d = plus_products(c, x, read(keys, v + m)), plus_products(d, x, read(keys, z + m))
    if steps < n:  # half a step
        few = read_one(q, i + steps)
        a = add_times(a, few, read_one(keys, t + steps))
        b = add_times(b, few, read_one(keys, u + steps))
        c = add_times(c, few, read_one(keys, v + steps))
        d = add_times(d, few, read_one(keys, z + steps))
    return a, b, c, d


@compiled(inline="always")
def two_by_four(q: Array, i: int, keys: Array, t: int, u: int, v: int, z: int, n: int) -> Any:
    """The same for this query and the one behind it: 8 sums, four of the first and four of the
    second."""
    j = i + q.shape[1]
    a = b = c = d = e = f = g = h = nothing()
    steps = n // STEP * STEP
    for m in range(0, steps, STEP):
        first, second = read(q, i + m), read(q, j + m)
        key = read(keys, t + m)
        a, e = plus_products(a, first, key), plus_products(e, second, key)
        key = read(keys, u + m)
        b, f = plus_products(b, first, key), plus_products(f, second, key)
        key = read(keys, v + m)
        c, g = plus_products(c, first, key), plus_products(g, second, key)
        key = read(keys, z + m)
        d, h = plus_products(d, first, key), plus_products(h, second, key)
    if steps < n:  # half a step
        one, other = read_one(q, i + steps), read_one(q, j + steps)
        few = read_one(keys, t + steps)
        a, e = add_times(a, one, few), add_times(e, other, few)
        few = read_one(keys, u + steps)
        b, f = add_times(b, one, few), add_times(f, other, few)
        few = read_one(keys, v + steps)
        c, g = add_times(c, one, few), add_times(g, other, few)
        few = read_one(keys, z + steps)
        d, h = add_times(d, one, few), add_times(h, other, few)
    return a, b, c, d, e, f, g, h


@compiled(inline="always")
def four_by_four(q: Array, i: int, keys: Array, tokens: Any, n: int) -> Any:
    """The same for this query and the three behind it, and four keys by the places of theirs, n a
    multiple of STEP: 16 sums. (With code for half a step LLVM moved sums to and from the stack, and
    it took twice as long.)"""
    t, u, v, z = tokens
    H = q.shape[1]
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = nothing()
    c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = nothing()
    for m in range(0, n, STEP):
        k0, k1 = read(keys, t + m), read(keys, u + m)
        k2, k3 = read(keys, v + m), read(keys, z + m)
        x = read(q, i + m)
        a0, a1 = plus_products(a0, x, k0), plus_products(a1, x, k1)
        a2, a3 = plus_products(a2, x, k2), plus_products(a3, x, k3)
        x = read(q, i + H + m)
        b0, b1 = plus_products(b0, x, k0), plus_products(b1, x, k1)
        b2, b3 = plus_products(b2, x, k2), plus_products(b3, x, k3)
        x = read(q, i + 2 * H + m)
        c0, c1 = plus_products(c0, x, k0), plus_products(c1, x, k1)
        c2, c3 = plus_products(c2, x, k2), plus_products(c3, x, k3)
        x = read(q, i + 3 * H + m)
        d0, d1 = plus_products(d0, x, k0), plus_products(d1, x, k1)
        d2, d3 = plus_products(d2, x, k2), plus_products(d3, x, k3)
    return a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3
