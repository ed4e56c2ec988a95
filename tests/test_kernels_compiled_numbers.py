"""bf16 bits and the exponential of compiled loops, against torch."""

import io
import sys
import time
from collections.abc import Callable

import numba
import numpy as np
import pytest
import torch
from patience import PATIENCE_S
from torch.nn import functional

from twophase.kernels.compiled import compiling, numbers
from twophase.kernels.compiled.compiling import compiled
from twophase.kernels.compiled.linear import gelu_tanh, silu
from twophase.kernels.compiled.numbers import softplus


# The loops allow what kernels allow at most: no promise about NaN and inf, sums in any order.
@numba.njit(fastmath=True)
def widened(bits, out):
    for i in range(len(bits)):
        out[i] = numbers.widen(bits[i])


@numba.njit(fastmath=True)
def narrowed(x, out):
    for i in range(len(x)):
        out[i] = numbers.narrow(x[i])


@numba.njit(fastmath=True)
def exponentials(x, out):
    for i in range(len(x)):
        out[i] = numbers.exp(x[i])


def run(loop, x, dtype):
    out = np.empty(len(x), dtype)
    loop(x, out)
    return out


ALL_BF16 = np.arange(2**16, dtype=np.uint16)


def as_torch(bits):
    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)


def test_every_bf16_widens_to_the_fp32_of_torch_bit_by_bit():
    expected = as_torch(ALL_BF16).float().numpy()
    wide = run(widened, ALL_BF16, np.float32)
    np.testing.assert_array_equal(wide.view(np.uint32), expected.view(np.uint32))


def test_narrowing_rounds_to_the_nearest_even_as_torch_does():
    """Every bf16, what lies in the middle to the next, and one bit to either side."""
    upper = ALL_BF16.astype(np.uint32) << 16
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    x = (upper[:, None] + low).ravel().view(np.float32)
    mine = run(narrowed, x, np.uint16)
    expected = torch.from_numpy(x).bfloat16().view(torch.int16).numpy().view(np.uint16)
    number = ~np.isnan(x)
    np.testing.assert_array_equal(mine[number], expected[number])
    assert np.isnan(as_torch(mine[~number]).float().numpy()).all()


def test_exp_is_within_its_stated_error_over_all_that_fp32_can_express():
    dense = np.linspace(-87.3, 0, 2**20, dtype=np.float32)
    small = -np.geomspace(1e-38, 1, 2**16, dtype=np.float32)
    x = np.concatenate([dense, small])
    exact = torch.from_numpy(x).double().exp().numpy()
    assert np.abs(run(exponentials, x, np.float32) / exact - 1).max() < 1e-7


def test_exp_of_nothing_and_of_nan():
    x = np.array([0, -0.0, -87.7, -88, -1e30, -np.inf, np.nan], np.float32)
    found = run(exponentials, x, np.float32)
    np.testing.assert_array_equal(found, np.array([1, 1, 0, 0, 0, 0, np.nan], np.float32))


def test_where_no_folder_can_be_written_functions_are_compiled_without_a_cache() -> None:
    found: dict[str, Callable[[float], float]] = {}
    exec(compile("def half(x):\n    return x / 2", "/no/such/file.py", "exec"), found)
    with pytest.raises(RuntimeError, match="cannot cache"):
        numba.njit(cache=True)(found["half"])
    assert compiled()(found["half"])(3.0) == 1.5


class Stderr(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.isatty = lambda: terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_who_waits_at_a_terminal_is_told_and_no_notebook_keeps_that(terminal, monkeypatch) -> None:
    said = Stderr(terminal)
    monkeypatch.setattr(sys, "stderr", said)
    monkeypatch.setattr(compiling, "PATIENCE_S", 0.0)
    monkeypatch.setattr(compiling, "_ready", set())
    end = time.monotonic() + (PATIENCE_S if terminal else 0.2)
    with compiling.saying_so("a loop"):
        while not said.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
    assert (compiling.SENTENCE in said.getvalue()) == terminal


@numba.njit
def all_silu(x, out):
    for i in range(len(x)):
        out[i] = silu(x[i])


def test_silu_is_torchs_to_the_ends_of_fp32():
    ends = [-np.inf, -3e38, -1e32, -200, -88, -50, -5, 0, 1, 88, 89, 3e38, np.inf, np.nan]
    x = np.array(ends, np.float32)
    found = np.empty_like(x)
    all_silu(x, found)
    wanted = functional.silu(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-36)


@numba.njit
def all_gelu_tanh(x, out):
    for i in range(len(x)):
        out[i] = gelu_tanh(x[i])


def test_gelu_tanh_keeps_its_digits_below_0_and_goes_to_the_ends_of_fp32():
    """What is left of them: down to -10 the exponent of its sigmoid grows to 88, and the rounding
    of that is the error."""
    x = np.concatenate([np.linspace(-10, 20, 2**20), np.linspace(-1, 1, 2**16)], dtype=np.float32)
    wide = torch.from_numpy(x).double()
    exact = wide * torch.sigmoid((8 / torch.pi) ** 0.5 * (wide + 0.044715 * wide**3))
    error = np.abs(run(all_gelu_tanh, x, np.float32) - exact.numpy())
    assert (error <= 2e-5 * exact.abs().numpy()).all()
    near = x > -1
    assert (error[near] <= 4e-7 * exact.abs().numpy()[near]).all()
    ends = np.array([-np.inf, -3e38, -1e13, -200, -11, 0, 1e13, 3e38, np.inf, np.nan], np.float32)
    wanted = functional.gelu(torch.from_numpy(ends), approximate="tanh").numpy()
    np.testing.assert_array_equal(run(all_gelu_tanh, ends, np.float32), wanted)


@numba.njit
def all_softplus(x, out):
    for i in range(len(x)):
        out[i] = softplus(x[i])


def test_softplus_is_within_its_stated_error_and_goes_to_the_ends_of_fp32():
    x = np.concatenate(
        [np.linspace(-87.3, 100, 2**20), np.linspace(-1, 1, 2**16)], dtype=np.float32
    )
    exact = np.logaddexp(0, x.astype(np.float64))
    assert np.abs(run(all_softplus, x, np.float32) / exact - 1).max() < 3e-7
    ends = np.array([-np.inf, -1e30, -89, 1e30, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(
        run(all_softplus, ends, np.float32), np.array([0, 0, 0, 1e30, np.inf, np.nan], np.float32)
    )
