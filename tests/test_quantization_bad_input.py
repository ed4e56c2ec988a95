"""Bad input to quantization and diffusion is one sentence, and never an answer that is wrong
without a word."""

import math

import pytest
import torch

from twophase.kernels import diffusion
from twophase.kernels.quantization.cached import round_cached
from twophase.kernels.quantization.gptq import gptq, inverse_factor, output_error
from twophase.kernels.quantization.int8_products import int8_product, outlier_inputs
from twophase.kernels.quantization.integers import IntegerFormat
from twophase.kernels.quantization.named import layout_of
from twophase.kernels.quantization.scaling import awq_scales, clip_groups, smooth_scales

HOW = IntegerFormat(4, 4)
W, X = torch.randn(6, 8), torch.randn(20, 8)
H = X.T @ X


def nan_in(x: torch.Tensor) -> torch.Tensor:
    changed = x.clone()
    changed.view(-1)[0] = math.nan
    return changed


@pytest.mark.parametrize("hessian", [H[:, :1], H[0], H[:4], nan_in(H), H * math.inf, H.long()])
def test_a_hessian_of_other_inputs_or_with_nan_chooses_nothing(hessian):
    says = "8 inputs have a hessian|are NaN or infinite|takes a hessian|only floating-point"
    for search in (
        lambda: awq_scales([W], X.abs().mean(0), hessian, HOW),
        lambda: clip_groups(W, hessian, HOW),
        lambda: gptq(W, hessian, HOW),
    ):
        with pytest.raises(ValueError, match=says):
            search()


@pytest.mark.parametrize("hessian", [H[:, :1], H[0], H[:4]])
def test_an_output_error_is_of_its_own_inputs(hessian):
    with pytest.raises(ValueError, match="an output error is of a difference"):
        output_error(W, hessian)


@pytest.mark.parametrize("damping", [-0.1, math.nan, math.inf])
def test_damping_is_a_share(damping):
    with pytest.raises(ValueError, match="damping is a share"):
        inverse_factor(H, damping)
    with pytest.raises(ValueError, match="has no inverse with damping 0"):
        inverse_factor(torch.ones(3, 3), 0.0)


@pytest.mark.parametrize(
    ("matrices", "sizes"),
    [([], X[0].abs()), ([W], X[0, :1].abs()), ([W, W[:, :4]], X[0].abs()), ([W], nan_in(X[0]))],
)
def test_scales_are_of_the_inputs_that_the_matrices_read(matrices, sizes):
    for search in (
        lambda: awq_scales(matrices, sizes, H, HOW),
        lambda: smooth_scales(matrices, sizes),
    ):
        with pytest.raises(ValueError, match=r"scales \[I\] are of|are NaN or infinite"):
            search()


@pytest.mark.parametrize(
    ("codes", "scales"),
    [
        (torch.ones(6, 8).char(), torch.ones(1)),
        (torch.ones(1, 8).char(), torch.ones(6)),
        (torch.ones(6, 8).byte(), torch.ones(6)),
        (torch.ones(6, 8).char(), torch.ones(6).long()),
    ],
)
def test_one_scale_is_not_spread_over_all_rows(codes, scales):
    with pytest.raises(ValueError, match="a product in int8 takes"):
        int8_product(X, codes, scales)


@pytest.mark.parametrize("threshold", [0.0, -6.0, math.nan])
def test_an_outlier_is_above_a_positive_size(threshold):
    with pytest.raises(ValueError, match="a positive size"):
        outlier_inputs(X, threshold)


@pytest.mark.parametrize(("group", "newest"), [(math.inf, 0), (0, 0), (1.5, 0), (4, -1), (4, 1.5)])
def test_a_cache_is_rounded_in_whole_groups(group, newest):
    with pytest.raises(ValueError, match="is a whole number"):
        round_cached(torch.randn(1, 8, 2, 4), 4, "channel", group, newest)


@pytest.mark.parametrize(("outputs", "inputs"), [("x", 32), (-1, 32), (1, 1.5), (1, math.nan)])
def test_a_layout_is_of_a_matrix_of_whole_sizes(outputs, inputs):
    with pytest.raises(ValueError, match="puts is a whole number of at least 1"):
        layout_of("q8_0", outputs, inputs)


@pytest.mark.parametrize("mask_token", [-1, 1.5, math.nan, True])
def test_what_hides_tokens_is_a_token(mask_token):
    tokens = torch.zeros(2, 4).long()
    with pytest.raises(ValueError, match="the mask's token is a whole number"):
        diffusion.mask_tokens(tokens, torch.tensor([0.5, 0.5]), mask_token)
    with pytest.raises(ValueError, match="the mask's token is a whole number"):
        diffusion.mask_exactly(tokens, torch.tensor([1, 2]), mask_token)
    with pytest.raises(ValueError, match="what is hidden are tokens"):
        diffusion.mask_exactly(tokens.float(), torch.tensor([1, 2]), 9)


@pytest.mark.parametrize("t", [0.0, -0.5, math.nan, 1.5])
def test_a_loss_is_not_divided_by_a_time_that_there_is_not(t):
    tokens, times = torch.zeros(1, 3).long(), torch.tensor([t])
    with pytest.raises(ValueError, match="a t above 0 and at most 1"):
        diffusion.diffusion_loss(torch.randn(1, 3, 3), tokens, tokens == 0, times)
    if t != 0.0:
        with pytest.raises(ValueError, match=r"a probability t in \[0, 1\]"):
            diffusion.mask_tokens(tokens, times, 2)


@pytest.mark.parametrize(
    ("B", "epsilon"), [(0, 0.1), (1.5, 0.1), (2, -0.1), (2, 1.0), (2, math.nan)]
)
def test_times_are_a_whole_number_in_a_range(B, epsilon):
    with pytest.raises(ValueError, match=r"is a whole number|in \[0, 1\)"):
        diffusion.stratified_times(B, epsilon=epsilon)
