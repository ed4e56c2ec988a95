"""Packed codes and integer grids: bytes, edges, refusals, and that no code is nearer."""

from __future__ import annotations

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.kernels.matvec import quantize_rows
from twophase.kernels.quantization.integers import IntegerFormat, Integers, encode
from twophase.kernels.quantization.packing import pack, unpack
from twophase.theory import quantization as theory

GROUPS = [1, 7, 32, 64, 1000, "channel", "tensor"]


@draws(60)
@given(bits=st.integers(1, 8), n=st.integers(0, 70), seed=st.integers(0, 99))
def test_packed_codes_come_back_and_take_the_bytes_of_the_formula(
    bits: int, n: int, seed: int
) -> None:
    codes = torch.randint(0, 1 << bits, (3, n), generator=torch.Generator().manual_seed(seed))
    packed = pack(codes, bits)
    assert packed.shape == (3, theory.packed_bytes(n, bits))
    assert torch.equal(unpack(packed, bits, n), codes.to(torch.uint8))
    # an independent reading: the row as one whole number, its lowest bits first
    for row, bytes_ in zip(codes.tolist(), packed.tolist(), strict=True):
        number = sum(code << bits * j for j, code in enumerate(row))
        assert int.from_bytes(bytes(bytes_), "little") == number


def test_two_codes_share_a_byte_and_eight_codes_three() -> None:
    assert pack(torch.tensor([1, 2]), 4).tolist() == [0x21]
    assert pack(torch.tensor([1, 2, 3, 4, 5, 6, 7, 0]), 3).tolist() == [0xD1, 0x58, 0x1F]


@pytest.mark.parametrize("codes", [[16], [-1], [0.5], [True]])
def test_codes_that_do_not_fit_are_refused(codes: list[float]) -> None:
    with pytest.raises(ValueError, match="code"):
        pack(torch.tensor(codes), 4)
    with pytest.raises(ValueError, match="fill rows of 2 bytes"):
        unpack(torch.zeros(1, 3, dtype=torch.uint8), 4, 4)


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_bytes_are_those_of_theory_for_widths_that_divide_and_do_not(
    bits: int, group: int | str, affine: bool
) -> None:
    how = IntegerFormat(bits, group, affine)
    for outputs, inputs in ((5, 100), (3, 64), (1, 1)):
        stored = encode(torch.randn(outputs, inputs), how)
        if group != "tensor":
            assert stored.nbytes == theory.integer_bytes(
                outputs, inputs, bits, how.group_of(inputs), 2, bits if affine else 0
            )
        else:
            codes = outputs * theory.packed_bytes(inputs, bits)
            assert stored.nbytes == codes + 2 + (1 if affine else 0)


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("scale_dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_no_code_of_the_stored_grid_is_nearer(
    group: int | str, affine: bool, scale_dtype: torch.dtype
) -> None:
    how = IntegerFormat(3, group, affine, scale_dtype)
    w = torch.randn(4, 50)
    stored = encode(w, how)
    scales = how.spread(stored.scales, 50).float()
    zeros = stored.unpacked()[1]
    offset = how.spread(zeros, 50).float() if zeros is not None else torch.tensor(4.0)
    levels = torch.arange(8 if affine else 7).float() + (0 if affine else 1)
    grid = (levels - offset[..., None]) * scales[..., None]  # [4 or 1, 50, levels]
    least = (grid - w[..., None]).abs().amin(-1)
    torch.testing.assert_close((stored.decode() - w).abs(), least, rtol=1e-5, atol=1e-6)


def test_eight_bits_a_channel_are_those_of_quantize_rows() -> None:
    w = torch.randn(6, 40)
    stored = encode(w, IntegerFormat(8, "channel", scale_dtype=torch.float32))
    codes, scales = quantize_rows(w)
    assert torch.equal(stored.unpacked()[0].int() - 128, codes.int())
    assert torch.equal(stored.scales[:, 0], scales)


@pytest.mark.parametrize("bits", [4, 8])
def test_an_affine_grid_is_that_of_torch(bits: int) -> None:
    w = torch.randn(1, 64) + 0.5
    how = IntegerFormat(bits, "tensor", affine=True, scale_dtype=torch.float32)
    stored = encode(w, how)
    _, zeros = stored.unpacked()
    assert zeros is not None
    theirs = torch.fake_quantize_per_tensor_affine(
        w, float(stored.scales), int(zeros), 0, 2**bits - 1
    )
    torch.testing.assert_close(stored.decode(), theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("affine", [False, True])
def test_zeros_stay_zeros_also_among_other_numbers(affine: bool) -> None:
    w = torch.tensor([[0.0] * 8 + [3.0, 1.0, 0.0, 5.0, 2.0, 4.0, 3.0, 2.0]])
    found = encode(w, IntegerFormat(4, 8, affine)).decode()
    assert found[0, :8].abs().max() == 0
    assert found[0, 10] == 0
    assert encode(torch.zeros(2, 8), IntegerFormat(4, 8, affine)).decode().abs().max() == 0


def test_a_scale_too_small_for_its_dtype_makes_zeros_not_nan() -> None:
    found = encode(torch.full((1, 8), 1e-12), IntegerFormat(4, 8)).decode()
    assert found.abs().max() == 0


def test_absmax_uses_levels_to_both_sides_alike() -> None:
    stored = encode(torch.tensor([[-7.0, 7.0, -6.6, 1.0]]), IntegerFormat(4, 4))
    assert stored.unpacked()[0].tolist() == [[1, 15, 1, 9]]
    assert stored.decode().tolist() == [[-7, 7, -7, 1]]


def test_mixtures_of_absmax_and_zero_points_are_refused() -> None:
    stored = encode(torch.randn(2, 8), IntegerFormat(4, 4, affine=True))
    with pytest.raises(ValueError, match="mixture"):
        Integers(IntegerFormat(4, 4), 8, stored.codes, stored.scales, stored.zeros)
    with pytest.raises(ValueError, match="mixture"):
        Integers(stored.format, 8, stored.codes, stored.scales)
    with pytest.raises(ValueError, match="have scales"):
        Integers(IntegerFormat(4, 8), 8, stored.codes, stored.scales)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_nan_and_infinity_are_refused(bad: float) -> None:
    w = torch.randn(2, 8)
    w[1, 3] = bad
    with pytest.raises(ValueError, match="1 of 16 numbers are NaN or infinite"):
        encode(w, IntegerFormat())


def test_a_scale_beyond_fp16_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="does not fit into float16"):
        encode(torch.full((1, 8), 1e30), IntegerFormat(4, 8))


@pytest.mark.parametrize(
    "wrong", [{"bits": 1}, {"bits": 9}, {"group": 0}, {"group": "row"}, {"bits": True}]
)
def test_what_is_no_format_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="got"):
        IntegerFormat(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="fp32, fp16 or bf16"):
        IntegerFormat(scale_dtype=torch.float64)


def test_vectors_integers_and_nothing_are_refused() -> None:
    for w in (torch.randn(8), torch.ones(2, 2, dtype=torch.int32), torch.ones(0, 8)):
        with pytest.raises(ValueError, match="got"):
            encode(w, IntegerFormat())
