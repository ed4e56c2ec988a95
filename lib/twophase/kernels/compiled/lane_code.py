"""What operations on registers are made of, in LLVM's language."""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core.errors import TypingError

WORD, FLOAT = ir.IntType(32), ir.FloatType()
FUSED = ("contract",)  # a product and a sum may be rounded once


def place(context: Any, builder: Any, signature: Any, arguments: Any, vector: Any) -> Any:
    """Where the number stands that is arguments[1] behind the first of the array arguments[0]:
    contiguous, or Numba raises TypingError."""
    check_layout(signature.args[0])
    view = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.bitcast(builder.gep(view.data, [arguments[1]]), vector.as_pointer())


def check_layout(array: Any) -> None:
    """Numba's TypingError unless an array is contiguous."""
    if array.layout != "C":
        raise TypingError("registers are filled from contiguous arrays: copy this one.")


def chosen(builder: Any, vector: Any, which: Sequence[int], behind: Any = None) -> Any:
    """Some lanes of a vector, or of two, one behind the other."""
    mask = ir.Constant(ir.VectorType(WORD, len(which)), list(which))
    behind = ir.Constant(vector.type, ir.Undefined) if behind is None else behind
    return builder.shuffle_vector(vector, behind, mask)


def in_all(builder: Any, number: Any, vector: Any) -> Any:
    """One number in all lanes."""
    nothing = ir.Constant(vector, ir.Undefined)
    lone = builder.insert_element(nothing, number, WORD(0))
    return chosen(builder, lone, [0] * vector.count)


def plus_product(builder: Any, total: Any, a: Any, b: Any) -> Any:
    """total + a·b of floats, which may be rounded once."""
    return builder.fadd(total, builder.fmul(a, b, flags=FUSED), flags=FUSED)


def folded(builder: Any, x: Any, y: Any, width: int) -> Any:
    """Runs of 2·width lanes, of a vector or of two, as runs of width: their halves added."""
    n = x.type.count * (1 if y is None else 2)
    firsts = [run + lane for run in range(0, n, 2 * width) for lane in range(width)]
    halves = [chosen(builder, x, [lane + half for lane in firsts], y) for half in (0, width)]
    return builder.fadd(*halves)


def totals(builder: Any, sums: Sequence[Any]) -> Any:
    """The sums of 2, 4, 8 or 16 vectors as one of as many lanes, summed in whatever order is
    fastest. (Together: halves of two vectors fill one, so that each addition serves both.)"""
    width = sums[0].type.count  # lanes that a sum still has
    while width > 1:
        width //= 2
        behind = sums[1::2] or [None]
        sums = [folded(builder, *two, width) for two in zip(sums[::2], behind, strict=True)]
    while len(sums) > 1:  # more sums than lanes: 16 in registers of 8
        n = 2 * sums[0].type.count
        sums = [chosen(builder, x, range(n), y) for x, y in zip(sums[::2], sums[1::2], strict=True)]
    return sums[0]
