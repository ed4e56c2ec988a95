"""Products of pairs of bf16: a loop over fp32 multiplies 16 numbers in an instruction, this one 32,
pair by pair, and adds both products of a pair to an fp32 sum. Where a processor has that
(`lanes.has_pairs`), LLVM does not find it in a plain loop."""

import numpy as np

from twophase.kernels.compiled.codes import TILE
from twophase.kernels.compiled.lanes import (
    LANES,
    add_pairs,
    add_times,
    load,
    pick,
    spread,
    store,
    times,
)
from twophase.kernels.compiled.loops import inner

PAIR_TOKENS = 8  # whose sums stay in registers
Array = np.ndarray


@inner
def add_pair_products(
    pairs: Array, x: Array, first: int, sums: Array, starts: Array, factors: Array, out: Array
) -> None:
    """For all 128 rows r and all tokens t, 32 rows and 8 tokens at a time:

        out[t, r] += factors[r]·(starts[r]·sums[t] + Σ_p pairs[p, r]·x[first + p, t])

    pairs uint32 [n, 128] and x uint32 [.., B]: two bf16 in each number; sums fp32 [B], starts and
    factors fp32 [128], out fp32 [B, 128]. B is a multiple of 8.
    """
    B = len(sums)
    for row in range(0, TILE, LANES):
        start, factor = load(starts, row), load(factors, row)
        for b in range(0, B, PAIR_TOKENS):
            t0, t1 = times(start, spread(sums[b])), times(start, spread(sums[b + 1]))
            t2, t3 = times(start, spread(sums[b + 2])), times(start, spread(sums[b + 3]))
            t4, t5 = times(start, spread(sums[b + 4])), times(start, spread(sums[b + 5]))
            t6, t7 = times(start, spread(sums[b + 6])), times(start, spread(sums[b + 7]))
            for p in range(len(pairs)):
                two, i = load(pairs, p * TILE + row), (first + p) * B + b
                t0, t1 = add_pairs(t0, two, pick(x, i)), add_pairs(t1, two, pick(x, i + 1))
                t2, t3 = add_pairs(t2, two, pick(x, i + 2)), add_pairs(t3, two, pick(x, i + 3))
                t4, t5 = add_pairs(t4, two, pick(x, i + 4)), add_pairs(t5, two, pick(x, i + 5))
                t6, t7 = add_pairs(t6, two, pick(x, i + 6)), add_pairs(t7, two, pick(x, i + 7))
            for t, total in enumerate((t0, t1, t2, t3, t4, t5, t6, t7)):
                at = (b + t) * TILE + row
                store(out, at, add_times(load(out, at), factor, total))
