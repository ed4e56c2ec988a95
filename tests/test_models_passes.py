"""A pass that can be run again: each call is the same pass."""

import pytest
import torch

from twophase import models
from twophase.measure import Meter
from twophase.models.passes import repeated_pass
from twophase.theory.two_phases import dense_decode_step_flops


@pytest.mark.parametrize(("T", "cached", "B"), [(1, 0, 1), (1, 7, 1), (1, 7, 3), (5, 0, 2)])
def test_each_call_is_the_same_pass(T: int, cached: int, B: int) -> None:
    model = models.load("gqa")
    run = repeated_pass(model, T, cached, B)
    first = run()
    assert first.shape == (B, T, model.config.V)
    torch.testing.assert_close(run(), first)


def test_layers_that_differ_are_filled_too() -> None:
    run = repeated_pass(models.load("local_global"), 1, cached=40)
    torch.testing.assert_close(run(), run())


def test_a_step_attends_to_the_cached_tokens_and_its_own() -> None:
    model = models.load("gqa")
    arch = model.config.architecture("gqa")
    run = repeated_pass(model, 1, cached=12)
    with Meter() as meter:
        run()
    sizes = arch.n_matmul_params(), arch.L, arch.N, arch.H
    assert meter.matmul_flops == dense_decode_step_flops(1, 13, *sizes)


@pytest.mark.parametrize("sizes", [(0, 3, 1), (1, -1, 1), (1, 1, 0)])
def test_sizes_that_are_no_pass_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="A pass has"):
        repeated_pass(models.load("gqa"), *sizes)
