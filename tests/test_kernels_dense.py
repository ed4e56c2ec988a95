"""RMSNorm, the gated MLP, and matrix times vector, against fp64 arithmetic."""

import pytest
import torch

from twophase.kernels.matvec import matvec, quantize_rows
from twophase.kernels.mlp import gated_mlp
from twophase.kernels.norm import rms_norm


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_rms_norm_equals_torch_and_ignores_the_scale_of_its_input():
    x, weight = draw(3, 5, 14), draw(14, seed=1)
    torch.testing.assert_close(
        rms_norm(x, weight, 1e-6), torch.nn.functional.rms_norm(x, (14,), weight, 1e-6)
    )
    torch.testing.assert_close(rms_norm(1000 * x, weight, 0.0), rms_norm(x, weight, 0.0))


def test_rms_norm_squares_in_fp32_and_returns_the_dtype_it_was_given():
    x = torch.full((300,), 1.0 + 2**-7, dtype=torch.bfloat16)
    out = rms_norm(x, torch.ones(300, dtype=torch.bfloat16), 0.0)
    assert out.dtype == torch.bfloat16
    assert out.tolist() == [1.0] * 300


def test_rms_norm_refuses_a_weight_of_another_width():
    with pytest.raises(ValueError, match="one weight per feature"):
        rms_norm(draw(2, 4), draw(3))


def test_the_gated_mlp_is_silu_of_the_gate_times_up_then_down():
    x, gate, up, down = draw(2, 3, 6), draw(10, 6, seed=1), draw(10, 6, seed=2), draw(6, 10, seed=3)
    g, u = x.double() @ gate.double().T, x.double() @ up.double().T
    expected = (g / (1 + torch.exp(-g)) * u) @ down.double().T
    torch.testing.assert_close(
        gated_mlp(x, gate, up, down).double(), expected, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (7, 33), (64, 129)])
def test_matvec_equals_the_product_in_fp64(rows, columns):
    w, x = draw(rows, columns), draw(columns, seed=1)
    torch.testing.assert_close(matvec(w, x).double(), w.double() @ x.double(), rtol=1e-5, atol=1e-5)
    quantized, scales = quantize_rows(w)
    expected = (quantized.double() * scales.double()[:, None]) @ x.double()
    torch.testing.assert_close(
        matvec(quantized, x, scales).double(), expected, rtol=1e-5, atol=1e-5
    )


def test_row_quantization_errs_by_half_a_step_at_most_and_survives_a_row_of_zeros():
    w = draw(9, 40)
    w[4] = 0
    quantized, scales = quantize_rows(w)
    assert ((quantized * scales[:, None] - w).abs() <= 0.5001 * scales[:, None]).all()
    assert quantized[4].count_nonzero() == 0
    assert quantized.abs().amax(dim=1).tolist() == [127] * 4 + [0] + [127] * 4


@pytest.mark.parametrize(
    ("w", "x", "scales", "says"),
    [
        (draw(3, 4), draw(3), None, "contiguous w"),
        (draw(4, 3).T, draw(4), None, "contiguous w"),
        (draw(3, 4), draw(4).double(), None, "fp32 x"),
        (draw(3, 4).to(torch.int8), draw(4), None, "int8 weights with them"),
        (draw(3, 4), draw(4), draw(3), "int8 weights with them"),
        (draw(3, 4).to(torch.int8), draw(4), draw(4), "one fp32 scale per row"),
    ],
)
def test_matvec_refuses_what_it_cannot_read(w, x, scales, says):
    with pytest.raises(ValueError, match=says):
        matvec(w, x, scales)
