"""Operations on registers are those on each of their numbers, at the ends of their ranges too."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from twophase.kernels.compiled import lanes, pair_registers, widened
from twophase.kernels.compiled.lanes import LANES

AT = 5  # where in an array: no multiple of a register


@numba.njit
def four_bytes(start, codes, scales, four, out):  # type: ignore[no-untyped-def]
    total = lanes.times(lanes.load(codes, AT), lanes.spread(start))
    total = lanes.add_bytes(total, lanes.low_halves(lanes.load(scales, AT)), four)
    total = lanes.add_bytes(total, lanes.high_halves(lanes.load(scales, AT)), four)
    lanes.store(out, AT, lanes.as_floats(lanes.add_bytes(total, lanes.load(scales, AT), four)))


@numba.njit
def two_bf16(start, factors, pairs, twos, out):  # type: ignore[no-untyped-def]
    total = lanes.times(lanes.load(start, AT), lanes.spread(np.float32(-3)))
    total = lanes.add_pairs(total, lanes.load(pairs, AT), lanes.pick(twos, AT))
    lanes.store(out, AT, lanes.add_times(lanes.load(out, AT), lanes.load(factors, AT), total))


@numba.njit
def two_rows(start, pairs, rows, out):  # type: ignore[no-untyped-def]
    both = lanes.side_by_side(rows, AT, AT + LANES + 1)
    total = lanes.add_pairs(lanes.load(start, AT), lanes.load(pairs, AT), both)
    lanes.store(out, AT, total)


@numba.njit
def two_rows_of_pairs(start, x, y, out):  # type: ignore[no-untyped-def]
    total = lanes.add_times(
        widened.nothing(), widened.read_one(start, AT), widened.read_one(start, AT)
    )
    product = pair_registers.read_pairs(x, AT), pair_registers.read_pairs(y, AT)
    total = pair_registers.plus_pairs(total, product[0], product[1])
    widened.add_totals(out, AT, (total, widened.nothing()))


def test_registers_are_not_filled_from_numbers_with_gaps_between_them() -> None:
    row = np.ones(4 * LANES, np.float32)

    @numba.njit
    def first(x):  # type: ignore[no-untyped-def]
        return lanes.pick(x, 0)

    @numba.njit
    def doubled(x, out):  # type: ignore[no-untyped-def]
        widened.add_totals(out, 0, (widened.read_one(x, 0), widened.nothing()))

    assert first(row) == 1
    with pytest.raises(numba.TypingError, match="contiguous arrays"):
        first(row[::2])
    with pytest.raises(numba.TypingError, match="contiguous arrays"):
        doubled(row[::2], row)


def random(seed: int, high: int, kind: type) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, high, AT + LANES + 3).astype(kind)


@pytest.mark.skipif(not lanes.has_bytes(), reason="this processor does not multiply bytes by fours")
def test_bytes_are_codes_without_a_sign_times_numbers_with_one() -> None:
    start, codes, wide = -7, random(0, 256, np.uint8), random(1, 2**32, np.uint32)
    codes[AT], wide[AT], wide[AT + 1] = 255, 2**32 - 1, 0
    numbers = np.array([-128, 127, -1, 3], np.int8)
    out = np.zeros(len(codes), np.float32)
    four_bytes(np.int32(start), codes, wide, numbers.view(np.uint32)[0], out)
    every = wide.view(np.uint8).reshape(-1, 4).astype(np.int64)
    terms = (every % 16 + every // 16 + every) @ numbers.astype(np.int64)
    expected = start * codes.astype(np.int64) + terms
    assert out[AT : AT + LANES].tolist() == expected[AT : AT + LANES].tolist()
    assert not out[:AT].any()
    assert not out[AT + LANES :].any()


@pytest.mark.skipif(not lanes.has_pairs(), reason="this processor does not multiply pairs of bf16")
def test_pairs_are_both_products_of_two_bf16() -> None:
    small = [random(seed, 64, np.float32) - 32 for seed in range(6)]  # whole: every sum is exact
    halves = [(x.view(np.uint32) >> 16).astype(np.uint32) for x in small]
    pairs, twos = halves[0] | halves[1] << 16, halves[2] | halves[3] << 16
    start, factors = small[4], halves[5].astype(np.uint16)
    out = np.ones(len(start), np.float32)
    two_bf16(start, factors, pairs, twos, out)
    total = -3 * start + small[0] * small[2][AT] + small[1] * small[3][AT]
    expected = np.ones(len(start), np.float32)
    expected[AT : AT + LANES] += (small[5] * total)[AT : AT + LANES]
    assert out.tolist() == expected.tolist()


@pytest.mark.skipif(not lanes.has_pairs(), reason="this processor does not multiply pairs of bf16")
def test_numbers_of_two_rows_stand_side_by_side() -> None:
    small = [random(seed, 64, np.float32) - 32 for seed in range(5)]  # whole: every sum is exact
    halves = [(x.view(np.uint32) >> 16).astype(np.uint32) for x in small]
    rows = np.concatenate([halves[2][: AT + LANES + 1], halves[3][AT:]]).astype(np.uint16)
    out = np.zeros(len(small[4]), np.float32)
    two_rows(small[4], halves[0] | halves[1] << 16, rows, out)
    expected = small[4] + small[0] * small[2] + small[1] * small[3]
    assert out[AT : AT + LANES].tolist() == expected[AT : AT + LANES].tolist()


@pytest.mark.skipif(not lanes.has_pairs(), reason="this processor does not multiply pairs of bf16")
def test_a_register_of_pairs_is_32_numbers_of_a_row() -> None:
    start, x, y = (random(seed, 64, np.float32) - 32 for seed in range(3))  # sums are exact
    x[AT + LANES :], y[:AT] = np.nan, np.nan
    out = np.zeros(AT + 3, np.float32)
    two_rows_of_pairs(start, *((z.view(np.uint32) >> 16).astype(np.uint16) for z in (x, y)), out)
    here = slice(AT, AT + LANES)
    exact = float((start[AT : AT + lanes.REGISTER] ** 2).sum() + x[here] @ y[here])
    assert out.tolist() == [0] * AT + [exact, 0, 0]
