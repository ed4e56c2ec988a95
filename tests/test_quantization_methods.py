"""GPTQ against explicit inverses and brute force, AWQ and SmoothQuant as identities, int8 products
and cached keys and values."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from twophase.kernels.quantization.cached import round_cached
from twophase.kernels.quantization.gptq import gptq, inverse_factor, output_error
from twophase.kernels.quantization.int8_products import (
    int8_product,
    outlier_inputs,
    product_with_outliers,
    quantize_tokens,
)
from twophase.kernels.quantization.integers import IntegerFormat, encode
from twophase.kernels.quantization.scaling import (
    SHARES,
    awq_scales,
    clip_groups,
    scaled_error,
    smooth_scales,
)


def inputs(n: int, I: int) -> torch.Tensor:
    """Correlated inputs, of very different sizes."""
    return torch.randn(n, I) @ torch.randn(I, I) * torch.logspace(-1, 1, I)


def by_elimination(w: torch.Tensor, h: torch.Tensor, how: IntegerFormat) -> torch.Tensor:
    """GPTQ with the inverse over the columns that are left, computed anew for each column."""
    w = w.double().clone()
    scales, _ = how.grid(w.float())
    found = torch.empty_like(w)
    for i in range(w.shape[1]):
        inverse = torch.linalg.inv(h[i:, i:])
        q = how.round(w[:, i : i + 1].float(), scales, None)[:, 0].double() - how.half
        found[:, i] = q * scales[:, 0].double()
        error = (w[:, i] - found[:, i]) / inverse[0, 0]
        w[:, i:] -= error[:, None] * inverse[0]
    return found


def test_the_cholesky_factor_gives_the_updates_of_explicit_inverses() -> None:
    w, x = torch.randn(5, 12), inputs(60, 12)
    how = IntegerFormat(3, "channel", scale_dtype=torch.float32)
    h = x.T.double() @ x.double()
    damped = h + 0.01 * h.diagonal().mean() * torch.eye(12)
    torch.testing.assert_close(
        gptq(w, h, how).decode().double(), by_elimination(w, damped, how), rtol=0, atol=1e-6
    )
    factor = inverse_factor(h, 0.01)
    torch.testing.assert_close(factor.T @ factor, torch.linalg.inv(damped))


def test_gptq_lies_between_the_best_of_all_codes_and_rounding_to_nearest() -> None:
    """Of each row it is never better than the best of 3**6 choices, the brute force; of all rows
    together it is better than rounding, here by a quarter at least."""
    w, x = torch.randn(40, 6), torch.randn(60, 6) @ torch.randn(6, 6)
    how = IntegerFormat(2, "channel", scale_dtype=torch.float32)
    h = x.T @ x
    levels = torch.tensor(list(product([-1.0, 0.0, 1.0], repeat=6)))  # [729, 6]
    made, nearest = gptq(w, h, how, damping=1e-6).decode(), encode(w, how).decode()
    sums = torch.zeros(3)
    for row, scale, one, other in zip(w, how.grid(w)[0], made, nearest, strict=True):
        off = (levels * scale - row).double()
        best = float(((off @ h.double()) * off).sum(1).min())
        errors = best, output_error((one - row)[None], h), output_error((other - row)[None], h)
        assert errors[0] <= errors[1] * (1 + 1e-6)
        sums += torch.tensor(errors)
    assert sums[1] < 0.75 * sums[2]


@pytest.mark.parametrize("affine", [False, True])
def test_without_correlation_gptq_rounds_to_nearest(affine: bool) -> None:
    w = torch.randn(4, 20)
    how = IntegerFormat(4, 8, affine)
    found = gptq(w, torch.diag(torch.rand(20) + 0.1), how)
    expected = encode(w, how)
    assert torch.equal(found.codes, expected.codes)
    assert torch.equal(found.scales, expected.scales)


def test_gptq_bears_inputs_that_are_always_zero_and_refuses_what_does_not_fit() -> None:
    x = inputs(30, 8)
    x[:, 3] = 0
    found = gptq(torch.randn(2, 8), x.T @ x, IntegerFormat(4, 4))
    assert found.decode().isfinite().all()
    for h, how in ((torch.eye(7), IntegerFormat(4, 4)), (torch.eye(8), IntegerFormat(4, "tensor"))):
        with pytest.raises(ValueError, match="GPTQ of"):
            gptq(torch.randn(2, 8), h, how)


def test_the_output_error_is_that_of_the_outputs() -> None:
    d, x = torch.randn(3, 5), torch.randn(7, 5)
    assert output_error(d, x.T @ x) == pytest.approx(float((x @ d.T).pow(2).sum()), rel=1e-5)


def test_awq_is_never_worse_than_rounding_and_better_where_one_input_is_large() -> None:
    w, x = torch.randn(16, 32), torch.randn(200, 32)
    x[:, 5] *= 30
    how, h = IntegerFormat(3, 16), x.T @ x
    scales, alpha = awq_scales([w], x.abs().mean(0), h, how)
    nearest = scaled_error(w, torch.ones(32), h, how)
    assert 0 < alpha < 1
    assert scales[5] == scales.max()
    assert scaled_error(w, scales, h, how) < 0.7 * nearest
    even, alpha = awq_scales([w], torch.ones(32), torch.eye(32), how)
    assert alpha == 0
    assert torch.equal(even, torch.ones(32))


@pytest.mark.parametrize(
    "how", [IntegerFormat(3, 8), IntegerFormat(3, 8, affine=True), IntegerFormat(4, 7)], ids=str
)
def test_clipping_takes_the_share_of_each_group_that_costs_its_outputs_least(
    how: IntegerFormat,
) -> None:
    """Against products of each group's inputs alone, share by share, row by row."""
    w, x = torch.randn(6, 24), torch.randn(50, 24) * torch.logspace(-1, 1, 24)
    w[:, ::8] *= 3  # some weights far out
    found, size = clip_groups(w, x.T @ x, how), how.group
    assert isinstance(size, int)
    alone = IntegerFormat(how.bits, "channel", how.affine, how.scale_dtype)
    shares = set()
    for row in range(6):
        for start in range(0, 24, size):
            part, inputs = w[row, start : start + size], x[:, start : start + size]
            cuts = [part.clamp(-s * part.abs().max(), s * part.abs().max()) for s in SHARES]
            errors = [
                ((inputs @ (encode(cut[None], alone).decode()[0] - part)) ** 2).sum()
                for cut in cuts
            ]
            best = min(range(len(SHARES)), key=lambda i: float(errors[i]))
            assert torch.equal(found[row, start : start + size], cuts[best])
            shares.add(best)
    assert len(shares) > 2  # some cut, some not


