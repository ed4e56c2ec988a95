"""Codes on a card stand for the numbers that they stand for on the CPU, and products with them are
the same.

Rounding on the card may tip a code: CUDA divides by a constant as it multiplies by its inverse. So
what is encoded there is as near to the weights, and not always the same byte.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from device_tools import CARD, moved, needs_a_card, same_on_a_card

from twophase.kernels.quantization.cached import round_cached
from twophase.kernels.quantization.floats import (
    BF16,
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    E5M2,
    FP16,
    FloatFormat,
)
from twophase.kernels.quantization.gptq import gptq, output_error
from twophase.kernels.quantization.int8_products import (
    int8_product,
    product_with_outliers,
    quantize_tokens,
)
from twophase.kernels.quantization.integers import IntegerFormat, encode
from twophase.kernels.quantization.named import NAMED, encode_named
from twophase.kernels.quantization.packing import pack, unpack
from twophase.kernels.quantization.published import from_awq, from_gptq
from twophase.kernels.quantization.scaling import (
    awq_scales,
    clip_groups,
    scaled_error,
    smooth_scales,
)
from twophase.models import checkpoints
from twophase.models.quantize import METHODS, quantize

pytestmark = needs_a_card
FORMATS = [
    IntegerFormat(bits, group, affine)
    for bits in (2, 3, 4, 8)
    for group in (32, "channel", "tensor")
    for affine in (False, True)
]


def matrix(outputs: int = 6, inputs: int = 512) -> torch.Tensor:
    return torch.randn(outputs, inputs)


def rms(x: torch.Tensor) -> float:
    return float(x.double().square().mean().sqrt())


def as_near(on_card: torch.Tensor, on_cpu: torch.Tensor, w: torch.Tensor) -> None:
    """Both are rounded as well as each other: a code in some hundreds may have tipped."""
    assert on_card.device.type == CARD
    assert rms(on_card.cpu() - w) == pytest.approx(rms(on_cpu - w), rel=0.02, abs=1e-6)
    assert rms(on_card.cpu() - on_cpu) <= 0.2 * rms(on_cpu - w) + 1e-6


@pytest.mark.parametrize("name", NAMED)
def test_a_named_format_is_read_number_for_number_and_written_as_well(name: str) -> None:
    w = matrix()
    stored = encode_named(w, name)
    # no sum is taken: levels times scales, each rounded once
    same_on_a_card(lambda held: held.decode(), stored, rtol=1e-6, atol=0.0)
    as_near(encode_named(w.to(CARD), name).decode(), stored.decode(), w)
    assert not encode_named(torch.zeros(3, 512, device=CARD), name).decode().any()


@pytest.mark.parametrize("how", FORMATS, ids=str)
def test_integers_are_read_number_for_number_and_written_as_well(how: IntegerFormat) -> None:
    w = matrix(5, 96)
    stored = encode(w, how)
    same_on_a_card(lambda held: held.decode(), stored, rtol=1e-6, atol=0.0)
    as_near(encode(w.to(CARD), how).decode(), stored.decode(), w)
    as_near(how.nearest(w.to(CARD)), stored.decode(), w)


@pytest.mark.parametrize("form", [FP16, BF16, E5M2, E4M3, E2M1, E3M2, E2M3], ids=lambda f: f.name)
def test_floats_of_any_format_have_the_same_codes(form: FloatFormat) -> None:
    x = torch.cat([8 * torch.randn(200), torch.tensor([0.0, -0.0, 1e-9])])
    same_on_a_card(lambda x: form.encode(x, saturate=True), x)
    codes = torch.arange(2**form.bits)
    same_on_a_card(form.decode, codes[codes >= 0], rtol=0.0, atol=0.0)


@pytest.mark.parametrize("bits", range(1, 9))
def test_codes_are_packed_and_unpacked_bit_for_bit(bits: int) -> None:
    codes = torch.randint(0, 2**bits, (3, 13))

    def both_ways(codes: torch.Tensor) -> Any:
        packed = pack(codes, bits)
        assert torch.equal(unpack(packed, bits, 13).long(), codes)
        return packed

    same_on_a_card(both_ways, codes)


def test_words_of_gptq_and_awq_are_read_bit_for_bit() -> None:
    def words(*shape: int) -> torch.Tensor:
        return torch.randint(-(2**31), 2**31, shape, dtype=torch.int64).to(torch.int32)

    scales = torch.rand(2, 16).half()
    groups = torch.arange(64) // 32
    same_on_a_card(
        lambda *given: from_gptq(*given[:3], g_idx=given[3]),
        words(8, 16),
        words(2, 2),
        scales,
        groups,
    )
    same_on_a_card(from_awq, words(64, 2), words(2, 2), scales)


def test_products_in_int8_are_the_same_to_a_level() -> None:
    x, w = torch.randn(3, 9, 64), torch.randn(12, 64)
    x[..., 7] *= 30  # an outlier
    codes, scales = quantize_tokens(w)
    given = x, codes, scales[:, 0]
    for product in (int8_product, product_with_outliers):
        expected, found = product(*given), product(*moved(given))
        assert found.device.type == CARD
        assert rms(found.cpu() - expected) < 1e-2 * rms(expected)  # a level in 127 may tip


@pytest.mark.parametrize("axis", ["channel", "token"])
def test_caches_are_rounded_as_well(axis: str) -> None:
    x = torch.randn(2, 70, 2, 32)
    made = partial(round_cached, bits=4, axis=axis, newest=5)
    as_near(made(x.to(CARD)), made(x), x)


def test_what_is_chosen_by_calibration_is_as_good() -> None:
    x = torch.randn(300, 48) * torch.logspace(-1, 1, 48)
    w, hessian, size = torch.randn(8, 48), (x.T @ x).double(), x.abs().mean(0)
    how = IntegerFormat(3, 16)
    on_card = moved((w, hessian, size))
    errors = [
        output_error(gptq(w_, h, how).decode() - w_, h)
        for w_, h, _ in ((w, hessian, size), on_card)
    ]
    assert errors[1] == pytest.approx(errors[0], rel=0.1)
    clipped = [clip_groups(w_, h, how) for w_, h, _ in ((w, hessian, size), on_card)]
    assert rms(clipped[1].cpu() - clipped[0]) < 0.05 * rms(clipped[0])
    chosen = [awq_scales([w_], s, h, how)[0] for w_, h, s in ((w, hessian, size), on_card)]
    assert chosen[1].device.type == CARD
    gained = (
        scaled_error(w, chosen[1].cpu(), hessian, how),
        scaled_error(w, chosen[0], hessian, how),
    )
    assert gained[0] == pytest.approx(gained[1], rel=0.05)
    same_on_a_card(lambda w, s: smooth_scales([w], s), w, size)


@pytest.mark.parametrize("form", ["q4_k", "nf4-double", "mxfp8", IntegerFormat(4, 64, affine=True)])
def test_a_quantized_model_says_the_same_on_the_card(form: str | IntegerFormat) -> None:
    model = quantize(checkpoints.load("gqa"), "nearest", form)
    tokens = torch.randint(0, 256, (2, 20))
    expected = model(tokens)
    found = model.to(CARD)(tokens.to(CARD))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_a_model_on_the_card_is_quantized_there(method: str) -> None:
    tokens = torch.randint(0, 256, (4, 64))
    how = IntegerFormat(4, 32)
    made = quantize(checkpoints.load("gqa", device=CARD), method, how, tokens)
    on_cpu = quantize(checkpoints.load("gqa"), method, how, tokens)
    with torch.inference_mode():
        laws = [model(tokens[:1].to(model.device)).cpu().softmax(-1) for model in (made, on_cpu)]
    # codes that tipped move the law a little; other codes would move it by a tenth
    assert float((laws[0] - laws[1]).abs().sum(-1).mean()) / 2 < 0.05
