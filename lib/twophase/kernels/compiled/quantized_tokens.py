"""Products of quantized matrices with several tokens: a code is read and made a float once for
several of them.

Where one token is bound by memory, sixteen are bound by arithmetic. So a tile stays in the caches
while all tokens go through it. Tokens in fp32 go four at a time, and a code becomes a float as in
`quantized`. Tokens in bf16 meet codes that are bf16, too, which loses nothing (a code has no more
digits than that), and many processors multiply bf16 in pairs, twice as many in an instruction
(`bf16_pairs`).
"""

from typing import Any

import numba
import numpy as np
import torch
from numba.extending import overload

from twophase.kernels.compiled.bf16_pairs import PAIR_TOKENS, add_pair_products
from twophase.kernels.compiled.codes import STEP_INPUTS, TILE, Packed, n_chunks
from twophase.kernels.compiled.lanes import has_pairs
from twophase.kernels.compiled.linear import share
from twophase.kernels.compiled.loops import STORED, inner, loop
from twophase.kernels.compiled.numbers import value_of
from twophase.kernels.compiled.quantized import check_tensor, four_floats, levels_of, n_tiles
from twophase.kernels.compiled.threads import workers_even_if_forked

_f32, _u32 = np.float32, np.uint32
FLOAT_TOKENS = 4  # in fp32, at a time
Array = np.ndarray


def quantized_product(w: Packed, x: torch.Tensor) -> torch.Tensor:
    """x wᵀ on all threads: x fp32 or bf16 [B, inputs], returns fp32 [B, outputs]. ValueError for
    another x, and for one that wants a gradient."""
    check_tensor(x)
    x = x.detach()
    fits = x.ndim == 2 and x.shape[1] == w.inputs and x.device.type == "cpu"
    if x.dtype not in STORED or not fits:
        raise ValueError(
            f"this matrix multiplies fp32 or bf16 [B, {w.inputs}] in the CPU's memory; got"
            f" {x.dtype} {list(x.shape)} on {x.device}."
        )
    if not len(x):
        return torch.empty(0, w.outputs, dtype=torch.float32, device="cpu")
    if x.dtype == torch.bfloat16 and has_pairs():
        return _product_of_pairs(w, x)
    x = x.float()
    padded = torch.nn.functional.pad(x, (0, 0, 0, -len(x) % FLOAT_TOKENS))
    chunks = n_chunks(w.inputs, w.groups)
    sums = padded.view(len(padded), chunks, -1).sum(2).T.contiguous()  # [chunks, B]
    inputs = padded.T.contiguous()  # [inputs, B]
    y = torch.empty(len(padded), w.outputs, dtype=torch.float32, device="cpu")
    n = workers_even_if_forked()
    multiply_tokens.on(n)(w.arrays, inputs.numpy(), sums.numpy(), y.numpy(), n)
    return y[: len(x)]


def _product_of_pairs(w: Packed, x: torch.Tensor) -> torch.Tensor:
    """The same for bf16 on processors that multiply it in pairs."""
    padded = torch.nn.functional.pad(x, (0, 0, 0, -len(x) % PAIR_TOKENS))
    B, steps = len(padded), w.inputs // STEP_INPUTS
    chunks = n_chunks(w.inputs, w.groups)  # which are floats together, in the first-level cache
    eights = padded.view(torch.int16).view(B, steps, 2, 2, 2)  # inputs i and i + 2 are a pair
    pairs = eights.permute(1, 2, 4, 0, 3).contiguous().view(torch.int32)  # [steps, 2, 2, B, 1]
    sums = padded.float().view(B, chunks, -1).sum(2).T.contiguous()  # [chunks, B]
    y = torch.empty(B, w.outputs, dtype=torch.float32, device="cpu")
    n = workers_even_if_forked()
    inputs = pairs.view(torch.uint32).view(-1, B).numpy()  # [inputs / 2, B]
    multiply_pairs.on(n)(w.arrays, inputs, sums.numpy(), y.numpy(), n)
    return y[: len(x)]


@loop
def multiply_tokens(w: Any, x: Array, sums: Array, y: Array, workers: int) -> None:
    """y [B, outputs] of x [inputs, B], B a multiple of four; `w` is `Packed.arrays`, sums [chunks,
    B] of the inputs of each chunk, some of which are a group."""
    for worker in numba.prange(workers):
        begin, end = share(worker, workers, n_tiles(y.shape[1]))
        out = np.empty(FLOAT_TOKENS * TILE, _f32)
        for tile in range(begin, end):
            rows = min(TILE, y.shape[1] - tile * TILE)
            for b in range(0, len(y), FLOAT_TOKENS):
                multiply_tile_by_four(w, tile, x, b, sums, out)
                for t in range(FLOAT_TOKENS):
                    for r in range(rows):
                        y[b + t, tile * TILE + r] = out[t * TILE + r]