def test_clipping_saves_a_row_with_one_weight_far_out_that_meets_small_inputs() -> None:
    w, x = torch.rand(1, 32) - 0.5, torch.randn(200, 32)
    w[0, 3], x[:, 3] = 2.0, 1e-3 * x[:, 3]
    how, h = IntegerFormat(3, "channel"), x.T @ x
    cut = clip_groups(w, h, how)
    assert float(cut.max()) == pytest.approx(1.1)  # as far as it goes
    before = output_error(encode(w, how).decode() - w, h)
    assert output_error(encode(cut, how).decode() - w, h) < 0.6 * before
    assert torch.equal(clip_groups(torch.zeros(2, 9), torch.eye(9), how), torch.zeros(2, 9))
    with pytest.raises(ValueError, match="not for a tensor"):
        clip_groups(w, h, IntegerFormat(3, "tensor"))


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("group", [5, "channel", "tensor"])
def test_nearest_numbers_are_those_of_packed_codes(group: int | str, affine: bool) -> None:
    how = IntegerFormat(3, group, affine)
    w = torch.randn(4, 13)
    assert torch.equal(how.nearest(w), encode(w, how).decode())


def test_smoothing_with_one_half_makes_inputs_and_weights_equally_large() -> None:
    w, x = torch.randn(16, 32), torch.randn(200, 32)
    x[:, 5] *= 30
    x[:, 7] = 0
    scales = smooth_scales([w, 2 * w], x.abs().amax(0))
    largest = (x / scales).abs().amax(0), (2 * w * scales).abs().amax(0)
    used = torch.arange(32) != 7
    torch.testing.assert_close(largest[0][used], largest[1][used])
    assert scales[7] == 1
    torch.testing.assert_close((x / scales) @ (w * scales).T, x @ w.T, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="alpha"):
        smooth_scales([w], x.abs().amax(0), 1.5)


def test_an_int8_product_is_that_of_the_rounded_numbers() -> None:
    x, codes = torch.randn(2, 3, 40), torch.randint(-127, 128, (7, 40), dtype=torch.int8)
    scales = torch.rand(7)
    tokens, each = quantize_tokens(x)
    expected = (tokens.double() * each) @ (codes.double() * scales[:, None]).T
    found = int8_product(x, codes, scales)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)
    assert int8_product(torch.zeros(1, 40), codes, scales).abs().max() == 0


def test_outliers_apart_keep_the_levels_of_the_others() -> None:
    x = torch.randn(50, 64)
    x[:, 9] = 60.0
    w = torch.randn(16, 64)
    stored = encode(w, IntegerFormat(8, "channel", scale_dtype=torch.float32))
    codes = (stored.unpacked()[0].int() - 128).to(torch.int8)
    scales = stored.scales[:, 0]
    exact = x @ stored.decode().T
    plain = (int8_product(x, codes, scales) - exact).abs().mean()
    apart = (product_with_outliers(x, codes, scales) - exact).abs().mean()
    assert outlier_inputs(x).nonzero().flatten().tolist() == [9]
    assert apart < plain / 5  # levels are 60 / 127 apart before, about 4 / 127 after
    calm = x.clamp(-5, 5)
    assert torch.equal(
        product_with_outliers(calm, codes, scales), int8_product(calm, codes, scales)
    )


def test_a_large_channel_of_keys_wants_scales_per_channel() -> None:
    keys = torch.randn(2, 100, 3, 16)
    keys[..., 4] = 20 + torch.randn(2, 100, 3)
    per_channel, per_token = (round_cached(keys, 3, axis, 16) for axis in ("channel", "token"))
    full = slice(0, 96)  # 100 tokens are six runs of 16, and four that stay
    assert torch.equal(per_channel[:, 96:], keys[:, 96:])
    errors = [(found[:, full] - keys[:, full]).pow(2).mean() for found in (per_channel, per_token)]
    assert errors[0] < errors[1] / 5
    assert torch.equal(round_cached(keys, 3, "token", 16, newest=100), keys)
    assert torch.equal(round_cached(keys[:, :9], 3, "channel", 16), keys[:, :9])
    with pytest.raises(ValueError, match="per channel or token"):
        round_cached(keys, 3, "head")
