"""A matrix times several tokens, for numbers that the processor does not multiply as they are.

A library's product of bf16 needs instructions for bf16. Without them torch takes number by number
(10 GFLOP/s on a core of a Zen 3 for 16 tokens), or wants a copy in fp32, twice as many bytes. Here
a row is widened in registers while it meets four tokens, two rows at a time: of 6 numbers that are
loaded come 8 products, as many as 16 registers of sums and factors hold. Some rows stay in the
caches until all tokens have met them, so a matrix comes from memory once. Four tokens or fewer wait
for memory more than for products: then rows are read one behind the other, as it gives them
fastest.
"""

import numba
import numpy as np

from twophase.kernels.compiled.linear import share
from twophase.kernels.compiled.loops import as_stored, inner, loop
from twophase.kernels.compiled.numbers import value_of
from twophase.kernels.compiled.prefetch import prefetch
from twophase.kernels.compiled.threads import workers_even_if_forked

_f32 = np.float32
TOKENS_AT_ONCE = 4  # whose sums are in registers together, with two rows each
NEAR_ROWS = 32  # that all tokens meet before the next ones
Array = np.ndarray


def product_of_tokens(w: Array, x: Array, bias: Array) -> Array:
    """x wᵀ + bias on all threads, each number rounded once: x [B, inputs] and what is returned [B,
    outputs] in the same dtype, w [outputs, inputs] in that or the other: fp32, or the bits of bf16;
    bias fp32 [outputs]. Raises ValueError for shapes that do not fit."""
    if x.ndim != 2 or x.shape[1:] != w.shape[1:] or bias.shape != w.shape[:1]:
        raise ValueError(
            f"a matrix {list(w.shape)} multiplies tokens [B, inputs] and adds a bias [outputs]; got"
            f" {list(x.shape)} and {list(bias.shape)}."
        )
    y, n = np.empty((len(x), len(w)), x.dtype), workers_even_if_forked()
    if y.size:
        multiply_rows.on(n)(w, x, bias, y, n)
    return y


@loop
def multiply_rows(w: Array, x: Array, bias: Array, y: Array, workers: int) -> None:
    """y [B, outputs] = x [B, inputs] wᵀ + bias, in so many runs of rows, one for each core."""
    few = len(x) <= TOKENS_AT_ONCE
    tokens = padded(x, 2 if len(x) <= 2 else TOKENS_AT_ONCE)
    for worker in numba.prange(workers):
        begin, end = share(worker, workers, w.shape[0])
        if few:
            rows_by_few(w, begin, end, tokens, bias, y)
        else:
            rows_by_many(w, begin, end, tokens, bias, y)


@inner
def padded(x: Array, n: int) -> Array:
    """Tokens in fp32, and zeros up to the next multiple of n, 1 or more: [n·k, inputs]."""
    tokens = np.zeros((max(1, -(-len(x) // n)) * n, x.shape[1]), _f32)
    for b in range(len(x)):
        for i in range(x.shape[1]):
            tokens[b, i] = value_of(x[b, i])
    return tokens


@inner
def rows_by_few(w: Array, begin: int, end: int, x: Array, bias: Array, y: Array) -> None:
    """y[:, begin:end] for two or four tokens x, of which y has as many or fewer."""
    sums = np.empty(TOKENS_AT_ONCE, _f32)
    for row in range(begin, end):
        if len(x) == 2:
            row_by_two(w, row, x, sums)
        else:
            row_by_four(w, row, x, sums)
        for t in range(len(y)):
            y[t, row] = as_stored(sums[t] + bias[row], y)


@inner
def rows_by_many(w: Array, begin: int, end: int, x: Array, bias: Array, y: Array) -> None:
    """y[:, begin:end] for a multiple of four tokens x, the last of which may lie behind y's. While
    a row is multiplied, a share of the one that comes NEAR_ROWS later is asked for."""
    B, inputs = x.shape
    sums = np.empty((2, TOKENS_AT_ONCE), _f32)
    for first in range(begin, end, NEAR_ROWS):
        last = min(first + NEAR_ROWS, end) - 1
        for b in range(0, B, TOKENS_AT_ONCE):
            for row in range(first, last + 1, 2):
                prefetch(
                    w, row + NEAR_ROWS, 2 * inputs * b // B, 2 * inputs * (b + TOKENS_AT_ONCE) // B
                )
                other = min(row + 1, last)
                two_rows_by_four(w, row, other, x, b, sums)
                for t in range(min(TOKENS_AT_ONCE, len(y) - b)):
                    y[b + t, row] = as_stored(sums[0, t] + bias[row], y)
                    y[b + t, other] = as_stored(sums[1, t] + bias[other], y)


@inner
def row_by_two(w: Array, row: int, x: Array, sums: Array) -> None:
    """A row times two tokens: the first two of sums [4]."""
    a = b = _f32(0)
    for i in range(w.shape[1]):
        p = value_of(w[row, i])
        a += p * x[0, i]
        b += p * x[1, i]
    sums[0], sums[1] = a, b


@inner
def row_by_four(w: Array, row: int, x: Array, sums: Array) -> None:
    """A row times four tokens: sums [4]."""
    a = b = c = d = _f32(0)
    for i in range(w.shape[1]):
        p = value_of(w[row, i])
        a += p * x[0, i]
        b += p * x[1, i]
        c += p * x[2, i]
        d += p * x[3, i]
    sums[0], sums[1], sums[2], sums[3] = a, b, c, d


@inner
def two_rows_by_four(w: Array, row: int, other: int, x: Array, b: int, sums: Array) -> None:
    """Two rows, or one twice, times the tokens b to b + 3: sums [2, 4]."""
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = _f32(0)
    for i in range(w.shape[1]):
        p, q = value_of(w[row, i]), value_of(w[other, i])
        x0, x1, x2, x3 = x[b, i], x[b + 1, i], x[b + 2, i], x[b + 3, i]
        a0 += p * x0
        a1 += p * x1
        a2 += p * x2
        a3 += p * x3
        b0 += q * x0
        b1 += q * x1
        b2 += q * x2
        b3 += q * x3
    sums[0, 0], sums[0, 1], sums[0, 2], sums[0, 3] = a0, a1, a2, a3
    sums[1, 0], sums[1, 1], sums[1, 2], sums[1, 3] = b0, b1, b2, b3
