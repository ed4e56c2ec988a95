"""Bytes of quantized weights and the batch from which they save no time, against the other formulas
of the package and published figures."""

from __future__ import annotations

from fractions import Fraction

import gguf
import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.kernels.quantization.integers import IntegerFormat, encode
from twophase.models.quantize.adapters import Adapted
from twophase.theory import quantization as theory
from twophase.theory.arithmetic_intensity import critical_batch, time_overlapped_s
from twophase.theory.catalog import hardware, model
from twophase.theory.plan import deployment
from twophase.theory.plan_notes import assumptions
from twophase.theory.two_phases import forward_flops
from twophase.theory.workload import Workload


@pytest.mark.parametrize("name", ["q8_0", "q5_0", "q4_0", "q4_k", "q6_k", "mxfp4"])
def test_blocks_are_as_large_as_the_gguf_package_says(name: str) -> None:
    kind = gguf.GGMLQuantizationType[name.upper()]
    form = theory.BLOCK_FORMATS[name]
    assert (form.weights, form.block_bytes) == gguf.GGML_QUANT_SIZES[kind]


def test_bits_per_weight_are_the_published_ones() -> None:
    """llama.cpp's names of its formats; QLoRA, section 3: 0.127 bits for constants."""
    bits = {name: float(form.bits_per_weight) for name, form in theory.BLOCK_FORMATS.items()}
    assert bits == {
        "q8_0": 8.5, "q5_0": 5.5, "q4_0": 4.5, "q4_k": 4.5, "q6_k": 6.5625, "mxfp4": 4.25,
        "mxfp8": 8.25, "nvfp4": 4.5,
    }  # fmt: skip
    n = 64 * 256 * 1000
    beside = Fraction(8 * theory.normal_float_bytes(n), n) - 4
    assert float(beside) == pytest.approx(0.127, abs=5e-4)
    assert 8 * theory.normal_float_bytes(n, double=False) == 4.5 * n


@draws(60)
@given(
    outputs=st.integers(1, 9),
    groups=st.integers(1, 9),
    group=st.sampled_from([8, 32, 128]),
    bits=st.integers(2, 8),
    zero_bits=st.sampled_from([0, 8]),
)
def test_bits_per_weight_are_the_bytes_where_everything_divides(
    outputs: int, groups: int, group: int, bits: int, zero_bits: int
) -> None:
    inputs = groups * group
    found = theory.integer_bytes(outputs, inputs, bits, group, 2, zero_bits)
    each = theory.integer_bits_per_weight(Fraction(bits), group, 2, zero_bits)
    assert 8 * found == outputs * inputs * each


@pytest.mark.parametrize(
    ("name", "widths"),
    [
        ("q4_k", {4096: "q4_k", 512: "q4_k", 576: "q5_0", 32: "q5_0", 213: None}),
        ("q6_k", {256: "q6_k", 128: "q8_0", 100: None}),
        ("nvfp4", {48: "nvfp4", 40: None}),
        ("q4_0", {64: "q4_0", 16: None}),
    ],
)
def test_rows_that_blocks_do_not_divide_get_what_llama_cpp_gives_them(
    name: str, widths: dict[int, str | None]
) -> None:
    """llama_tensor_get_type: Q5_0 for Q4_K, Q8_0 for Q6_K, and 16 bits where these fail, too."""
    assert {width: theory.format_of_rows(name, width) for width in widths} == widths


@pytest.mark.parametrize(("name", "inputs"), [("q9", 64), ("q4_k", 0), ("q4_k", -256)])
def test_rows_without_inputs_and_unknown_formats_have_no_format(name: str, inputs: int) -> None:
    with pytest.raises(ValueError, match="inputs must be 1 or more, the format one of"):
        theory.format_of_rows(name, inputs)


def test_no_scale_is_shared_by_less_than_one_weight() -> None:
    with pytest.raises(ValueError, match="group must be 1 or more"):
        theory.integer_bits_per_weight(4, 0.5)


