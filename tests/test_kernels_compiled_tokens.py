"""A matrix times several tokens is what fp64 says, whatever the sizes, the dtype and the cores."""

import numpy as np
import pytest
import torch

from twophase.kernels.compiled.loops import as_numpy
from twophase.kernels.compiled.tokens import (
    NEAR_ROWS,
    TOKENS_AT_ONCE,
    multiply_rows,
    product_of_tokens,
)

# Sums of n products of numbers near 1, in another order: some roundings of 2⁻²⁴ each.
SUMS = 1e-6
DTYPES = [torch.float32, torch.bfloat16]


def numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def multiplied(w: torch.Tensor, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    found = product_of_tokens(as_numpy(w), as_numpy(x), bias.numpy())
    return torch.from_numpy(found).view(x.dtype)


@pytest.mark.parametrize("stored", DTYPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("inputs", [0, 1, 7, 128, 1025])
@pytest.mark.parametrize("rows", [0, 1, 2, NEAR_ROWS - 1, NEAR_ROWS, 2 * NEAR_ROWS + 1, 131])
def test_any_number_of_rows_inputs_and_tokens_is_what_fp64_says_rounded_once(
    rows, inputs, dtype, stored
):
    w, bias = numbers(rows, rows, inputs).to(stored), numbers(1, rows)
    once = 0.0 if dtype == torch.float32 else 2**-8
    for B in (0, 1, 2, TOKENS_AT_ONCE - 1, TOKENS_AT_ONCE, TOKENS_AT_ONCE + 1, 17):
        x = numbers(B, B, inputs).to(dtype)
        found = multiplied(w, x, bias)
        assert found.dtype == dtype
        assert found.shape == (B, rows)
        exact = x.double() @ w.double().T + bias.double()
        sizes = x.abs().double() @ w.abs().double().T + bias.abs()
        assert ((found - exact).abs() <= SUMS * (1 + sizes) + once * exact.abs()).all()


@pytest.mark.parametrize("B", [2, TOKENS_AT_ONCE, 7])
def test_in_however_many_parts_the_bits_are_the_same(B):
    w, x, bias = (
        numbers(n, *shape).numpy() for n, shape in enumerate([(131, 200), (B, 200), (131,)])
    )
    found = [np.empty((B, 131), np.float32) for _ in range(5)]
    for parts, y in zip((1, 2, 3, 131, 200), found, strict=True):
        multiply_rows.serial(w, x, bias, y, parts)
    multiply_rows.parallel(w, x, bias, again := np.empty_like(found[0]), 2)
    assert all(np.array_equal(found[0], other) for other in (*found, again))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("B", [2, 3, 6])
def test_what_is_no_number_comes_out_where_it_belongs(B, number):
    w, x = torch.ones(5, 9).bfloat16(), torch.ones(B, 9).bfloat16()
    w[3, 8], x[1, 0] = number, number
    found = multiplied(w, x, torch.zeros(5))
    finite = torch.ones(B, 5, dtype=torch.bool)
    finite[:, 3] = finite[1] = False
    assert torch.equal(found.isfinite(), finite)
    assert torch.equal(found.isnan(), (x.float() @ w.float().T).isnan())


@pytest.mark.parametrize(
    ("w", "x", "bias"),
    [((3, 4), (2, 5), 3), ((3, 4), (4,), 3), ((3, 4), (2, 4), 4), ((3,), (2,), 3)],
)
def test_what_does_not_fit_is_refused_in_a_sentence(w, x, bias):
    with pytest.raises(ValueError, match="multiplies tokens"):
        product_of_tokens(*(np.ones(shape, np.float32) for shape in (w, x, bias)))
