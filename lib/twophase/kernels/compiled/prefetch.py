"""Asking memory for a row before it is needed.

A kernel that reads a block, then computes, then reads the next spends memory time plus arithmetic
time. A prefetch is an instruction that names an address and goes on: the line arrives in the
second-level cache while the arithmetic of other rows runs. In decode attention over a long cache
that makes 6 GB/s a thread into 11, where arithmetic in fp32 would allow 17. Into the first-level
cache (locality 3) it gains nothing: there is room for few lines under way. What is asked for beyond
that room is dropped, so a loop asks for a few lines at a time: with 32 in one go a Zen 3 read 8
GB/s, with 8 before each tile 9.5 (one core, whose plain read gives 16 to 18).

Which lines are asked for one after the other counts, too. The processor runs ahead of a reader by
itself, an Intel one no further than the end of a page of 4 KiB. A Xeon reads 10 GB/s a core from
one place, 11 to 13 from four places in turns: so there a block is asked for in PIECES. (On a Zen
that has not been timed.)
"""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from twophase.kernels.compiled.compiling import compiled
from twophase.kernels.compiled.lane_code import WORD
from twophase.kernels.compiled.lanes import ZEN

LINE_BYTES = 64
PIECES = 1 if ZEN else 4  # places of a block that are asked for in turns
SECOND_LEVEL = 2  # of llvm.prefetch's localities: 3 the first level, 2 the second
_ADDRESS = ir.IntType(8).as_pointer()


@intrinsic  # type: ignore[untyped-decorator]
def prefetch_at(context: Any, address: Any) -> Any:
    """Ask for the line that holds the byte at an address; goes on at once, changes nothing."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_ADDRESS, WORD, WORD, WORD])
        ask_for = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        address = builder.inttoptr(arguments[0], _ADDRESS)
        builder.call(ask_for, [address, WORD(0), WORD(SECOND_LEVEL), WORD(1)])  # read, of data
        return context.get_dummy_value()

    return types.void(types.intp), build


@compiled()
def prefetch(array: np.ndarray, row: int, begin: int, end: int) -> None:
    """Ask for the numbers `begin` to `end` from array[row] on, of a contiguous array; goes on at
    once, changes nothing.

    Few lines at a time, between arithmetic: what a long burst asks for is dropped. Numbers beyond
    the array are no error: nothing is read there.
    """
    first = array.ctypes.data + row * array.strides[0]
    for offset in range(begin * array.itemsize, end * array.itemsize, LINE_BYTES):
        prefetch_at(first + offset)


@compiled(inline="always")
def ask(address: int, lines: int) -> int:
    """Ask for some lines from an address on, and return the one behind them. An address costs
    nothing where an array that is handed on costs two counts of references a call."""
    for line in range(lines):
        prefetch_at(address + line * LINE_BYTES)
    return address + lines * LINE_BYTES


@compiled(inline="always")
def ask_in_pieces(address: int, lines: int, apart: int) -> int:
    """Ask for some lines of each of PIECES pieces that begin so many bytes apart; address: where to
    go on in the first. Returns the address behind its lines."""
    for line in range(lines):
        for piece in range(PIECES):
            prefetch_at(address + line * LINE_BYTES + piece * apart)
    return address + lines * LINE_BYTES


@compiled(inline="always")
def piece_bytes(array: np.ndarray, numbers: int) -> int:
    """How long each of PIECES pieces is that so many numbers of an array are asked for in: whole
    lines."""
    return -(-array.itemsize * numbers // (LINE_BYTES * PIECES)) * LINE_BYTES


@compiled(inline="always")
def address_of(array: np.ndarray, number: int) -> int:
    """Where a number of a contiguous array lies."""
    return array.ctypes.data + number * array.itemsize


@compiled(inline="always")
def lines_each(array: np.ndarray, numbers: int, tiles: int) -> int:
    """How many lines each of some tiles asks for, so that all together ask for so many numbers of
    an array, or for more: each for one at least. (In pieces: PIECES times as many tiles.)"""
    return -(-array.itemsize * numbers // (LINE_BYTES * tiles))
