"""Numbers of a row in two registers of fp32: what loops multiply where no instruction multiplies
bf16; and registers of sums, which all forms have.

A word of 32 bits holds two bf16. A shift makes fp32 of the lower one, a mask of the upper one: so a
row of bf16 is read as two registers, one of the numbers at even places and one of those at odd
places. (To bring each bf16 into a word of its own takes two permutations and two shifts, on the
units that also multiply.) fp32 is read as the first half and the second. What a row of bf16 meets,
a query say, is `arranged` in the same way once, and what sums of such rows come to is `restored`.

On a Zen 3, a block of 64 tokens in the second-level cache (32/8 heads of 128, bf16) takes 9.4 µs
for its scores and 9.5 for its values; as LLVM arranges plain loops it took 14 to 16 and 13 to 14.
The products alone would take 5.4.
"""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic, models, overload, register_model

from twophase.kernels.compiled.lane_code import (
    FLOAT,
    WORD,
    chosen,
    in_all,
    place,
    plus_product,
    totals,
)
from twophase.kernels.compiled.lanes import has_wide
from twophase.kernels.compiled.loops import inner

WIDTH = 16 if has_wide() else 8  # numbers in a register of this processor
STEP = 2 * WIDTH  # numbers of a row that are read at once
_VECTOR = ir.VectorType(FLOAT, WIDTH)
_WORDS = ir.VectorType(WORD, WIDTH)


class Register(types.Type):
    """The type of WIDTH numbers of fp32."""


register = Register("register")
two_registers = types.UniTuple(register, 2)  # type: ignore[attr-defined]


@register_model(Register)
class _RegisterModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Register) -> None:
        super().__init__(manager, kind, _VECTOR)


@intrinsic  # type: ignore[untyped-decorator]
def nothing(context: Any) -> Any:
    """A register of zeros: where a sum begins."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.Constant(_VECTOR, [0.0] * WIDTH)

    return register(), build


@intrinsic  # type: ignore[untyped-decorator]
def read(context: Any, array: Any, at: Any) -> Any:
    """STEP numbers of a contiguous array, from the one on that is `at` behind its first: of bf16
    (uint16) those at even places and those at odd ones, of fp32 one half and the other. Nothing is
    checked."""
    return two_registers(array, types.intp), reading(array, apart=False)


@intrinsic  # type: ignore[untyped-decorator]
def read_apart(context: Any, array: Any, at: Any) -> Any:
    """The same, and of fp32, too, those at even places and those at odd ones: for rows and a vector
    that is not `arranged` for them, whose products are summed in one order, whatever the dtype."""
    return two_registers(array, types.intp), reading(array, apart=True)


def reading(array: Any, apart: bool) -> Any:
    """What writes the code of `read` and `read_apart`."""
    in_bits = array.dtype == types.uint16

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = _WORDS if in_bits else _VECTOR
        where = place(context, builder, signature, arguments, kind)
        if in_bits:
            pairs = builder.load(where, align=2)
            halves = [
                builder.shl(pairs, ir.Constant(_WORDS, [16] * WIDTH)),
                builder.and_(pairs, ir.Constant(_WORDS, [0xFFFF0000] * WIDTH)),
            ]
            found = [builder.bitcast(half, _VECTOR) for half in halves]
        else:
            found = [builder.load(builder.gep(where, [WORD(i)]), align=4) for i in range(2)]
            if apart:
                left, right = found
                found = [chosen(builder, left, range(odd, STEP, 2), right) for odd in (0, 1)]
        return context.make_tuple(builder, two_registers, found)

    return build


@intrinsic  # type: ignore[untyped-decorator]
def read_one(context: Any, array: Any, at: Any) -> Any:
    """WIDTH numbers of a contiguous array, from the one on that is `at` behind its first, as they
    lie: fp32, or the bits of bf16. Nothing is checked."""
    in_bits = array.dtype == types.uint16

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        stored = ir.VectorType(ir.IntType(16), WIDTH) if in_bits else _VECTOR
        where = place(context, builder, signature, arguments, stored)
        found = builder.load(where, align=array.dtype.bitwidth // 8)
        if in_bits:  # a bf16 is the upper half of an fp32
            found = builder.shl(builder.zext(found, _WORDS), ir.Constant(_WORDS, [16] * WIDTH))
        return builder.bitcast(found, _VECTOR)

    return register(array, types.intp), build


@intrinsic  # type: ignore[untyped-decorator]
def write(context: Any, array: Any, at: Any, numbers: Any) -> Any:
    """Put two registers into a contiguous fp32 array, where `read` would find them."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        where = place(context, builder, signature, arguments, _VECTOR)
        for i, register_ in enumerate(cgutils.unpack_tuple(builder, arguments[2])):
            builder.store(register_, builder.gep(where, [WORD(i)]), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, two_registers), build


