"""Products of pairs of bf16 in one instruction, on processors that have it (AVX512-BF16: Cooper
Lake, Sapphire Rapids, Zen 4, and later ones).

A loop over fp32 multiplies 16 numbers in an instruction. This one multiplies 32 bf16 numbers, pair
by pair, and adds both products of a pair to an fp32 sum. LLVM does not find it in a loop, so it is
written down here, in the one place where Python text does not say what the machine does.
"""

from functools import cache
from typing import Any

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.core.codegen import get_host_cpu_features
from numba.extending import intrinsic

LANES = 16  # rows that a register holds
ROWS, TOKENS = 32, 8  # whose sums stay in registers
_FLOATS, _WORDS = (ir.VectorType(kind, LANES) for kind in (ir.FloatType(), ir.IntType(32)))
_FLAGS = ("contract",)


@cache
def has_pairs() -> bool:
    """Whether Numba may use the instruction here: LLVM ends the process where it is asked for and
    left out (`NUMBA_ENABLE_AVX=0`, `NUMBA_CPU_NAME=generic`, `NUMBA_CPU_FEATURES`)."""
    told = numba.config.CPU_FEATURES
    features: str = get_host_cpu_features() if told is None else told
    return "+avx512bf16" in features.split(",")


@intrinsic  # type: ignore[untyped-decorator]
def add_pair_products(
    context: Any, pairs: Any, row: Any, x: Any, first: Any, sums: Any, chunk: Any, token: Any,
    starts: Any, factors: Any, out: Any,
) -> Any:  # fmt: skip
    """For 32 rows r from `row` on and 8 tokens t from `token` on:

        out[t, r] += factors[r]·(starts[r]·sums[chunk, t] + Σ_p pairs[p, r]·x[first + p, t])

    pairs uint32 [n, rows] and x uint32 [.., B]: two bf16 in each number; sums fp32 [.., B], starts
    and factors fp32 [rows], out fp32 [B, rows]. All contiguous; nothing is checked.
    """
    arrays = {0: pairs, 2: x, 4: sums, 7: starts, 8: factors, 9: out}

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        views = {
            i: context.make_array(signature.args[i])(context, builder, arguments[i]) for i in arrays
        }
        row, first, chunk, token = (arguments[i] for i in (1, 3, 5, 6))
        n, rows = cgutils.unpack_tuple(builder, views[0].shape)
        B = cgutils.unpack_tuple(builder, views[2].shape)[1]

        def place(array: int, line: Any, column: Any, kind: Any) -> Any:
            """Where a number of a two-dimensional array stands, as the place of a `kind`."""
            width = rows if array in (0, 9) else B
            index = builder.add(builder.mul(line, width), column)
            where = builder.gep(views[array].data, [index])
            return builder.bitcast(where, kind.as_pointer())

        def rows_of(array: int) -> list[Any]:
            """The rows of a one-dimensional array."""
            found = [builder.gep(views[array].data, [row]) for row in lanes]
            return [load(builder.bitcast(where, _FLOATS.as_pointer())) for where in found]

        def load(where: Any) -> Any:
            return builder.load(where, align=4)

        def spread(number: Any, kind: Any) -> Any:
            """One number in all lanes."""
            lone = builder.insert_element(ir.Constant(kind, ir.Undefined), number, word(0))
            mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
            return builder.shuffle_vector(lone, ir.Constant(kind, ir.Undefined), mask)

        word = ir.IntType(32)
        lanes = [builder.add(row, ir.Constant(row.type, i)) for i in range(0, ROWS, LANES)]
        tokens = [builder.add(token, ir.Constant(token.type, t)) for t in range(TOKENS)]
        starts, factors = rows_of(7), rows_of(8)
        total = {}
        for t, column in enumerate(tokens):
            x_sum = spread(load(place(4, chunk, column, ir.FloatType())), _FLOATS)
            for i, start in enumerate(starts):
                total[i, t] = cgutils.alloca_once_value(builder, builder.fmul(start, x_sum))
        with cgutils.for_range(builder, n) as loop:
            twos = [load(place(0, loop.index, row, _WORDS)) for row in lanes]
            line = builder.add(first, loop.index)
            for t, column in enumerate(tokens):
                number = spread(load(place(2, line, column, word)), _WORDS)
                for i, two in enumerate(twos):
                    new = _multiply_add(builder, builder.load(total[i, t]), two, number)
                    builder.store(new, total[i, t])
        for t, column in enumerate(tokens):
            for i, (row, factor) in enumerate(zip(lanes, factors, strict=True)):
                where = place(9, column, row, _FLOATS)
                added = builder.fmul(factor, builder.load(total[i, t]), flags=_FLAGS)
                builder.store(builder.fadd(load(where), added, flags=_FLAGS), where, align=4)
        return context.get_dummy_value()

    where = types.intp
    given = (pairs, where, x, where, sums, where, where, starts, factors, out)
    return types.void(*given), build


def _multiply_add(builder: Any, total: Any, two: Any, number: Any) -> Any:
    """total + two·number in each lane, both products of a pair."""
    kind = ir.FunctionType(_FLOATS, [_FLOATS, _WORDS, _WORDS])
    name = "llvm.x86.avx512bf16.dpbf16ps.512"
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, [total, two, number])
