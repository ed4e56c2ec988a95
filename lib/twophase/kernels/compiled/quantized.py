"""Products of quantized matrices with the vector of a decode step: codes are read, never a widened
matrix.

Fewer bytes are less time only if a loop reads them as fast as memory delivers, and the layout
decides that. Codes lie in tiles of 128 rows. A word of 32 bits has codes of one row: those of eight
inputs (4 bits), or of four (8 bits); the words of the 128 rows lie side by side. So a loop runs
over rows, which fill vector registers, and reads eight numbers of x for all of them; a group of
inputs needs its scales at its end, or that of a chunk, and no sum runs across a register. In the
natural layout each group of a row ends in such a sum, and a wide x is read again for every row.

A code becomes a float without a conversion: its bits, put at the top of a fraction below the
exponent of 1, are 1 + c / 2**b, and less 1.5 that is f = (c − m) / 2**b, to the last digit, where m
is the middle of the codes. What is left of a zero point goes at the end of a chunk of a group:

    Σ_i s·(c_i − z)·x_i  =  s·(2**b·Σ_i f_i·x_i − (z − m)·Σ_i x_i)

(Left in until the end, those 1.5 would save an instruction a code. But sums near 1.5·Σ x_i are
rounded as such: of a wide group of x with a mean three digits were lost.)

Where the processor multiplies bytes by fours, x becomes whole numbers and codes stay what they are
(`quantized_bytes`): a third of the instructions for 4 bits, a quarter for 8. Which of both a loop
does is the type of `given`, what it knows of x beforehand: `Sums` or `Bytes`.
"""

from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from numba.extending import overload

from twophase.kernels.compiled.codes import STEP_INPUTS, TILE, Packed, n_chunks
from twophase.kernels.compiled.lanes import has_bytes
from twophase.kernels.compiled.linear import activate, normalize, share
from twophase.kernels.compiled.loops import inner, loop
from twophase.kernels.compiled.numbers import value_of
from twophase.kernels.compiled.prefetch import prefetch
from twophase.kernels.compiled.quantized_bytes import (
    AHEAD_WORDS,
    Bytes,
    bytes_tile,
    make_bytes,
    room_for_bytes,
)
from twophase.kernels.compiled.threads import workers_of_parallel_loops

_f32, _u32 = np.float32, np.uint32
BITS_OF_1 = _u32(0x3F800000)
Array = np.ndarray


def quantized_matvec(w: Packed, x: torch.Tensor) -> torch.Tensor:
    """w x on all threads: x fp32 [inputs], returns fp32 [outputs]. ValueError for another x, and
    for one that wants a gradient."""
    check_tensor(x)
    if x.dtype != torch.float32 or tuple(x.shape) != (w.inputs,) or x.device.type != "cpu":
        raise ValueError(
            f"this matrix multiplies fp32 [{w.inputs}] in the CPU's memory; got {x.dtype}"
            f" {list(x.shape)} on {x.device}."
        )
    y = torch.zeros(w.outputs, dtype=torch.float32, device="cpu")
    n = workers_of_parallel_loops()
    bias = np.zeros(w.outputs, np.float32)
    add_product.on(n)(w.arrays, bias, x.detach().contiguous().numpy(), room_for(w), y.numpy(), n)
    return y


def check_tensor(x: torch.Tensor) -> None:
    """ValueError for what is no tensor, or wants a gradient, which these products do not have."""
    if not isinstance(x, torch.Tensor):
        raise ValueError(
            f"products of codes take a torch tensor; got {type(x).__name__}: call torch.tensor on"
            " it."
        )
    if torch.is_grad_enabled() and x.requires_grad:
        raise ValueError(
            "products of codes in loops have no gradient: take decode() and torch's product, or"
            " torch.no_grad()."
        )


class Sums(NamedTuple):
    """Of the inputs of each chunk, fp32 [chunks]."""

    sums: Array


def room_for(w: Packed, in_bytes: bool | None = None) -> Sums | Bytes:
    """Room for what products with a matrix want to know of their vector; by default bytes where the
    processor multiplies them."""
    if has_bytes() if in_bytes is None else in_bytes:
        return room_for_bytes(w.inputs, w.groups)
    return Sums(np.empty(n_chunks(w.inputs, w.groups), np.float32))


