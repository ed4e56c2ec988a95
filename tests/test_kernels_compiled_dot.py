"""A row times a vector is what fp64 says, whatever its length, its dtype and its address."""

import numpy as np
import pytest
import torch

from twophase.kernels.compiled import dot
from twophase.kernels.compiled.loops import as_numpy, inner

WIDTHS = [0, 1, 127, 128, 129, 255, 1024, 2816]
# Sums of n products of numbers near 1, in another order: some roundings of 2⁻²⁴ each.
SUMS = 1e-6


@inner
def row_of(w, row, x):
    return dot.dot(w, row, x)


@inner
def rows_of(w, begin, end, x, sums, at):
    dot.dots(w, begin, end, x, sums, at)


def matrix(n: int, dtype: torch.dtype, rows: int = 3) -> torch.Tensor:
    return torch.randn(rows, n, generator=torch.Generator().manual_seed(n)).to(dtype)


def vector(n: int, beyond: int = 0) -> np.ndarray:
    """n numbers whose address lies so many bytes beyond a multiple of 64."""
    room = np.empty(4 * n + 128, np.uint8)
    first = -room.ctypes.data % 64 + beyond
    x = room[first : first + 4 * n].view(np.float32)
    x[:] = np.random.default_rng(n).standard_normal(n)
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("n", WIDTHS)
@pytest.mark.parametrize("form", [row_of, dot.dot_plain, dot.dot_lanes])
def test_every_row_of_any_width_is_what_fp64_says(form, n, dtype):
    w, x = matrix(n, dtype), vector(n)
    for row in range(3):
        products = w[row].double() * torch.from_numpy(x).double()
        found = form(as_numpy(w), row, x)
        assert abs(found - float(products.sum())) <= SUMS * (1 + float(products.abs().sum()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 128, 200, 1023, 1024, 1025])
@pytest.mark.parametrize(
    "form", [rows_of, dot.dots_one_by_one, dot.dots_lanes, dot.dots_from_places]
)
def test_any_run_of_rows_is_what_fp64_says_and_nothing_beside_it_is_written(form, n, dtype):
    w, x = matrix(n, dtype, rows=27), vector(n)
    expected = w.double() @ torch.from_numpy(x).double()
    bound = SUMS * (1 + w.double().abs() @ torch.from_numpy(x).double().abs())
    for begin, end in [(0, 27), (0, 8), (3, 3), (5, 12), (5, 13), (10, 27), (26, 27), (9, 4)]:
        sums = np.full(31, 7, np.float32)
        form(as_numpy(w), begin, end, x, sums, 2)
        end = max(begin, end)
        found = torch.from_numpy(sums[2 : 2 + end - begin]).double()
        assert torch.all((found - expected[begin:end]).abs() <= bound[begin:end])
        assert set(sums[:2]) == {7}
        assert set(sums[2 + end - begin :]) == {7}


@pytest.mark.parametrize("beyond", [0, 4, 16, 32, 48])
def test_where_the_vector_lies_changes_no_bit(beyond):
    w = as_numpy(matrix(1000, torch.bfloat16))
    assert row_of(w, 1, vector(1000, beyond)) == row_of(w, 1, vector(1000))


def test_columns_of_a_wider_matrix_are_read_as_they_lie():
    wide, x = np.arange(600, dtype=np.float32).reshape(2, 300), np.ones(150, np.float32)
    assert row_of(wide[:, ::2], 1, x) == wide[1, ::2].sum()
    assert row_of(wide[:, :150], 1, x) == wide[1, :150].sum()
    assert row_of(wide[:, :150].copy(), 0, np.ones(300, np.float32)[::2]) == wide[0, :150].sum()
    sums = np.empty(2, np.float32)
    rows_of(wide[:, 1::2], 0, 2, x, sums, 0)
    np.testing.assert_equal(sums, wide[:, 1::2].sum(1))


def test_sums_that_lie_apart_leave_what_is_between_them():
    w, x, sums = np.ones((9, 64), np.float32), np.ones(64, np.float32), np.zeros((9, 2), np.float32)
    rows_of(w, 0, 9, x, sums[:, 1], 0)
    np.testing.assert_equal(sums, [[0, 64]] * 9)
    double = np.zeros(10)
    rows_of(w, 0, 9, x, double, 0)
    np.testing.assert_equal(double, [64.0] * 9 + [0.0])


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 130, 255, 256])
def test_what_is_no_number_comes_out(place, number):
    w, x = as_numpy(torch.ones(1, 257)), np.ones(257, np.float32)
    x[place] = number
    np.testing.assert_equal(row_of(w, 0, x), np.float32(number))
    sums = np.empty(8, np.float32)
    rows_of(np.ones((8, 257), np.float32), 0, 8, x, sums, 0)
    np.testing.assert_equal(sums, np.full(8, number, np.float32))