@pytest.mark.parametrize("name", ["q4_k", "q6_k", "q8_0", "mxfp4", "nvfp4", "nf4", "nf4-double"])
def test_a_plan_counts_blocks_matrix_by_matrix_to_the_byte(name: str) -> None:
    a = model("llama-3-8b")
    shapes = [(a.N * a.H, a.D), *[(a.K * a.H, a.D)] * 2, (a.D, a.N * a.H)]
    shapes += [*[(a.F, a.D)] * 2, (a.D, a.F)]
    if name in theory.BLOCK_FORMATS:  # what a tensor has once is not counted in a plan
        form = theory.BLOCK_FORMATS[name]
        body = sum(a.L * (form.bytes(*shape) - form.tensor_bytes) for shape in shapes)
    else:
        double = name.endswith("double")
        each = [theory.normal_float_bytes(O * I, double=double) - 4 * double for O, I in shapes]
        body = a.L * sum(map(int, each))
    n_body = a.L * sum(O * I for O, I in shapes)
    planned = deployment(a, hardware("h100"), Workload(weights=name))
    assert planned.weight_bytes == body + 2 * (a.n_params() - n_body)
    assert "scales counted" in " ".join(assumptions(planned))
    with pytest.raises(ValueError, match=r"Unknown format 'q3_k'. Known formats: .*q4_k"):
        Workload(weights="q3_k")
    with pytest.raises(ValueError, match="Unknown format 'q4_k'"):  # no product runs in it
        Workload(compute="q4_k")


def test_rows_that_do_not_fill_their_last_byte_round_up_each() -> None:
    assert theory.integer_bytes(2, 3, 3, 2, scale_bytes=2, zero_bits=3) == 2 * (2 + 2 * 2 + 1)


@pytest.mark.parametrize("affine", [False, True])
def test_no_number_is_rounded_further_than_half_a_step_and_one_is_as_far(affine: bool) -> None:
    """Against the kernels' grid, on every multiple of a small step between the ends."""
    for bits in (2, 3, 4):
        w = torch.linspace(-0.6, 1.0, 20001)[None]
        how = IntegerFormat(bits, "channel", affine, torch.float32)
        found = float((encode(w, how).decode() - w).abs().max())
        bound = (theory.affine_step(1.6, bits) if affine else theory.absmax_step(1.0, bits)) / 2
        assert found == pytest.approx(bound, abs=1e-4)


@draws(40)
@given(
    B=st.integers(1, 10_000),
    bits=st.floats(2, 16),
    flops=st.floats(1e10, 1e15),
    bandwidth=st.floats(1e9, 1e13),
)
def test_it_stops_paying_where_the_step_becomes_compute_bound(
    B: int, bits: float, flops: float, bandwidth: float
) -> None:
    limit = theory.tokens_where_it_stops_paying(bits, flops, bandwidth)
    assert limit == pytest.approx(critical_batch(flops, bandwidth, bits / 8))
    step = theory.weights_step_s(B, 10**9, bits, bandwidth, flops)
    moved = 10**9 * bits / 8
    assert step == pytest.approx(
        time_overlapped_s(forward_flops(B, 10**9), moved, flops, bandwidth)
    )
    narrower = theory.weights_step_s(B, 10**9, bits / 2, bandwidth, flops)
    gain = theory.quantization_speedup(B, bits, bits / 2, bandwidth, flops)
    assert gain == pytest.approx(step / narrower)
    assert 1 <= gain <= 2 + 1e-9
    if limit * (1 + 1e-9) < B:
        assert theory.weights_step_s(B, 10**9, bits * 0.99, bandwidth, flops) == step
    if limit / 2 >= B:
        assert gain == pytest.approx(2)


def test_blocks_that_do_not_divide_a_row_are_refused() -> None:
    with pytest.raises(ValueError, match="blocks of 256 weights"):
        theory.BLOCK_FORMATS["q4_k"].bytes(4, 128)
    with pytest.raises(ValueError, match="group must be"):
        theory.integer_bytes(2, 3, 4, 0)


def test_the_largest_number_is_the_last_level_and_errors_are_those_of_even_numbers() -> None:
    for bits in range(2, 9):
        how = IntegerFormat(bits, "channel", scale_dtype=torch.float32)
        scales, _ = how.grid(torch.tensor([[0.5, -3.0, 1.0]]))
        assert float(scales[0, 0]) == pytest.approx(theory.absmax_step(3.0, bits))
    x = torch.linspace(-1, 1, 200_001, dtype=torch.float64)
    step = theory.absmax_step(1.0, 5)
    error = (step * (x / step).round() - x).pow(2).mean().sqrt()
    assert float(error) == pytest.approx(theory.rounding_error(step), rel=1e-3)
    with pytest.raises(ValueError, match="bits must be"):
        theory.absmax_step(1.0, 1)


def test_an_adapter_has_the_numbers_of_its_two_matrices() -> None:
    linear = torch.nn.Linear(24, 40, bias=False)
    made = Adapted(linear, 24, 40, rank=3, alpha=6)
    n = sum(p.numel() for p in made.parameters() if p.requires_grad)
    assert n == theory.adapter_params(40, 24, 3)
