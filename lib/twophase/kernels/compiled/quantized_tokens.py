"""Products of quantized matrices with several tokens: a code is read and made a float once for four
of them.

Where one token is bound by memory, sixteen are bound by arithmetic. So a tile stays in the caches
while all tokens go through it, four at a time.
"""

from typing import Any

import numba
import numpy as np
import torch
from numba.extending import overload

from twophase.kernels.compiled.codes import STEP, TILE, Packed
from twophase.kernels.compiled.linear import share
from twophase.kernels.compiled.loops import inner, loop
from twophase.kernels.compiled.numbers import value_of
from twophase.kernels.compiled.quantized import int4, int8, n_tiles
from twophase.kernels.compiled.threads import workers_of_parallel_loops

_f32 = np.float32
TOKENS = 4  # at a time
Array = np.ndarray


def quantized_product(w: Packed, x: torch.Tensor) -> torch.Tensor:
    """x wᵀ on all threads: x fp32 [B, inputs], returns fp32 [B, outputs]. ValueError for another
    x."""
    if x.dtype != torch.float32 or x.ndim != 2 or x.shape[1] != w.inputs or x.device.type != "cpu":
        raise ValueError(
            f"this matrix multiplies fp32 [B, {w.inputs}] in the CPU's memory; got {x.dtype}"
            f" {list(x.shape)} on {x.device}."
        )
    padded = torch.nn.functional.pad(x, (0, 0, 0, -len(x) % TOKENS))
    groups = w.arrays[1].shape[1]
    sums = padded.view(len(padded), groups, -1).sum(2).T.contiguous()  # [groups, B]
    inputs = padded.T.contiguous()  # [inputs, B]
    y = torch.empty(len(padded), w.outputs)
    n = workers_of_parallel_loops()
    multiply_tokens.on(n)(w.arrays, inputs.numpy(), sums.numpy(), y.numpy(), n)
    return y[: len(x)]


@loop
def multiply_tokens(w: Any, x: Array, sums: Array, y: Array, parts: int) -> None:
    """y [B, outputs] of x [inputs, B], B a multiple of four; `w` is `Packed.arrays`, sums [groups,
    B] of the inputs of each group."""
    for part in numba.prange(parts):
        begin, end = share(part, parts, n_tiles(y.shape[1]))
        out = np.empty(TOKENS * TILE, _f32)
        for tile in range(begin, end):
            rows = min(TILE, y.shape[1] - tile * TILE)
            for b in range(0, len(y), TOKENS):
                multiply_tile_by_four(w, tile, x, b, sums, out)
                for t in range(TOKENS):
                    for r in range(rows):
                        y[b + t, tile * TILE + r] = out[t * TILE + r]


@inner
def multiply_tile_by_four(w: Any, tile: int, x: Array, b: int, sums: Array, out: Array) -> None:
    """out [4·128] = the rows of one tile times the tokens b to b + 3."""
    codes, scales, zeros = w
    steps, found = codes.shape[1] // scales.shape[1], np.empty(TOKENS * TILE, _f32)
    out[:] = _f32(0)
    for group in range(scales.shape[1]):
        found[:] = _f32(0)
        for j in range(group * steps, (group + 1) * steps):
            add_four_inputs(codes, tile, j, 0, x, b, found)
            add_four_inputs(codes, tile, j, 1, x, b, found)
        levels = _f32(levels_of(codes))
        for t in range(TOKENS):
            for r in range(TILE):
                zero = _f32(zeros[tile, group, r]) if len(zeros) else levels / _f32(2)
                total = levels * found[t * TILE + r] - (levels + zero) * sums[group, b + t]
                out[t * TILE + r] += value_of(scales[tile, group, r]) * total


@inner
def add_four_inputs(
    codes: Array, tile: int, j: int, half: int, x: Array, b: int, found: Array
) -> None:
    """found [4·128] += (1 + c / 2**b)·x of four inputs, half of step j, for four tokens."""
    i = STEP * j + STEP // 2 * half
    a0, a1, a2, a3 = x[i, b], x[i, b + 1], x[i, b + 2], x[i, b + 3]
    b0, b1, b2, b3 = x[i + 1, b], x[i + 1, b + 1], x[i + 1, b + 2], x[i + 1, b + 3]
    c0, c1, c2, c3 = x[i + 2, b], x[i + 2, b + 1], x[i + 2, b + 2], x[i + 2, b + 3]
    d0, d1, d2, d3 = x[i + 3, b], x[i + 3, b + 1], x[i + 3, b + 2], x[i + 3, b + 3]
    for r in range(TILE):
        p, q, u, v = four_floats(codes, tile, j, half, r)
        found[r] += a0 * p + b0 * q + c0 * u + d0 * v
        found[TILE + r] += a1 * p + b1 * q + c1 * u + d1 * v
        found[2 * TILE + r] += a2 * p + b2 * q + c2 * u + d2 * v
        found[3 * TILE + r] += a3 * p + b3 * q + c3 * u + d3 * v


def levels_of(codes: Array) -> int:
    """2**bits. Only compiled code calls it."""
    raise NotImplementedError("levels_of is for compiled code.")


def four_floats(codes: Array, tile: int, j: int, half: int, r: int) -> tuple[Any, ...]:
    """The floats 1 + c / 2**bits of four inputs of a row. Only compiled code calls it."""
    raise NotImplementedError("four_floats is for compiled code.")


@overload(levels_of, inline="always")
def _levels_of(codes):  # type: ignore[no-untyped-def]
    return (lambda codes: 16) if codes.ndim == 3 else (lambda codes: 256)


@overload(four_floats, inline="always")
def _four_floats(codes, tile, j, half, r):  # type: ignore[no-untyped-def]
    return _of_4_bits if codes.ndim == 3 else _of_8_bits


def _of_4_bits(codes, tile, j, half, r):  # type: ignore[no-untyped-def]
    w = codes[tile, j, r] >> (16 * half)
    return int4(w << 19), int4(w << 15), int4(w << 11), int4(w << 7)


def _of_8_bits(codes, tile, j, half, r):  # type: ignore[no-untyped-def]
    w = codes[tile, j, half, r]
    return int8(w << 15), int8(w << 7), int8(w >> 1), int8(w >> 9)
