"""Tile registers of a processor with AMX as places in compiled loops: eight tables of up to 16 rows
of 64 bytes, and one instruction that multiplies two of them (Intel's Sapphire Rapids and later).

    multiply(t, a, b):  t[m, n] += Σ_k a[m, 2k]·b[k, 2n] + a[m, 2k + 1]·b[k, 2n + 1]

a is a matrix of bf16, row by row; b one whose rows go in pairs, two bf16 of a column side by side;
t is fp32. Registers are named by literal numbers. Linux lends a process the room that they take
only when it asks (`permitted`), and each thread says how many rows and bytes of each register it
uses (`configure`). A load of rows that were just stored waits for the store, and everything behind
it stands still.
"""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from twophase.kernels.compiled.lane_code import place
from twophase.kernels.compiled.loops import inner

ROWS, ROW_BYTES = 16, 64
_BYTE, _INT64 = ir.IntType(8), ir.IntType(64)
_ARCH_PRCTL, _ASK, _TILE_DATA = 158, 0x1023, 18  # arch_prctl(ARCH_REQ_XCOMP_PERM, 18)


@intrinsic  # type: ignore[untyped-decorator]
def permitted(context: Any) -> Any:
    """Ask Linux for tile registers, for all threads of this process; False where it refuses (a
    filter of system calls, say). Whoever uses them without is ended."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers = [_INT64(number) for number in (_ARCH_PRCTL, _ASK, _TILE_DATA)]
        return builder.icmp_signed("==", _call(builder, "syscall", numbers, _INT64), _INT64(0))

    return types.boolean(), build


@inner
def configuration(rows: tuple[int, ...], row_bytes: tuple[int, ...]) -> np.ndarray:
    """What `configure` takes: of register i the first rows[i] rows, row_bytes[i] bytes of each."""
    found = np.zeros(64, np.uint8)
    found[0] = 1  # the only palette that there is
    for i in range(len(rows)):
        found[16 + 2 * i], found[48 + i] = row_bytes[i], rows[i]
    return found


@intrinsic  # type: ignore[untyped-decorator]
def configure(context: Any, found: Any) -> Any:
    """Give this thread's registers their shapes, and zeros."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.bitcast(view.data, _BYTE.as_pointer())
        _call(builder, "llvm.x86.ldtilecfg", [address])
        return context.get_dummy_value()

    return types.void(found), build


@intrinsic  # type: ignore[untyped-decorator]
def release(context: Any) -> Any:
    """Give all registers back: a thread that holds some is slower to switch."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _call(builder, "llvm.x86.tilerelease", [])
        return context.get_dummy_value()

    return types.void(), build


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def clear(context: Any, t: Any) -> Any:
    """Zeros into register t."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _call(builder, "llvm.x86.tilezero", [_BYTE(t.literal_value)])
        return context.get_dummy_value()

    return types.void(t), build


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def load_rows(context: Any, t: Any, array: Any, at: Any, stride: Any) -> Any:
    """Rows into register t: the first begins with the number that is `at` behind the first of a
    contiguous array, each `stride` numbers behind the one before. Nothing is checked."""
    return _moved("llvm.x86.tileloadd64", t, array)


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def store_rows(context: Any, t: Any, array: Any, at: Any, stride: Any) -> Any:
    """Put register t into an array, where `load_rows` would find it."""
    return _moved("llvm.x86.tilestored64", t, array)


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def multiply(context: Any, t: Any, a: Any, b: Any) -> Any:
    """Register t += registers a·b, as above; numbers below 2⁻¹²⁶ count as zero."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _call(builder, "llvm.x86.tdpbf16ps", [_BYTE(x.literal_value) for x in (t, a, b)])
        return context.get_dummy_value()

    return types.void(t, a, b), build


@inner
def aligned_words(n: int) -> np.ndarray:
    """Room for n words of 32 bits that begins with a line of the cache: rows that lie across two
    lines take twice as long."""
    room = np.empty(n + ROW_BYTES // 4, np.uint32)
    first = (-room.ctypes.data % ROW_BYTES) // 4
    return room[first : first + n]


def _moved(name: str, t: Any, array: Any) -> Any:
    """Signature and code of an instruction that moves rows."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        where = types.void(array, types.intp)
        first = place(context, builder, where, arguments[1:3], _BYTE)
        stride = builder.mul(arguments[3], _INT64(array.dtype.bitwidth // 8))
        _call(builder, name, [_BYTE(t.literal_value), first, stride])
        return context.get_dummy_value()

    return types.void(t, array, types.intp, types.intp), build


def _call(builder: Any, name: str, arguments: list[Any], result: Any = None) -> Any:
    """A function of LLVM or of the C library."""
    kind = ir.FunctionType(result or ir.VoidType(), [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)
