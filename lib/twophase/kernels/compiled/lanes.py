"""Registers of a processor with AVX-512 as values in compiled loops: 32 numbers side by side, and
the few operations on them that LLVM does not find in a plain loop.

`words` are 32 bits each, whole numbers or four bytes; `floats` are fp32. An operation on 32 lanes
is two instructions on registers of 16. The two that matter add products of several small numbers
to each lane: four of bytes (AVX512-VNNI: Ice Lake, Zen 4, and later ones) or two of bf16
(AVX512-BF16: Cooper Lake, Sapphire Rapids, Zen 4, and later ones).
"""

import sys
from functools import cache, reduce
from typing import Any

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from llvmlite.binding import get_host_cpu_name  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic, models, register_model

from twophase.kernels.compiled.lane_code import (
    FLOAT,
    WORD,
    check_layout,
    chosen,
    folded,
    in_all,
    place,
    plus_product,
)

ZEN = get_host_cpu_name().startswith("znver")
LANES = 32  # numbers side by side: of rows of codes, or of one head
REGISTER = 16
_BYTES = ir.VectorType(ir.IntType(8), 4 * REGISTER)


class Lanes(types.Type):
    """The type of 32 numbers in registers."""

    def __init__(self, name: str, number: Any) -> None:
        super().__init__(name)
        self.vector = ir.VectorType(number, LANES)


words, floats = Lanes("words", WORD), Lanes("floats", FLOAT)


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Lanes) -> None:
        super().__init__(manager, kind, kind.vector)


def features() -> tuple[str, ...]:
    """What Numba may use of the processor, as LLVM names it: LLVM ends a process that asks for more
    (`NUMBA_ENABLE_AVX=0`, `NUMBA_CPU_NAME=generic`, `NUMBA_CPU_FEATURES`)."""
    told = numba.config.CPU_FEATURES
    features: str = get_host_cpu_features() if told is None else told
    return tuple(features.split(","))


@cache
def has_pairs() -> bool:
    """Whether pairs of bf16 are multiplied in one instruction here."""
    return "+avx512bf16" in features()


@cache
def has_quick_pairs() -> bool:
    """Whether such an instruction takes no longer than one on 16 numbers of fp32. On an Intel Xeon
    it takes as long as four: to widen is quicker there."""
    return has_pairs() and ZEN


@cache
def has_tiles() -> bool:
    """Whether matrices of bf16 are multiplied in one instruction here (`tile_registers`), and this
    is Linux, which has to be asked for them."""
    return sys.platform == "linux" and {"+amx-bf16", "+avx512bf16"} <= set(features())


@cache
def has_wide() -> bool:
    """Whether a register holds 16 numbers here, and there are 32 of them."""
    return "+avx512f" in features()


@cache
def has_bytes() -> bool:
    """Whether fours of bytes are multiplied in one instruction here."""
    return "+avx512vnni" in features()


