"""Floating-point formats against torch's own dtypes, every code and every rounding."""

from __future__ import annotations

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.kernels.quantization.floats import (
    BF16,
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    E5M2,
    FP16,
    FP32,
    FloatFormat,
)

TORCH = {
    FP32: (torch.float32, torch.int32),
    FP16: (torch.float16, torch.int16),
    BF16: (torch.bfloat16, torch.int16),
    E5M2: (torch.float8_e5m2, torch.uint8),
    E4M3: (torch.float8_e4m3fn, torch.uint8),
}
SMALL = [E5M2, E4M3, E2M1, E3M2, E2M3]


def torch_codes(x: torch.Tensor, form: FloatFormat) -> torch.Tensor:
    dtype, bits = TORCH[form]
    return x.to(dtype).view(bits).long() & (1 << form.bits) - 1


def interesting(form: FloatFormat) -> torch.Tensor:
    """fp32 numbers: every number of a small format, the middle between neighbors and the two next
    to it, far beyond both ends, and random bits."""
    codes = torch.arange(min(form.largest_code + 1, 2**15))
    values = form.decode(codes)
    middles = (values[:-1] + values[1:]) / 2
    largest = form.decode(torch.tensor([form.largest_code]))
    edge = torch.cat(
        [values, middles, largest, largest * 1.06, largest * 1.07, largest * 2]
    ).float()
    near = [torch.nextafter(edge, torch.full_like(edge, to)) for to in (-torch.inf, torch.inf)]
    found = torch.cat([edge, *near, random_bits(20_000), torch.tensor([0.0, torch.inf])])
    found = found[~found.isnan()]
    return torch.cat([found, -found])


def random_bits(n: int) -> torch.Tensor:
    return torch.randint(-(2**31), 2**31, (n,), dtype=torch.int32).view(torch.float32)


@pytest.mark.parametrize("form", TORCH, ids=lambda f: f.name)
def test_codes_are_those_of_torch_bit_for_bit(form: FloatFormat) -> None:
    x = interesting(form)
    # of the two conversions in OCP's standard, torch takes for e4m3 the one that saturates
    mine, theirs = form.encode(x, saturate=form is E4M3), torch_codes(x, form)
    nan = x.to(TORCH[form][0]).isnan()  # a NaN has many codes
    assert torch.equal(mine[~nan], theirs[~nan])
    assert form.decode(mine[nan]).isnan().all()


@pytest.mark.parametrize("form", [FP16, BF16, E5M2, E4M3], ids=lambda f: f.name)
def test_every_code_decodes_to_torchs_number(form: FloatFormat) -> None:
    dtype, bits = TORCH[form]
    codes = torch.arange(1 << form.bits)
    theirs = codes.to(bits).view(dtype).double()
    mine = form.decode(codes)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
    finite = ~theirs.isnan()
    assert torch.equal(torch.signbit(mine)[finite], torch.signbit(theirs)[finite])


def test_e2m1_has_the_eight_values_of_the_ocp_standard() -> None:
    assert E2M1.decode(torch.arange(8)).tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert E2M1.decode(torch.arange(8, 16)).tolist() == [-0.0, -0.5, -1, -1.5, -2, -3, -4, -6]


@pytest.mark.parametrize(
    ("form", "largest"),
    [(FP16, 65504), (E5M2, 57344), (E4M3, 448), (E2M1, 6), (E3M2, 28), (E2M3, 7.5)],
    ids=lambda v: getattr(v, "name", str(v)),
)
def test_the_largest_number_is_the_published_one(form: FloatFormat, largest: float) -> None:
    assert form.largest == largest


@pytest.mark.parametrize("form", SMALL, ids=lambda f: f.name)
def test_encoding_a_number_of_the_format_gives_its_code_back(form: FloatFormat) -> None:
    codes = torch.arange(form.largest_code + 1)
    codes = torch.cat([codes, codes + (1 << form.bits - 1)])
    assert torch.equal(form.encode(form.decode(codes)), codes)


@draws(60)
@given(x=st.floats(-2e3, 2e3, width=32), form=st.sampled_from(SMALL))
def test_no_number_of_the_format_is_nearer(x: float, form: FloatFormat) -> None:
    values = form.decode(torch.arange(form.largest_code + 1))
    values = torch.cat([values, -values])
    found = float(form.decode(form.encode(torch.tensor([x]), saturate=True))[0])
    assert abs(found - x) == float((values - x).abs().min())


@pytest.mark.parametrize("form", SMALL, ids=lambda f: f.name)
def test_saturating_ends_at_the_largest_number(form: FloatFormat) -> None:
    x = torch.tensor([torch.inf, -torch.inf, 1e30, -1e30])
    found = form.decode(form.encode(x, saturate=True)).tolist()
    assert found == [form.largest, -form.largest] * 2


def test_a_format_without_infinity_and_nan_refuses_them() -> None:
    with pytest.raises(ValueError, match="ends at 6"):
        E2M1.encode(torch.tensor([7.5]))
    with pytest.raises(ValueError, match="has no NaN"):
        E2M1.encode(torch.tensor([torch.nan]))
    with pytest.raises(ValueError, match="4 bits"):
        E2M1.decode(torch.tensor([16]))
    with pytest.raises(ValueError, match="floating-point"):
        E2M1.encode(torch.tensor([1]))
