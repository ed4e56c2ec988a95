"""A tile of a product of a few tokens: four rows of a matrix, one to five tokens, and the sum of
each row with each token in a register of its own.

`widened` has the registers. Here they come in tuples, one for each token: so the number of tokens
is part of the type, and there is machine code for each number. A row that was read (and widened, of
bf16) meets all tokens of the tile before the next is read.
"""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from twophase.kernels.compiled.compiling import compiled
from twophase.kernels.compiled.lane_code import FLOAT, place, plus_product, totals
from twophase.kernels.compiled.prefetch import address_of, ask, lines_each
from twophase.kernels.compiled.widened import (
    STEP,
    WIDTH,
    read,
    reading,
    register,
    two_registers,
)

Array = np.ndarray
SUM_ROWS = 4  # of a tile: it has the sum of each row with each token
SUM_TOKENS = (
    5 if WIDTH == 16 else 2
)  # at most: 20 sums, 10 registers of tokens, 2 of a row are all 32
_ZERO = ir.Constant(ir.VectorType(FLOAT, WIDTH), [0.0] * WIDTH)


@intrinsic  # type: ignore[untyped-decorator]
def nothing_each(context: Any, tokens: Any) -> Any:
    """A register of zeros for each token: where sums begin."""
    sums = types.UniTuple(register, tokens.count)  # type: ignore[attr-defined]

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_tuple(builder, sums, [_ZERO] * tokens.count)

    return sums(tokens), build


@intrinsic  # type: ignore[untyped-decorator]
def read_each(context: Any, array: Any, tokens: Any, at: Any) -> Any:
    """`widened.read` of the row of each token, whose first number is `tokens[i]` behind the first
    of the array, from its number `at` on."""
    found = types.UniTuple(two_registers, tokens.count)  # type: ignore[attr-defined]

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers, tokens, at = arguments
        of_one = reading(array, apart=False)
        each = [
            of_one(context, builder, signature, (numbers, builder.add(first, at)))
            for first in cgutils.unpack_tuple(builder, tokens)
        ]
        return context.make_tuple(builder, found, each)

    return found(array, tokens, types.intp), build


@intrinsic  # type: ignore[untyped-decorator]
def plus_products_each(context: Any, sums: Any, some: Any, row: Any) -> Any:
    """`widened.plus_products` of one row with each token: a sum for each."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        sums_, some_, row_ = (cgutils.unpack_tuple(builder, x) for x in arguments)
        tokens = [cgutils.unpack_tuple(builder, token) for token in some_]
        for half in range(2):
            sums_ = [
                plus_product(builder, total, token[half], row_[half])
                for total, token in zip(sums_, tokens, strict=True)
            ]
        return context.make_tuple(builder, sums, sums_)

    return sums(sums, some, two_registers), build


@intrinsic  # type: ignore[untyped-decorator]
def write_tile(context: Any, array: Any, at: Any, behind: Any, tile: Any) -> Any:
    """The sums of a tile into a contiguous fp32 array: those of the first token with the four rows
    at its number `at`, those of each next token `behind` further."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers, at, behind, tile = arguments
        rows = [cgutils.unpack_tuple(builder, row) for row in cgutils.unpack_tuple(builder, tile)]
        for of_token in zip(*rows, strict=True):
            found = totals(builder, of_token)
            where = place(context, builder, signature, (numbers, at), found.type)
            builder.store(found, where, align=4)
            at = builder.add(at, behind)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, tile), build


@compiled(inline="always")
def tile_of(
    w: Array, rows: tuple[int, ...], x: Array, tokens: tuple[int, ...], n: int, ahead: int
) -> Any:
    """Four rows of a matrix times one to five tokens, n numbers of each, a multiple of STEP: sums
    as registers whose lanes are still to be added, for each row one of each token. Rows and tokens
    are given by the places of their first numbers behind the first of w and of x, fp32 and
    `arranged` for w. Asks for 4·n numbers of w, from the one `ahead` behind the first row's
    first on (0: for none)."""
    a = b = c = d = nothing_each(tokens)
    base, lines = address_of(w, rows[0] + ahead), lines_each(w, SUM_ROWS * STEP, 1)
    for i in range(0, n, STEP):
        some = read_each(x, tokens, i)
        if ahead:
            ask(base + SUM_ROWS * i * w.itemsize, lines)
        a = plus_products_each(a, some, read(w, rows[0] + i))
        b = plus_products_each(b, some, read(w, rows[1] + i))
        c = plus_products_each(c, some, read(w, rows[2] + i))
        d = plus_products_each(d, some, read(w, rows[3] + i))
    return a, b, c, d