@intrinsic  # type: ignore[untyped-decorator]
def load(context: Any, array: Any, at: Any) -> Any:
    """32 numbers of a contiguous array, from the one on that is `at` behind its first: uint32 and
    uint8 as words, fp32 and the bits of bf16 (uint16) as floats. Nothing is checked."""
    narrow = array.dtype in (types.uint8, types.uint16)
    kind = floats if array.dtype in (types.float32, types.uint16) else words

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        stored = ir.VectorType(ir.IntType(array.dtype.bitwidth), LANES)
        where = place(context, builder, signature, arguments, stored if narrow else kind.vector)
        found = builder.load(where, align=array.dtype.bitwidth // 8)
        if narrow:
            found = builder.zext(found, words.vector)
        if array.dtype == types.uint16:  # a bf16 is the upper half of an fp32
            found = builder.bitcast(builder.shl(found, _same(16)), floats.vector)
        return found

    return kind(array, types.intp), build


@intrinsic  # type: ignore[untyped-decorator]
def store(context: Any, array: Any, at: Any, x: Any) -> Any:
    """Put floats into a contiguous fp32 array, or words into one of uint32, where `load` would find
    them."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        where = place(context, builder, signature, arguments, x.vector)
        builder.store(arguments[2], where, align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, x), build


@intrinsic  # type: ignore[untyped-decorator]
def spread(context: Any, number: Any) -> Any:
    """A number in all lanes: float32 as floats, int32 and uint32 as words."""
    kind = floats if number == types.float32 else words

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return in_all(builder, arguments[0], kind.vector)

    return kind(number), build


@intrinsic  # type: ignore[untyped-decorator]
def pick(context: Any, array: Any, at: Any) -> Any:
    """The one number that is `at` behind the first of a contiguous array: without a look at
    whether `at` is negative, which took a fifth of the time of a loop."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        check_layout(signature.args[0])
        view = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.load(builder.gep(view.data, [arguments[1]]))

    return array.dtype(array, types.intp), build


@intrinsic  # type: ignore[untyped-decorator]
def low_halves(context: Any, w: Any) -> Any:
    """The lower four bits of each byte."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.and_(arguments[0], _same(0x0F0F0F0F))

    return words(words), build


@intrinsic  # type: ignore[untyped-decorator]
def high_halves(context: Any, w: Any) -> Any:
    """The upper four bits of each byte."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.and_(builder.lshr(arguments[0], _same(4)), _same(0x0F0F0F0F))

    return words(words), build


@intrinsic  # type: ignore[untyped-decorator]
def times(context: Any, a: Any, b: Any) -> Any:
    """a·b, of two words or two floats."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return (builder.fmul if a == floats else builder.mul)(*arguments)

    return a(a, a), build


@intrinsic  # type: ignore[untyped-decorator]
def add_times(context: Any, total: Any, a: Any, b: Any) -> Any:
    """total + a·b of floats, or of registers of `widened`, which may be rounded once."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return plus_product(builder, *arguments)

    return total(total, total, total), build


@intrinsic  # type: ignore[untyped-decorator]
def as_floats(context: Any, w: Any) -> Any:
    """Whole numbers with a sign as floats."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.sitofp(arguments[0], floats.vector)

    return floats(words), build


@intrinsic  # type: ignore[untyped-decorator]
def add_bytes(context: Any, total: Any, codes: Any, four: Any) -> Any:
    """total + Σ code·byte of each lane's four codes (0 to 255) and the four bytes (-128 to 127) of
    one uint32, the same in all lanes. Total is a whole number."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _in_registers(builder, "avx512.vpdpbusd.512", WORD, _BYTES, arguments)

    return words(words, words, types.uint32), build


@intrinsic  # type: ignore[untyped-decorator]
def add_pairs(context: Any, total: Any, pairs: Any, two: Any) -> Any:
    """total + both products of each lane's two bf16 and the two of `two`: words, or one uint32, the
    same in all lanes. Total is a float; a number below 2⁻¹²⁶ counts as zero."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        taken = ir.VectorType(WORD, REGISTER)
        return _in_registers(builder, "avx512bf16.dpbf16ps.512", FLOAT, taken, arguments)

    return floats(floats, words, words if two == words else types.uint32), build


@intrinsic  # type: ignore[untyped-decorator]
def side_by_side(context: Any, array: Any, i: Any, j: Any) -> Any:
    """Words of two bf16 each: the 32 from number i on of a contiguous uint16 array, each with one
    of the 32 from number j on in the upper half. Nothing is checked."""
    row = ir.VectorType(ir.IntType(16), LANES)

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, *starts = arguments
        places = [place(context, builder, signature, (array, at), row) for at in starts]
        lower, upper = (builder.load(where, align=2) for where in places)
        turns = [number for lane in range(LANES) for number in (lane, LANES + lane)]
        mask = ir.Constant(ir.VectorType(WORD, 2 * LANES), turns)
        return builder.bitcast(builder.shuffle_vector(lower, upper, mask), words.vector)

    return words(array, types.intp, types.intp), build


@intrinsic  # type: ignore[untyped-decorator]
def total_of(context: Any, registers: Any) -> Any:
    """The sum of all floats in a tuple, in whatever order is fastest."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        part = reduce(builder.fadd, cgutils.unpack_tuple(builder, arguments[0]))
        while part.type.count > 1:
            part = folded(builder, part, None, part.type.count // 2)
        return builder.extract_element(part, WORD(0))

    return types.float32(registers), build


def _in_registers(builder: Any, name: str, number: Any, taken: Any, arguments: Any) -> Any:
    """An instruction on 16 lanes, for each half of 32: total, small numbers of each lane, and what
    they are multiplied by: as many, or one number that is the same for all. `taken`: how it wants
    to see small numbers."""
    totals, smalls, others = arguments
    if others.type == WORD:
        others = in_all(builder, others, words.vector)
    result = ir.VectorType(number, REGISTER)
    kind = ir.FunctionType(result, [result, taken, taken])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.{name}")
    halves = []
    for first in range(0, LANES, REGISTER):
        lanes = range(first, first + REGISTER)
        total, small, other = (chosen(builder, it, lanes) for it in (totals, smalls, others))
        small, other = builder.bitcast(small, taken), builder.bitcast(other, taken)
        halves.append(builder.call(function, [total, small, other]))
    return chosen(builder, halves[0], range(LANES), halves[1])


def _same(number: int) -> Any:
    """One constant in all words."""
    return ir.Constant(words.vector, [number] * LANES)
