"""Two registers of a row are its numbers, each once, and what is done to them is done to each."""

import numba
import numpy as np
import pytest

from twophase.kernels.compiled import lanes, widened
from twophase.kernels.compiled.widened import STEP, WIDTH

AT = 3  # where in an array: no multiple of a register
DTYPES = [np.float32, np.uint16]


def whole_numbers(seed: int, *shape: int) -> np.ndarray:
    """fp32 that bf16 holds as well, so that every sum is exact."""
    return np.random.default_rng(seed).integers(-100, 100, shape).astype(np.float32)


def stored(x: np.ndarray, dtype: type) -> np.ndarray:
    """fp32 as it is, or as the bits of bf16."""
    return x if dtype == np.float32 else (x.view(np.uint32) >> 16).astype(np.uint16)


@numba.njit
def copied(row, out):  # type: ignore[no-untyped-def]
    widened.write(out, AT, widened.read(row, AT))


@numba.njit
def summed(x, row, out):  # type: ignore[no-untyped-def]
    total = widened.plus_products(widened.nothing(), widened.read(x, 0), widened.read(row, AT))
    other = widened.plus_products(total, widened.read(x, 0), widened.read(row, AT))
    widened.add_totals(out, AT, (total, other, total, other))


@numba.njit
def summed_once(x, row, out):  # type: ignore[no-untyped-def]
    total = widened.nothing()
    for _ in range(2):
        one = widened.read_one(row, AT)
        total = lanes.add_times(total, widened.read_one(x, 0), one)
    widened.add_totals(out, AT, (total, widened.nothing()))


@numba.njit
def put_apart(x, out, two, four):  # type: ignore[no-untyped-def]
    a, b = widened.read_one(x, 0), widened.read_one(x, WIDTH)
    c, d = widened.read_one(x, 2 * WIDTH), widened.read_one(x, 3 * WIDTH)
    eight = a, b, c, d, d, c, b, a
    if len(four):
        widened.add_totals_of_four(out, four[0], four[1], four[2], four[3], (*eight, *eight))
    else:
        widened.add_totals_of_two(out, two[0], two[1], eight)


@numba.njit
def weighted(sums, weight, row):  # type: ignore[no-untyped-def]
    total = widened.plus_weighted(widened.read(sums, AT), weight, widened.read(row, AT))
    widened.write(sums, AT, total)


@numba.njit
def as_arranged(x, store):  # type: ignore[no-untyped-def]
    return widened.arranged(x, store)


@numba.njit
def as_restored(x, store):  # type: ignore[no-untyped-def]
    widened.restore(x, store)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_step_of_a_row_is_read_in_the_order_in_which_what_it_meets_is_arranged(dtype):
    row = whole_numbers(0, AT + STEP + 2)
    found = np.full(len(row), np.nan, np.float32)
    copied(stored(row, dtype), found)
    expected = as_arranged(row[None, AT : AT + STEP].copy(), stored(row, dtype)[None])[0]
    assert found[AT : AT + STEP].tolist() == expected.tolist()
    assert np.isnan(found[:AT]).all()
    assert np.isnan(found[AT + STEP :]).all()


def test_of_bf16_even_places_come_first_and_fp32_stays_as_it_is():
    x = np.arange(STEP + 1, dtype=np.float32)[None]
    assert as_arranged(x, stored(x, np.float32))[0].tolist() == x[0].tolist()
    evens_first = [*range(0, STEP, 2), *range(1, STEP, 2), STEP]
    assert as_arranged(x, stored(x, np.uint16))[0].tolist() == evens_first


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [0, 1, WIDTH, STEP - 1, STEP, STEP + 1, 3 * STEP + 5])
def test_what_is_arranged_is_restored_whatever_its_length(n, dtype):
    x = whole_numbers(n, 3, n)
    store = stored(x, dtype)
    found = as_arranged(x, store).copy()
    as_restored(found, store)
    assert np.array_equal(found, x)
    assert np.array_equal(x, whole_numbers(n, 3, n))  # and what was given is as it was


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_of_products_are_added_to_neighbors(dtype):
    row, x = whole_numbers(0, AT + STEP), whole_numbers(1, 1, STEP)
    out = whole_numbers(2, AT + 6)
    product = float(x[0] @ row[AT:])
    expected = out.copy()
    expected[AT : AT + 4] += [product, 2 * product, product, 2 * product]
    summed(as_arranged(x, stored(row, dtype)[None])[0], stored(row, dtype), out)
    assert out.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, -0.0])
def test_what_is_no_number_stays_in_its_place(special, dtype):
    row = whole_numbers(0, AT + STEP)
    row[AT + 5] = special
    sums = np.zeros(AT + STEP, np.float32)
    weighted(sums, np.float32(2), stored(row, dtype))
    found = sums[None, AT:].copy()
    as_restored(found, stored(row, dtype)[None])
    np.testing.assert_array_equal(found[0], 2 * row[AT:])


@pytest.mark.parametrize("dtype", DTYPES)
def test_half_a_step_is_read_as_it_lies_and_nothing_behind_it(dtype):
    x, row = whole_numbers(0, WIDTH), whole_numbers(1, AT + WIDTH + 1)
    row[AT + WIDTH] = np.nan
    out = np.zeros(AT + 3, np.float32)
    summed_once(x, stored(row, dtype), out)
    exact = 2 * float(x.astype(np.float64) @ row[AT : AT + WIDTH])
    assert out.tolist() == [0, 0, 0, exact, 0, 0]


@pytest.mark.parametrize("places", [(AT, 1), (3, 17, 11, 25)], ids=["two", "four"])
def test_sums_are_added_to_neighbors_in_two_and_in_four_places(places):
    """Of 8 registers and of 16, in their order; nothing beside them is touched."""
    x, out = whole_numbers(0, 4 * WIDTH), whole_numbers(1, 30)
    sums, expected = x.reshape(4, WIDTH).sum(1), out.copy()
    for i, at in enumerate(places):
        expected[at : at + 4] += sums if i % 2 == 0 else sums[::-1]
    two, four = (np.array(places if len(places) == n else (), np.int64) for n in (2, 4))
    put_apart(x, out, two, four)
    assert out.tolist() == expected.tolist()
