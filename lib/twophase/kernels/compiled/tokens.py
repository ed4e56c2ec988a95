"""A matrix times several tokens, for numbers that the processor does not multiply as they are.

A library's product of bf16 needs instructions for bf16. Without them torch takes number by number
(10 GFLOP/s on a core of a Zen 3 for 16 tokens), or wants a copy in fp32, twice as many bytes. Here
a row is widened in registers while it meets four tokens, two rows at a time: of 6 numbers that are
loaded come 8 products, as many as 16 registers of sums and factors hold. Some rows stay in the
caches until all tokens have met them, so a matrix comes from memory once.
"""

import numba
import numpy as np
import torch

from twophase.kernels.compiled.linear import share
from twophase.kernels.compiled.loops import as_numpy, inner, loop
from twophase.kernels.compiled.numbers import value_of
from twophase.kernels.compiled.prefetch import prefetch
from twophase.kernels.compiled.threads import workers_of_parallel_loops

_f32 = np.float32
TOKENS = 4  # whose sums are in registers together, with two rows each
ROWS = 32  # that all tokens meet before the next ones
Array = np.ndarray


def product_of_tokens(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """x wᵀ on all threads, in fp32 [B, outputs]: w fp32 or bf16 [outputs, inputs], x fp32 [B,
    inputs]. Raises ValueError for another w (`as_numpy`) or x."""
    if x.ndim != 2 or w.ndim != 2 or x.shape[1] != w.shape[1] or x.dtype != torch.float32:
        raise ValueError(
            f"a matrix {list(w.shape)} multiplies tokens in fp32, [B, inputs]; got {x.dtype}"
            f" {list(x.shape)}."
        )
    padded = torch.nn.functional.pad(x, (0, 0, 0, -len(x) % TOKENS)).contiguous()  # [4·, inputs]
    y = torch.empty(len(padded), len(w))
    n = workers_of_parallel_loops()
    multiply_rows.on(n)(as_numpy(w), as_numpy(padded), y.numpy(), n)
    return y[: len(x)]


@loop
def multiply_rows(w: Array, x: Array, y: Array, parts: int) -> None:
    """y [B, outputs] of w [outputs, inputs] and x [B, inputs], B a multiple of four."""
    for part in numba.prange(parts):
        begin, end = share(part, parts, w.shape[0])
        for first in range(begin, end, ROWS):
            last = min(first + ROWS, end) - 1
            for b in range(0, len(x), TOKENS):
                ask = range(2 * b * w.shape[1] // len(x), 2 * (b + TOKENS) * w.shape[1] // len(x))
                for row in range(first, last + 1, 2):
                    prefetch(w, row + ROWS, ask.start, ask.stop)
                    two_rows_by_four(w, row, min(row + 1, last), x, b, y)


@inner
def two_rows_by_four(w: Array, row: int, other: int, x: Array, b: int, y: Array) -> None:
    """Two rows, or one twice, times the tokens b to b + 3."""
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
    y[b, row], y[b + 1, row], y[b + 2, row], y[b + 3, row] = a0, a1, a2, a3
    y[b, other], y[b + 1, other], y[b + 2, other], y[b + 3, other] = b0, b1, b2, b3