@inner
def n_tiles(outputs: int) -> int:
    """Tiles of a matrix of so many rows."""
    return -(-outputs // TILE)


def prepare(x: Array, given: Any) -> None:
    """Find what products want to know of x. Only compiled code calls it."""
    raise NotImplementedError("prepare is for compiled code.")


@overload(prepare)
def _prepare(x, given):  # type: ignore[no-untyped-def]
    if given.instance_class is Bytes:
        return lambda x, given: make_bytes(x, given)
    return _sum_chunks


def _sum_chunks(x, given):  # type: ignore[no-untyped-def]
    size = len(x) // len(given.sums)
    for g in range(len(given.sums)):
        total = _f32(0)
        for i in range(g * size, (g + 1) * size):
            total += x[i]
        given.sums[g] = total


def multiply_tile(matrix: Any, tile: int, x: Array, given: Any, out: Array) -> None:
    """out [128] = the rows of one tile times x; behind the matrix's last row it means nothing. Only
    compiled code calls it: `matrix` is `Packed.arrays`."""
    raise NotImplementedError("multiply_tile is for compiled code.")


@overload(multiply_tile)
def _multiply_tile(matrix, tile, x, given, out):  # type: ignore[no-untyped-def]
    return bytes_tile if given.instance_class is Bytes else floats_tile


def floats_tile(matrix, tile, x, given, out):  # type: ignore[no-untyped-def]
    """`multiply_tile` for a vector as it is: codes become floats."""
    codes, scales, zeros = matrix
    chunks, found = len(given.sums), np.empty(TILE, _f32)
    steps, words = codes.shape[1] // chunks, TILE * (codes.ndim - 2)  # of a step
    out[:] = _f32(0)
    for chunk in range(chunks):
        found[:] = _f32(0)
        for j in range(chunk * steps, (chunk + 1) * steps):
            i = STEP_INPUTS * j
            a, b, c, d = x[i], x[i + 1], x[i + 2], x[i + 3]
            e, f, g, h = x[i + 4], x[i + 5], x[i + 6], x[i + 7]
            prefetch(codes, tile, j * words + AHEAD_WORDS, (j + 1) * words + AHEAD_WORDS)
            for r in range(TILE):
                p, q, u, v = four_floats(codes, tile, j, 0, r)
                first = a * p + b * q + c * u + d * v
                p, q, u, v = four_floats(codes, tile, j, 1, r)
                found[r] += first + (e * p + f * q + g * u + h * v)
        group = chunk * scales.shape[1] // chunks
        end_chunk(tile, group, found, given.sums[chunk], levels_of(codes), scales, zeros, out)


def levels_of(codes: Array) -> int:
    """2**bits. Only compiled code calls it."""
    raise NotImplementedError("levels_of is for compiled code.")


@overload(levels_of, inline="always")
def _levels_of(codes):  # type: ignore[no-untyped-def]
    return (lambda codes: 16) if codes.ndim == 3 else (lambda codes: 256)


def four_floats(codes: Array, tile: int, j: int, half: int, r: int) -> tuple[Any, ...]:
    """The floats (c − m) / 2**bits of four inputs of a row, where m is the middle of the codes.
    Only compiled code calls it."""
    raise NotImplementedError("four_floats is for compiled code.")


@overload(four_floats, inline="always")
def _four_floats(codes, tile, j, half, r):  # type: ignore[no-untyped-def]
    return _of_4_bits if codes.ndim == 3 else _of_8_bits


def _of_4_bits(codes, tile, j, half, r):  # type: ignore[no-untyped-def]
    w = codes[tile, j, r] >> (4 * half)
    return int4(w << 19), int4(w << 11), int4(w << 3), int4(w >> 5)


def _of_8_bits(codes, tile, j, half, r):  # type: ignore[no-untyped-def]
    w = codes[tile, j, half, r]
    return int8(w << 15), int8(w << 7), int8(w >> 1), int8(w >> 9)


@inner
def int4(word: np.uint64) -> np.float32:
    """(c − 8) / 16, where the code c stands in the four highest bits of the fraction."""
    return _u32(_u32(word) & _u32(0x780000) | BITS_OF_1).view(_f32) - _f32(1.5)


@inner
def int8(word: np.uint64) -> np.float32:
    """(c − 128) / 256, where the code c stands in the eight highest bits of the fraction."""
    return _u32(_u32(word) & _u32(0x7F8000) | BITS_OF_1).view(_f32) - _f32(1.5)


@inner
def end_chunk(
    tile: int, group: int, found: Array, x_sum: np.float32, levels: int, scales: Array,
    zeros: Array, out: Array,
) -> None:  # fmt: skip
    """What a chunk of a group adds to the rows of its tile, once its sums are found."""
    middle = _f32(levels // 2)
    for r in range(TILE):
        total = _f32(levels) * found[r]
        if len(zeros):
            total -= (_f32(zeros[tile, group, r]) - middle) * x_sum
        out[r] += value_of(scales[tile, group, r]) * total


@inner
def product_of_share(
    w: Any, h: Array, given: Any, bias: Array, worker: int, workers: int, y: Array
) -> None:
    """y = w h + bias: the rows of the tiles that one of so many workers has."""
    begin, end = share(worker, workers, n_tiles(len(y)))
    out = np.empty(TILE, _f32)
    for tile in range(begin, end):
        multiply_tile(w, tile, h, given, out)
        for row in range(tile * TILE, min(len(y), (tile + 1) * TILE)):
            y[row] = out[row - tile * TILE] + bias[row]


@loop
def norm_product(
    x: Array, scale: Array, shift: Array, eps: np.float32, w: Any, bias: Array, h: Array,
    given: Any, y: Array, workers: int,
) -> None:  # fmt: skip
    """y = w h + bias with h the norm of x: queries, keys and values. h [D] and `given` are
    scratch."""
    normalize(x, scale, shift, eps, h)
    prepare(h, given)
    for worker in numba.prange(workers):
        product_of_share(w, h, given, bias, worker, workers, y)


@loop
def norm_activate_product(
    x: Array, scale: Array, shift: Array, eps: np.float32, gate: Any, up: Any, bias: Array,
    activation: int, h: Array, given: Any, y: Array, workers: int,
) -> None:  # fmt: skip
    """y = activation(gate h + bias) · (up h + bias) with h the norm of x, as `norm_activate`."""
    normalize(x, scale, shift, eps, h)
    prepare(h, given)
    F = len(y)
    for worker in numba.prange(workers):
        product_of_share(gate, h, given, bias, worker, workers, y)
        begin, end = share(worker, workers, n_tiles(F))
        ups = np.empty(TILE, _f32)
        for tile in range(begin, end):
            multiply_tile(up, tile, h, given, ups)
            for row in range(tile * TILE, min(F, (tile + 1) * TILE)):
                y[row] = activate(activation, y[row]) * (ups[row - tile * TILE] + bias[F + row])


@loop
def add_product(w: Any, bias: Array, h: Array, given: Any, x: Array, workers: int) -> None:
    """x += w h + bias: what attention or MLP adds to the stream."""
    prepare(h, given)
    for worker in numba.prange(workers):
        begin, end = share(worker, workers, n_tiles(len(x)))
        out = np.empty(TILE, _f32)
        for tile in range(begin, end):
            multiply_tile(w, tile, h, given, out)
            for row in range(tile * TILE, min(len(x), (tile + 1) * TILE)):
                x[row] += out[row - tile * TILE] + bias[row]


@loop
def norm_add_product(
    w: Any, bias: Array, h: Array, given: Any, scale: Array, shift: Array, eps: np.float32,
    y: Array, x: Array, workers: int,
) -> None:  # fmt: skip
    """x += norm(w h + bias), as Gemma adds; y [D] is scratch."""
    prepare(h, given)
    for worker in numba.prange(workers):
        product_of_share(w, h, given, bias, worker, workers, y)
    normalize(y, scale, shift, eps, y)
    for i in range(len(x)):
        x[i] += y[i]
