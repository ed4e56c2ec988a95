"""Formats whose blocks carry their scales: GGUF against the `gguf` package and ggml, MX and NVFP4
against torch and `gguf`, NF4 against its published levels."""

from __future__ import annotations

import hashlib

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType

from twophase.kernels.quantization.floats import E2M1, E4M3
from twophase.kernels.quantization.gguf import CODECS
from twophase.kernels.quantization.microscaling import ELEMENTS, encode_mx
from twophase.kernels.quantization.normal_float import (
    NormalFloat,
    dynamic_levels,
    encode_nf4,
    levels,
)
from twophase.kernels.quantization.nvfp4 import encode_nvfp4
from twophase.kernels.quantization.q4_k import pack_scales, unpack_scales
from twophase.theory import quantization as theory

# SHA-256 of what ggml's C makes of `numbers(kind)`: ggml_quantize_chunk of libggml-base 0.25.3.
# The `gguf` package decodes these two formats and does not encode them.
GGML_SHA256 = {
    ("q4_k", "normal"): "efe13a311857ae58144a56dc72703cbccd6a88e4896f1dbf2fe8f989b25abc9c",
    ("q4_k", "one side"): "ca9d2b7a99e8c9b6517169cd95f15ca5d6c817f4b14bd38421fe5d1641b8fb8a",
    ("q4_k", "sparse"): "83aa5c6c66a064bf8f865befdbfbf990adbb7efc28d7967601d801ae767efad6",
    ("q6_k", "normal"): "5431176d2e3e9e23eb2b5cc925fe050cb7c0dac34b2c75df87edc3f6622b1dc7",
    ("q6_k", "one side"): "f6830ef5e60c31b562f20c54a7849a14018f72a9879c31ced285a8e5f5e19033",
    ("q6_k", "sparse"): "3565aa6e40ce46e9df5c547eff740b6e829af1f9345638ba13650ddc1920acbb",
}
KINDS = ["normal", "one side", "sparse"]


def numbers(kind: str, rows: int = 32, inputs: int = 512) -> torch.Tensor:
    """fp32 [rows, inputs], from whole numbers, the same on every machine; rows of very different
    sizes, with zeros of one sign only."""
    whole = np.random.default_rng(7).integers(-(2**12), 2**12, (4, rows, inputs))
    x = whole.sum(0) / 2.0 ** (9 + np.arange(rows)[:, None] % 20)
    if kind == "one side":
        x = np.abs(x) + 0.5
    if kind == "sparse":
        x = np.where(whole[0] % 16 == 0, x, 0.0)
    return torch.from_numpy(x.astype(np.float32))


def kind_of(name: str) -> GGMLQuantizationType:
    return GGMLQuantizationType[name.upper()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["q8_0", "q5_0", "q4_0"])
def test_blocks_are_those_of_the_gguf_package_byte_for_byte(name: str, kind: str) -> None:
    x = numbers(kind)
    assert np.array_equal(CODECS[name].encode(x), gguf.quantize(x.numpy(), kind_of(name)))


@pytest.mark.parametrize(("name", "kind"), GGML_SHA256)
def test_super_blocks_are_those_of_ggml_byte_for_byte(name: str, kind: str) -> None:
    made = CODECS[name].encode(numbers(kind)).numpy().tobytes()
    assert hashlib.sha256(made).hexdigest() == GGML_SHA256[name, kind]


@pytest.mark.parametrize("name", CODECS)
def test_any_bytes_decode_as_the_gguf_package_decodes_them(name: str) -> None:
    size = theory.BLOCK_FORMATS[name].block_bytes
    bytes_ = torch.randint(0, 256, (50, 3 * size), dtype=torch.uint8)
    with np.errstate(invalid="ignore", over="ignore"):
        theirs = gguf.dequantize(bytes_.numpy(), kind_of(name))
    torch.testing.assert_close(
        CODECS[name].decode(bytes_), torch.from_numpy(theirs), rtol=0, atol=0, equal_nan=True
    )


@pytest.mark.parametrize("name", CODECS)
def test_decoding_what_was_encoded_is_near_and_takes_the_bytes_of_theory(name: str) -> None:
    x = torch.randn(4, 512)
    packed = CODECS[name].encode(x)
    assert packed.nbytes == theory.BLOCK_FORMATS[name].bytes(4, 512)
    error = (CODECS[name].decode(packed) - x).pow(2).mean().sqrt()
    # of a normal distribution: a step of d errs by d / √12; the widest block spans about 6
    assert error < {"q8_0": 0.01, "q5_0": 0.06, "q4_0": 0.12, "q4_k": 0.10, "q6_k": 0.03}[name]


@pytest.mark.parametrize("name", [*CODECS, "mxfp4", "nvfp4"])
def test_widths_that_blocks_do_not_divide_nan_and_huge_scales_are_refused(name: str) -> None:
    encode = {"mxfp4": encode_mx, "nvfp4": encode_nvfp4}.get(name) or CODECS[name].encode
    with pytest.raises(ValueError, match="multiple of"):
        encode(torch.randn(2, 100))  # type: ignore[operator]
    x = torch.randn(2, 256)
    x[0, 0] = torch.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        encode(x)  # type: ignore[operator]
    if name in CODECS:
        with pytest.raises(ValueError, match="does not fit into fp16"):
            CODECS[name].encode(torch.full((1, 256), -1e35))
        with pytest.raises(ValueError, match="whole blocks"):
            CODECS[name].decode(torch.zeros(7, dtype=torch.uint8))


@pytest.mark.parametrize("name", CODECS)
def test_zeros_decode_to_zeros(name: str) -> None:
    assert CODECS[name].decode(CODECS[name].encode(torch.zeros(2, 256))).abs().max() == 0


