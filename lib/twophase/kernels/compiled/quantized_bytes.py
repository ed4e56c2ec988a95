"""Products of codes with a vector as whole numbers, on processors that multiply bytes by fours.

A float takes three instructions to make of a code, and one to multiply. Bytes are multiplied as
they are, four in each lane of one instruction (`lanes.add_bytes`). So x becomes whole numbers n of
24 bits, x ≈ unit·n with a unit for each few inputs, and n is three bytes with signs:

    n = low + 256·middle + 65536·high,    each from -128 to 127

Sums of codes times bytes are exact. What is lost is what lies below a unit, 2**-23 of the largest
of these inputs: less than sums in fp32 lose. llama.cpp does the same with one byte, 2**-7, and a
third of the work; that moves a product by half a percent (chapter 12).
"""

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from twophase.kernels.compiled.codes import TILE, n_chunks
from twophase.kernels.compiled.lanes import (
    LANES,
    add_bytes,
    add_times,
    as_floats,
    high_halves,
    load,
    low_halves,
    pick,
    spread,
    store,
    times,
)
from twophase.kernels.compiled.loops import inner
from twophase.kernels.compiled.prefetch import prefetch

_f32, _i8, _i32 = np.float32, np.int8, np.int32
LARGEST = _f32(8_355_000)  # a little below 127·(1 + 256 + 65536), the largest n that fits
SMALLEST = _f32(1e-30)  # inputs below it are nothing: their unit would have no inverse
# How far ahead memory is asked for codes: arithmetic keeps a core from asking for enough by itself.
AHEAD_WORDS = 8192 // 4  # words
Array = np.ndarray


class Bytes(NamedTuple):
    """A vector as bytes. `digits` int8 [3, inputs]: low, middle and high; `fours` uint32 [3, inputs
    / 4]: the same memory; for each chunk of inputs `sums` int32 [chunks, 3] of its digits, and its
    unit, fp32 [chunks]."""

    digits: Array
    fours: Array
    sums: Array
    units: Array


def room_for_bytes(inputs: int, groups: int) -> Bytes:
    """Room for a vector; each chunk has a unit."""
    chunks = n_chunks(inputs, groups)
    digits = np.zeros((3, inputs), np.int8)
    sums, units = np.zeros((chunks, 3), np.int32), np.zeros(chunks, np.float32)
    return Bytes(digits, digits.view(np.uint32), sums, units)


@inner
def make_bytes(x: Array, made: Bytes) -> None:
    """Write x as bytes. A chunk with NaN or infinity gets NaN as its unit."""
    digits, _, sums, units = made
    size = len(x) // len(units)
    for chunk in range(len(units)):
        top, first = _f32(0), chunk * size
        for i in range(size):
            top = max(top, abs(x[first + i]))
        for i in range(size):  # `max` may pass over NaN
            top += _f32(0) * x[first + i]
        usable = SMALLEST < top < np.inf
        units[chunk] = top / LARGEST if usable else _f32(0) * top
        scale = LARGEST / top if usable else _f32(0)
        a, b, c = _i32(0), _i32(0), _i32(0)
        for i in range(size):
            n = _i32(np.rint(x[first + i] * scale)) if usable else _i32(0)
            low = _i8(n)
            n = _i32(_i32(n - _i32(low)) >> _i32(8))
            middle = _i8(n)
            high = _i8(_i32(n - _i32(middle)) >> _i32(8))
            digits[0, first + i], digits[1, first + i], digits[2, first + i] = low, middle, high
            a, b, c = _i32(a + _i32(low)), _i32(b + _i32(middle)), _i32(c + _i32(high))
        sums[chunk, 0], sums[chunk, 1], sums[chunk, 2] = a, b, c


def bytes_tile(matrix, tile, x, given, out):  # type: ignore[no-untyped-def]
    """`multiply_tile` for a vector as bytes: 32 rows at a time go through a chunk of inputs, their
    three sums in registers."""
    codes, scales, zeros = matrix
    _, fours, sums, units = given
    chunks, groups = len(units), scales.shape[1]
    steps = codes.shape[1] // chunks
    out[:] = _f32(0)
    for chunk in range(chunks):
        scale_row = (tile * groups + chunk * groups // chunks) * TILE
        for row in range(0, TILE, LANES):
            zero = zero_points(codes, zeros, scale_row + row)
            low = times(zero, spread(_i32(-sums[chunk, 0])))
            middle = times(zero, spread(_i32(-sums[chunk, 1])))
            high = times(zero, spread(_i32(-sums[chunk, 2])))
            for j in range(chunk * steps, (chunk + 1) * steps):
                first, last = step_of_codes(codes, tile * codes.shape[1] + j, row)
                x0, x1, x2 = 2 * j, 2 * j + len(x) // 4, 2 * j + len(x) // 2
                low = add_bytes(low, first, pick(fours, x0))
                low = add_bytes(low, last, pick(fours, x0 + 1))
                middle = add_bytes(middle, first, pick(fours, x1))
                middle = add_bytes(middle, last, pick(fours, x1 + 1))
                high = add_bytes(high, first, pick(fours, x2))
                high = add_bytes(high, last, pick(fours, x2 + 1))
            total = add_times(as_floats(middle), as_floats(high), spread(_f32(256)))
            total = add_times(as_floats(low), total, spread(_f32(256)))
            factor = times(load(scales, scale_row + row), spread(units[chunk]))
            store(out, row, add_times(load(out, row), factor, total))


def zero_points(codes: Array, zeros: Array, at: int) -> Any:
    """The zero points of 32 rows as words: the middle of the codes where there are none. Only
    compiled code calls it."""
    raise NotImplementedError("zero_points is for compiled code.")


def step_of_codes(codes: Array, line: int, row: int) -> tuple[Any, Any]:
    """The codes of a step of 32 rows, four inputs in each of two words; memory is asked for what
    comes later. Only compiled code calls it."""
    raise NotImplementedError("step_of_codes is for compiled code.")


@overload(zero_points, inline="always")
def _zero_points(codes, zeros, at):  # type: ignore[no-untyped-def]
    middle = _i32(8 if codes.ndim == 3 else 128)
    return lambda codes, zeros, at: load(zeros, at) if len(zeros) else spread(middle)


@overload(step_of_codes)
def _step_of_codes(codes, line, row):  # type: ignore[no-untyped-def]
    return _step_of_4_bits if codes.ndim == 3 else _step_of_8_bits


def _step_of_4_bits(codes, line, row):  # type: ignore[no-untyped-def]
    at = line * TILE + row
    prefetch(codes, 0, at + AHEAD_WORDS, at + AHEAD_WORDS + LANES)
    both = load(codes, at)
    return low_halves(both), high_halves(both)


def _step_of_8_bits(codes, line, row):  # type: ignore[no-untyped-def]
    at = 2 * line * TILE + row
    prefetch(codes, 0, at + AHEAD_WORDS, at + AHEAD_WORDS + LANES)
    prefetch(codes, 0, at + TILE + AHEAD_WORDS, at + TILE + AHEAD_WORDS + LANES)
    return load(codes, at), load(codes, at + TILE)