@loop
def multiply_pairs(w: Any, x: Array, sums: Array, y: Array, workers: int) -> None:
    """y [B, outputs] of x [inputs / 2, B], two bf16 in each number, B a multiple of eight; `w` is
    `Packed.arrays`, sums [chunks, B] of the inputs of each chunk, some of which are a group."""
    for worker in numba.prange(workers):
        begin, end = share(worker, workers, n_tiles(y.shape[1]))
        chunks, B = sums.shape
        pairs = np.empty((len(x) // chunks, TILE), np.uint32)
        starts, factors = np.empty(TILE, _f32), np.empty(TILE, _f32)
        out = np.empty((B, TILE), _f32)
        for tile in range(begin, end):
            out[:] = _f32(0)
            for chunk in range(chunks):
                read_chunk(w, tile, chunk, chunks, pairs, starts, factors)
                first = chunk * len(pairs)
                add_pair_products(pairs, x, first, sums[chunk], starts, factors, out)
            rows = min(TILE, y.shape[1] - tile * TILE)
            for b in range(B):
                for r in range(rows):
                    y[b, tile * TILE + r] = out[b, r]


@inner
def read_chunk(
    w: Any, tile: int, chunk: int, chunks: int, pairs: Array, starts: Array, factors: Array
) -> None:
    """The codes of some inputs of a tile as pairs of bf16 [n, 128], and by which numbers their sums
    become those of weights: factor·(start·Σ x + Σ pairs·x)."""
    codes, scales, zeros = w
    steps, group = len(pairs) // 4, chunk * scales.shape[1] // chunks
    offset, unit = offset_and_unit(codes)
    for j in range(steps):
        for k in range(4):
            for r in range(TILE):
                pairs[4 * j + k, r] = two_codes(codes, tile, chunk * steps + j, k, r)
    for r in range(TILE):
        zero = _f32(zeros[tile, group, r]) if len(zeros) else _f32(levels_of(codes) // 2)
        starts[r] = -(offset + zero / unit)
        factors[r] = unit * value_of(scales[tile, group, r])


@inner
def multiply_tile_by_four(w: Any, tile: int, x: Array, b: int, sums: Array, out: Array) -> None:
    """out [4·128] = the rows of one tile times the tokens b to b + 3."""
    codes, scales, zeros = w
    chunks, found = len(sums), np.empty(FLOAT_TOKENS * TILE, _f32)
    steps, levels = codes.shape[1] // chunks, _f32(levels_of(codes))
    out[:] = _f32(0)
    for chunk in range(chunks):
        found[:] = _f32(0)
        for j in range(chunk * steps, (chunk + 1) * steps):
            add_four_inputs(codes, tile, j, 0, x, b, found)
            add_four_inputs(codes, tile, j, 1, x, b, found)
        group = chunk * scales.shape[1] // chunks
        for t in range(FLOAT_TOKENS):  # `end_chunk`, but with slices a tenth slower
            for r in range(TILE):
                total = levels * found[t * TILE + r]
                if len(zeros):
                    zero = _f32(zeros[tile, group, r]) - levels / _f32(2)
                    total -= zero * sums[chunk, b + t]
                out[t * TILE + r] += value_of(scales[tile, group, r]) * total


@inner
def add_four_inputs(
    codes: Array, tile: int, j: int, half: int, x: Array, b: int, found: Array
) -> None:
    """found [4·128] += (c − m) / 2**b·x of four inputs, half of step j, for four tokens, where m is
    the middle of the codes."""
    i = STEP_INPUTS * j + STEP_INPUTS // 2 * half
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


def offset_and_unit(codes: Array) -> tuple[np.float32, np.float32]:
    """A code c stands in a pair as offset + c / unit. Only compiled code calls it."""
    raise NotImplementedError("offset_and_unit is for compiled code.")


def two_codes(codes: Array, tile: int, j: int, k: int, r: int) -> np.uint32:
    """The codes of pair k of step j of a row, as two bf16: of inputs 0 and 2, 1 and 3, 4 and 6, 5
    and 7, which stand 16 bits apart. Only compiled code calls it."""
    raise NotImplementedError("two_codes is for compiled code.")


@overload(offset_and_unit, inline="always")
def _offset_and_unit(codes):  # type: ignore[no-untyped-def]
    if codes.ndim == 3:
        return lambda codes: (_f32(1), _f32(16))
    return lambda codes: (_f32(0), _f32(1))


@overload(two_codes, inline="always")
def _two_codes(codes, tile, j, k, r):  # type: ignore[no-untyped-def]
    return _two_of_4_bits if codes.ndim == 3 else _two_of_8_bits


def _two_of_4_bits(codes, tile, j, k, r):  # type: ignore[no-untyped-def]
    shift = _u32(4 * (k // 2) + 8 * (k % 2))
    both = _u32(_u32(codes[tile, j, r] >> shift) << _u32(3))  # into the fractions of two ones
    return _u32(both & _u32(0x00780078) | _u32(0x3F803F80))


def _two_of_8_bits(codes, tile, j, k, r):  # type: ignore[no-untyped-def]
    w = _u32(codes[tile, j, k // 2, r] >> _u32(8 * (k % 2)))
    first, second = _f32(_u32(w & _u32(255))), _f32(_u32(_u32(w >> _u32(16)) & _u32(255)))
    return _u32(_u32(first.view(_u32) >> _u32(16)) | second.view(_u32))