def test_sixteen_numbers_of_six_bits_fill_twelve_bytes() -> None:
    scales, minima = torch.randint(0, 64, (2, 9, 8), dtype=torch.uint8)
    packed = pack_scales(scales, minima)
    assert packed.shape == (9, 12)
    back = unpack_scales(packed)
    assert torch.equal(back[0], scales)
    assert torch.equal(back[1], minima)


@pytest.mark.parametrize("name", ELEMENTS)
def test_mx_decodes_to_torchs_dtypes_times_a_power_of_two(name: str) -> None:
    x = torch.randn(8, 64) * torch.logspace(-30, 30, 8)[:, None]
    stored = encode_mx(x, name)
    powers = stored.exponents.view(torch.float8_e8m0fnu).float().repeat_interleave(32, dim=1)
    if name == "mxfp4":
        codes = torch.stack([stored.codes & 15, stored.codes >> 4], -1).flatten(1)
        values = E2M1.decode(codes).float()
    else:
        dtype = torch.float8_e4m3fn if name == "mxfp8" else torch.float8_e5m2
        values = stored.codes.view(dtype).float()
    assert torch.equal(stored.decode(), values * powers)
    # the largest number of a block lies in the last binade of the elements
    largest = (x.abs() / powers).view(8, 2, 32).amax(-1)
    top = {"mxfp4": 4, "mxfp8": 256, "mxfp8 e5m2": 32768}[name]
    assert ((largest >= top) & (largest < 2 * top)).all()
    if name in theory.BLOCK_FORMATS:
        assert stored.nbytes == theory.BLOCK_FORMATS[name].bytes(8, 64)


def test_mxfp4_is_that_of_gguf_but_for_ties_and_the_order_of_halves() -> None:
    x = numbers("normal") + 1e-5  # ties: gguf takes the smaller, the standard the even one
    theirs = gguf.quantize(x.numpy(), GGMLQuantizationType.MXFP4)
    decoded = gguf.dequantize(theirs, GGMLQuantizationType.MXFP4)
    assert np.array_equal(encode_mx(x).decode().numpy(), decoded)


def test_an_mx_block_of_zeros_and_one_of_tiny_numbers() -> None:
    x = torch.zeros(1, 64)
    x[0, 32:] = 1e-44  # below the smallest power of e8m0 times the smallest e2m1
    assert encode_mx(x).decode().abs().max() == 0
    assert encode_mx(x).exponents.tolist() == [[0, 0]]


def test_an_exponent_of_255_is_nan_as_the_standard_says() -> None:
    stored = encode_mx(torch.ones(1, 32))
    stored.exponents[0, 0] = 255
    assert stored.decode().isnan().all()


def test_nvfp4_scales_the_largest_number_of_a_block_to_six() -> None:
    x = torch.randn(6, 64)
    stored = encode_nvfp4(x)
    assert stored.nbytes == theory.BLOCK_FORMATS["nvfp4"].bytes(6, 64)
    scales = stored.scales.view(torch.float8_e4m3fn).float() * stored.tensor_scale
    torch.testing.assert_close(E4M3.decode(stored.scales).float().amax(), torch.tensor(448.0))
    blocks, found = x.view(6, 4, 16), stored.decode().view(6, 4, 16)
    # e4m3 has 3 bits of mantissa: a scale is off by 1/16 at most, and so is the largest number
    largest = blocks.abs().amax(-1)
    assert ((scales * 6 - largest).abs() <= largest / 16 + 1e-7).all()
    assert ((found - blocks).abs() <= scales[..., None] * 1.0001 + largest[..., None] / 16).all()
    assert encode_nvfp4(torch.zeros(1, 16)).decode().abs().max() == 0


def test_the_levels_of_nf4_are_the_published_ones() -> None:
    """QLoRA, appendix E."""
    published = [
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
        -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
        0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ]  # fmt: skip
    torch.testing.assert_close(levels(), torch.tensor(published), rtol=0, atol=3e-7)


def test_the_levels_of_maxima_are_those_of_bitsandbytes() -> None:
    found = dynamic_levels()
    assert len(found) == 256
    assert found.unique().numel() == 256
    assert (found.min(), found.max()) == (-0.99296875, 1)
    assert 0 in found
    assert found[found > 0].min() == pytest.approx(5.5e-7)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("shape", [(64, 300), (3, 21), (1,)])
def test_nf4_takes_the_bytes_of_theory_and_the_nearest_level(
    shape: tuple[int, ...], double: bool
) -> None:
    w = torch.randn(shape)
    stored = encode_nf4(w, double)
    assert stored.nbytes == theory.normal_float_bytes(w.numel(), double=double)
    maxima = stored.block_maxima().repeat_interleave(64)[: w.numel()]
    exact = NormalFloat(stored.shape, stored.codes, encode_nf4(w, False).maxima).decode().flatten()
    scaled = w.flatten() / encode_nf4(w, False).maxima.repeat_interleave(64)[: w.numel()]
    least = (scaled[:, None] - levels()).abs().amin(1)
    torch.testing.assert_close(
        (exact / encode_nf4(w, False).maxima.repeat_interleave(64)[: w.numel()] - scaled).abs(),
        least, rtol=1e-4, atol=1e-6,
    )  # fmt: skip
    # maxima after double quantization are near: the coarsest step is 1/64 of 0.9 of the range
    torch.testing.assert_close(
        maxima, encode_nf4(w, False).maxima.repeat_interleave(64)[: w.numel()], rtol=0.02, atol=0.02
    )
    assert encode_nf4(torch.zeros(70), double).decode().abs().max() == 0


def test_the_first_weight_of_a_byte_lies_in_its_upper_half() -> None:
    assert encode_nf4(torch.tensor([1.0, -1.0, 0.0]), double=False).codes.tolist() == [0xF0, 0x70]
