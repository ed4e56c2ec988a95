"""A matrix times several tokens is what fp64 says, whatever the sizes, the dtype and the cores."""

import numpy as np
import pytest
import torch

from twophase.kernels.compiled.tokens import ROWS, TOKENS, multiply_rows, product_of_tokens

# Sums of n products of numbers near 1, in another order: some roundings of 2⁻²⁴ each.
SUMS = 1e-6


def numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("inputs", [0, 1, 7, 128, 1025])
@pytest.mark.parametrize("rows", [0, 1, 2, ROWS - 1, ROWS, 2 * ROWS + 1, 131])
def test_any_number_of_rows_inputs_and_tokens_is_what_fp64_says(rows, inputs, dtype):
    w = numbers(rows, rows, inputs).to(dtype)
    for B in (0, 1, TOKENS - 1, TOKENS, TOKENS + 1, 17):
        x = numbers(B, B, inputs)
        found = product_of_tokens(w, x)
        assert found.dtype == torch.float32
        assert found.shape == (B, rows)
        exact, sizes = x.double() @ w.double().T, x.abs().double() @ w.abs().double().T
        assert ((found - exact).abs() <= SUMS * (1 + sizes)).all()


def test_in_however_many_parts_the_bits_are_the_same():
    w, x = numbers(0, 131, 200).numpy(), numbers(1, 8, 200).numpy()
    found = [np.empty((8, 131), np.float32) for _ in range(5)]
    for parts, y in zip((1, 2, 3, 131, 200), found, strict=True):
        multiply_rows.serial(w, x, y, parts)
    multiply_rows.parallel(w, x, again := np.empty_like(found[0]), 2)
    assert all(np.array_equal(found[0], other) for other in (*found, again))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_is_no_number_comes_out_where_it_belongs(number):
    w, x = torch.ones(5, 9).bfloat16(), torch.ones(6, 9)
    w[3, 8], x[1, 0] = number, number
    found = product_of_tokens(w, x)
    finite = torch.ones(6, 5, dtype=torch.bool)
    finite[:, 3] = finite[1] = False
    assert torch.equal(found.isfinite(), finite)
    assert torch.equal(found.isnan(), (x @ w.float().T).isnan())


@pytest.mark.parametrize(
    ("w", "x"),
    [
        (torch.ones(3, 4), torch.ones(2, 5)),
        (torch.ones(3, 4), torch.ones(4)),
        (torch.ones(4), torch.ones(2, 4)),
        (torch.ones(3, 4), torch.ones(2, 4).bfloat16()),
        (torch.ones(3, 4).double(), torch.ones(2, 4)),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(w, x):
    with pytest.raises(ValueError, match=r"multiplies tokens in fp32|read float32 and bfloat16"):
        product_of_tokens(w, x)
