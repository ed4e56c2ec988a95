"""Pairs of bf16 in one register: 32 numbers of a row, as they lie in memory, two in each word.

One instruction multiplies such a row with another pair by pair, and adds both products of a pair
to one of 16 sums in fp32 (AVX512-BF16: `lanes.has_pairs`). A number below 2⁻¹²⁶ counts as zero.
"""

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic, models, register_model

from twophase.kernels.compiled.lane_code import FLOAT, WORD, place
from twophase.kernels.compiled.lanes import REGISTER
from twophase.kernels.compiled.widened import register

PAIRED = 2 * REGISTER  # numbers of bf16 in a register
_WORDS, _SUMS = ir.VectorType(WORD, REGISTER), ir.VectorType(FLOAT, REGISTER)


class Pairs(types.Type):
    """The type of PAIRED numbers of bf16."""


pairs = Pairs("pairs")


@register_model(Pairs)
class _PairsModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Pairs) -> None:
        super().__init__(manager, kind, _WORDS)


@intrinsic  # type: ignore[untyped-decorator]
def read_pairs(context: Any, array: Any, at: Any) -> Any:
    """PAIRED numbers of a contiguous array of bits of bf16 (uint16), from the one on that is `at`
    behind its first. Nothing is checked."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(place(context, builder, signature, arguments, _WORDS), align=2)

    return pairs(array, types.intp), build


@intrinsic  # type: ignore[untyped-decorator]
def plus_pairs(context: Any, total: Any, x: Any, y: Any) -> Any:
    """total + both products of each word's pairs: `total` is a register of fp32, 16 sums."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_SUMS, [_SUMS, _WORDS, _WORDS])
        name = "llvm.x86.avx512bf16.dpbf16ps.512"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)

    return register(register, pairs, pairs), build