@intrinsic  # type: ignore[untyped-decorator]
def plus_products(context: Any, total: Any, x: Any, y: Any) -> Any:
    """total + x·y in each lane, for both registers of x and y, one after the other."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        total, *factors = arguments
        for pair in zip(*(cgutils.unpack_tuple(builder, x) for x in factors), strict=True):
            total = plus_product(builder, total, *pair)
        return total

    return register(register, two_registers, two_registers), build


@intrinsic  # type: ignore[untyped-decorator]
def plus_weighted(context: Any, sums: Any, weight: Any, x: Any) -> Any:
    """sums + weight·x, each of two registers; the weight is one fp32."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        weight = in_all(builder, arguments[1], _VECTOR)
        pairs = zip(*(cgutils.unpack_tuple(builder, arguments[i]) for i in (0, 2)), strict=True)
        found = [plus_product(builder, total, weight, x) for total, x in pairs]
        return context.make_tuple(builder, two_registers, found)

    return two_registers(two_registers, types.float32, two_registers), build


@intrinsic  # type: ignore[untyped-decorator]
def add_totals(context: Any, array: Any, at: Any, registers: Any) -> Any:
    """Add the sum of each of 2, 4 or 8 registers to as many neighbors in a contiguous fp32 array,
    from the number on that is `at` behind its first."""
    return types.void(array, types.intp, registers), _put_totals(places=1, added=True)


@intrinsic  # type: ignore[untyped-decorator]
def add_totals_of_two(context: Any, array: Any, at: Any, other: Any, registers: Any) -> Any:
    """The same for two runs of neighbors: the first half of the registers is added from `at` on,
    the second from `other` on."""
    kinds = array, types.intp, types.intp, registers
    return types.void(*kinds), _put_totals(places=2, added=True)


@intrinsic  # type: ignore[untyped-decorator]
def add_totals_of_four(
    context: Any, array: Any, at: Any, second: Any, third: Any, fourth: Any, registers: Any
) -> Any:
    """The same for four runs of neighbors, a quarter of 16 registers each."""
    kinds = array, at, second, third, fourth, registers
    return types.void(*kinds), _put_totals(places=4, added=True)


@intrinsic  # type: ignore[untyped-decorator]
def write_totals(context: Any, array: Any, at: Any, registers: Any) -> Any:
    """Put the sums of 2, 4 or 8 registers where `add_totals` would add them."""
    return types.void(array, types.intp, registers), _put_totals(places=1, added=False)


@intrinsic  # type: ignore[untyped-decorator]
def write_totals_apart(context: Any, array: Any, at: Any, apart: Any, registers: Any) -> Any:
    """The same, each so many numbers behind the one before."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, start, apart, registers = arguments
        found = totals(builder, cgutils.unpack_tuple(builder, registers))
        for i in range(found.type.count):
            where = place(context, builder, signature, (array, start), FLOAT)
            builder.store(builder.extract_element(found, WORD(i)), where, align=4)
            start = builder.add(start, apart)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, registers), build


def _put_totals(places: int, added: bool) -> Any:
    """What writes the code for sums of registers that go to so many places of an array."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, *starts, registers = arguments
        found = totals(builder, cgutils.unpack_tuple(builder, registers))
        n = found.type.count // places
        for i, start in enumerate(starts):
            part = chosen(builder, found, range(i * n, i * n + n))
            where = place(context, builder, signature, (array, start), part.type)
            if added:
                part = builder.fadd(builder.load(where, align=4), part)
            builder.store(part, where, align=4)
        return context.get_dummy_value()

    return build


def arranged(x: np.ndarray, store: np.ndarray) -> np.ndarray:
    """Rows of fp32 [n, m] in the order in which `read` finds numbers of a store's rows: for bf16 a
    copy, for fp32 x itself. What fills no step stays where it is."""
    raise NotImplementedError("arranged is for compiled code.")


def restore(x: np.ndarray, store: np.ndarray) -> None:
    """The other way round, in place."""
    raise NotImplementedError("restore is for compiled code.")


@overload(arranged)
def _arranged(x, store):  # type: ignore[no-untyped-def]
    if store.dtype == types.uint16:
        return lambda x, store: _evens_first(x)
    return lambda x, store: x


@overload(restore)
def _restore(x, store):  # type: ignore[no-untyped-def]
    if store.dtype == types.uint16:
        return lambda x, store: _side_by_side(x)
    return lambda x, store: None


@inner
def _evens_first(x: np.ndarray) -> np.ndarray:
    out = x.copy()
    for row in range(len(x)):
        for first in range(0, x.shape[1] // STEP * STEP, STEP):
            for i in range(WIDTH):
                out[row, first + i] = x[row, first + 2 * i]
                out[row, first + WIDTH + i] = x[row, first + 2 * i + 1]
    return out


@inner
def _side_by_side(x: np.ndarray) -> None:
    step = np.empty(STEP, np.float32)
    for row in range(len(x)):
        for first in range(0, x.shape[1] // STEP * STEP, STEP):
            step[:] = x[row, first : first + STEP]
            for i in range(WIDTH):
                x[row, first + 2 * i] = step[i]
                x[row, first + 2 * i + 1] = step[WIDTH + i]
