"""Products of quantized matrices in loops are those of the decoded matrix."""

from __future__ import annotations

import numba
import numpy as np
import pytest
import torch

from twophase.kernels.compiled import quantized, quantized_tokens
from twophase.kernels.compiled.codes import Packed, pack_for_loops
from twophase.kernels.compiled.lanes import has_bytes, has_pairs, has_tiles
from twophase.kernels.compiled.linear import ACTIVATIONS
from twophase.kernels.compiled.quantized import (
    add_product,
    norm_activate_product,
    norm_product,
    quantized_matvec,
    room_for,
)
from twophase.kernels.compiled.quantized_bytes import make_bytes, room_for_bytes
from twophase.kernels.compiled.quantized_tokens import quantized_product
from twophase.kernels.quantization.integers import IntegerFormat, Integers, encode
from twophase.kernels.quantization.named import encode_named, integers_of

INT8 = IntegerFormat(8, "channel", scale_dtype=torch.float32)
FORMATS = [
    INT8,
    IntegerFormat(4, 32),
    IntegerFormat(4, 32, affine=True),
    IntegerFormat(4, 8, scale_dtype=torch.bfloat16),
    IntegerFormat(8, 16, affine=True, scale_dtype=torch.bfloat16),
    IntegerFormat(4, "channel", affine=True, scale_dtype=torch.float32),
]
# groups of one chunk, and of many
WIDE = [INT8, IntegerFormat(4, 64), IntegerFormat(8, "channel", affine=True)]
# one row, rows that leave a tile unfinished, whole tiles
SIZES = [(1, 32), (130, 64), (256, 96), (257, 320)]
# sums of products of fp32 in another order, of 320 terms at most: 320·6e-8 of the largest
TOLERANCE = 2e-5


def matrix(outputs: int, inputs: int, how: IntegerFormat) -> Integers:
    return encode(torch.randn(outputs, inputs) + 0.2, how)


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    scale = float(expected.abs().max())
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=TOLERANCE * scale)


def check_bytes(in_bytes: bool) -> None:
    if in_bytes and not has_bytes():
        pytest.skip("this processor has no instruction for fours of bytes")


@pytest.fixture(params=[False, True], ids=["floats", "bytes"])
def in_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether products take their vector as bytes."""
    check_bytes(request.param)
    monkeypatch.setattr(quantized, "has_bytes", lambda: request.param)
    return bool(request.param)


@pytest.mark.parametrize("how", FORMATS, ids=str)
@pytest.mark.parametrize(("outputs", "inputs"), SIZES)
@pytest.mark.usefixtures("in_bytes")
def test_a_product_is_that_of_the_decoded_matrix(
    outputs: int, inputs: int, how: IntegerFormat
) -> None:
    w, x = matrix(outputs, inputs, how), torch.randn(inputs)
    packed = pack_for_loops(w)
    close(quantized_matvec(packed, x), w.decode().double() @ x.double())
    for B in (1, 6):  # tokens that leave a four unfinished
        x = torch.randn(B, inputs)
        close(quantized_product(packed, x), x.double() @ w.decode().double().T)


@pytest.mark.parametrize("mean", [0.0, 1.0])
@pytest.mark.parametrize("how", WIDE, ids=str)
def test_wide_products_keep_their_digits_whatever_the_mean_of_the_inputs(
    in_bytes: bool, how: IntegerFormat, mean: float
) -> None:
    """Sums of 64 products, and 64 of these: some dozens of roundings of 2⁻²⁴, of numbers up to a
    few deviations of the output. torch's fp32 is off by 3e-6, these by 2e-6, pairs by 4e-6."""
    w = encode(torch.randn(256, 4096), how)
    packed, weights = pack_for_loops(w), w.decode().double()
    for B in (1, 3, 5, 16):
        x = torch.randn(B, 4096) + mean
        given = [(x, quantized_product(packed, x)), (x[:1], quantized_matvec(packed, x[0])[None])]
        x = x.bfloat16()
        given += [(x, quantized_product(packed, x))]
        for tokens, found in given:
            expected = tokens.double() @ weights.T
            assert (found - expected).abs().max() < 5e-6 * expected.std()


@pytest.mark.parametrize("how", FORMATS, ids=str)
@pytest.mark.usefixtures("in_bytes")
def test_weights_that_are_all_zero_give_zero(how: IntegerFormat) -> None:
    packed = pack_for_loops(encode(torch.zeros(130, 256), how))
    assert not quantized_matvec(packed, torch.randn(256)).any()
    for dtype in (torch.float32, torch.bfloat16):
        assert not quantized_product(packed, torch.randn(6, 256).to(dtype)).any()


@pytest.mark.parametrize("how", FORMATS, ids=str)
def test_matrices_that_begin_with_a_tile_are_read_alone_where_they_lie_together(
    how: IntegerFormat,
) -> None:
    """Of 256, 130 and 7 rows the last begin inside a tile."""
    parts = [matrix(n, 64, how) for n in (256, 130, 7)]
    together, x = pack_for_loops(*parts), torch.randn(3, 64)
    first, second = together.rows(0, 256), together.rows(256, 130)
    assert together.rows(386, 7) is None
    assert first
    assert second
    for alone, w in ((first, parts[0]), (second, parts[1])):
        assert np.shares_memory(alone.arrays[0], together.arrays[0])
        expected = quantized_product(pack_for_loops(w), x)
        assert torch.equal(quantized_product(alone, x), expected)


@pytest.mark.parametrize("name", ["q8_0", "q4_0"])
def test_a_product_of_blocks_of_gguf_is_that_of_the_decoded_matrix(name: str) -> None:
    w, x = encode_named(torch.randn(130, 96), name), torch.randn(96)
    close(quantized_matvec(pack_for_loops(integers_of(w)), x), w.decode().double() @ x.double())


@pytest.mark.parametrize("how", FORMATS, ids=str)
@pytest.mark.parametrize("pairs", [False, True])
def test_tokens_in_bf16_lose_nothing_in_pairs_or_as_fp32(
    monkeypatch: pytest.MonkeyPatch, how: IntegerFormat, pairs: bool
) -> None:
    if pairs and not has_pairs():
        pytest.skip("this processor has no instruction for pairs of bf16")
    monkeypatch.setattr(quantized_tokens, "has_pairs", lambda: pairs)
    for (outputs, inputs), B in zip(SIZES, (1, 6, 8, 17), strict=True):
        w, x = matrix(outputs, inputs, how), torch.randn(B, inputs).bfloat16()
        found = quantized_product(pack_for_loops(w), x)
        close(found, x.double() @ w.decode().double().T)


@pytest.mark.parametrize(
    ("option", "value"), [("ENABLE_AVX", False), ("CPU_FEATURES", ""), ("CPU_FEATURES", "+avx2")]
)
def test_pairs_and_bytes_are_left_alone_where_numba_is_told_to_compile_without_them(
    monkeypatch: pytest.MonkeyPatch, option: str, value: object
) -> None:
    monkeypatch.setattr(numba.config, option, value)
    assert not has_pairs.__wrapped__()
    assert not has_bytes.__wrapped__()
    assert not has_tiles.__wrapped__()


@pytest.mark.parametrize("how", [INT8, IntegerFormat(4, 32)], ids=str)
def test_the_default_device_of_torch_changes_nothing(how: IntegerFormat) -> None:
    w, tokens = matrix(130, 64, how), torch.randn(3, 64)
    given = tokens, tokens[:0], tokens.bfloat16()
    before = [quantized_product(pack_for_loops(w), x) for x in given]
    vector = quantized_matvec(pack_for_loops(w), tokens[0])
    with torch.device("meta"):
        packed = pack_for_loops(w)
        for x, expected in zip(given, before, strict=True):
            assert torch.equal(quantized_product(packed, x), expected)
        assert torch.equal(quantized_matvec(packed, tokens[0]), vector)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_tokens_have_no_products(dtype: torch.dtype) -> None:
    found = quantized_product(pack_for_loops(matrix(130, 64, INT8)), torch.empty(0, 64).to(dtype))
    assert (found.shape, found.dtype) == ((0, 130), torch.float32)


@pytest.mark.parametrize("how", FORMATS, ids=str)
@pytest.mark.usefixtures("in_bytes")
def test_loops_with_norm_activation_and_residual_are_these_operations(
    how: IntegerFormat, in_bytes: bool
) -> None:
    D, F = 64, 160
    x, scale = torch.randn(D), torch.rand(D) + 0.5
    gate, up, down = matrix(F, D, how), matrix(F, D, how), matrix(D, F, how)
    q, k = matrix(D, D, how), matrix(10, D, how)
    eps, none = np.float32(1e-5), np.empty(0, np.float32)
    h = (x * torch.rsqrt(x.pow(2).mean() + 1e-5) * scale).double()
    first = x.numpy(), scale.numpy(), none, eps
    room = np.empty(D, np.float32)

    both, bias = pack_for_loops(q, k), torch.randn(D + 10)
    y = torch.empty(D + 10)
    norm_product.serial(*first, both.arrays, bias.numpy(), room, room_for(both), y.numpy(), 1)
    close(y, torch.cat([q.decode(), k.decode()]).double() @ h + bias.double())

    packed, bias = [pack_for_loops(w) for w in (gate, up)], torch.randn(2 * F)
    y = torch.empty(F)
    norm_activate_product.parallel(
        *first, packed[0].arrays, packed[1].arrays, bias.numpy(), ACTIVATIONS["silu"], room,
        room_for(packed[0]), y.numpy(), 2,
    )  # fmt: skip
    gates = gate.decode().double() @ h + bias[:F].double()
    ups = up.decode().double() @ h + bias[F:].double()
    close(y, torch.nn.functional.silu(gates) * ups)

    narrow, stream, added = pack_for_loops(down), x.clone(), torch.zeros(D)
    add_product.serial(narrow.arrays, added.numpy(), y.numpy(), room_for(narrow), stream.numpy(), 1)
    close(stream, x.double() + down.decode().double() @ y.double())


def test_a_product_reads_the_bytes_that_the_format_has() -> None:
    w = matrix(256, 128, IntegerFormat(4, 32, scale_dtype=torch.bfloat16))
    assert pack_for_loops(w).nbytes == w.nbytes
    w = matrix(256, 128, INT8)
    assert pack_for_loops(w).nbytes == w.nbytes


@pytest.mark.parametrize(
    "how",
    [
        IntegerFormat(3, 32),
        IntegerFormat(8, 32),
        IntegerFormat(8, "tensor"),
        IntegerFormat(4, "tensor"),
        IntegerFormat(4, 6),
        IntegerFormat(4, 40),
    ],
    ids=str,
)
def test_formats_without_a_loop_are_refused(how: IntegerFormat) -> None:
    with pytest.raises(ValueError, match="loops read"):
        pack_for_loops(matrix(3, 48, how))


def test_mixtures_and_vectors_that_do_not_fit_are_refused() -> None:
    w = matrix(3, 32, INT8)
    with pytest.raises(ValueError, match="one format"):
        pack_for_loops(w, matrix(3, 32, IntegerFormat(4, 32)))
    packed: Packed = pack_for_loops(w)
    for x in (torch.randn(31), torch.randn(32).double(), torch.randn(1, 32)):
        with pytest.raises(ValueError, match="multiplies fp32"):
            quantized_matvec(packed, x)


def test_what_is_no_tensor_or_wants_a_gradient_is_refused() -> None:
    packed, given = pack_for_loops(matrix(3, 32, INT8)), torch.randn(2, 32)
    for product, x in ((quantized_matvec, given[0]), (quantized_product, given)):
        with pytest.raises(ValueError, match="take a torch tensor; got list"):
            product(packed, x.tolist())  # type: ignore[arg-type]
        expected = product(packed, x)
        x.requires_grad_()
        with pytest.raises(ValueError, match="have no gradient"):
            product(packed, x)
        with torch.no_grad():
            assert torch.equal(product(packed, x), expected)
        x.requires_grad_(False)


@pytest.mark.parametrize("how", FORMATS, ids=str)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.usefixtures("in_bytes")
def test_nan_and_infinity_of_the_vector_come_through(how: IntegerFormat, bad: float) -> None:
    x = torch.randn(64)
    x[3] = bad
    assert not quantized_matvec(pack_for_loops(matrix(5, 64, how)), x).isfinite().any()


@pytest.mark.parametrize("how", FORMATS, ids=str)
@pytest.mark.parametrize("size", [0.0, 1e-20, 1e20])
@pytest.mark.usefixtures("in_bytes")
def test_vectors_of_any_size_and_with_outliers_keep_their_digits(
    how: IntegerFormat, size: float
) -> None:
    """Each chunk of inputs has a unit of its own: an outlier takes digits of its neighbors only."""
    w, x = matrix(130, 256, how), torch.randn(256) * size
    x[7] *= 1e4
    packed, weights = pack_for_loops(w), w.decode().double()
    close(quantized_matvec(packed, x), weights @ x.double())
    x[7], weights[:, :64] = x[7] * 1e-6, 0  # what stands in other chunks is as exact as alone
    close(quantized_matvec(packed, x * (torch.arange(256) >= 64)), weights @ x.double())


def test_bytes_of_a_vector_are_its_whole_numbers() -> None:
    check_bytes(in_bytes=True)
    x = torch.cat([torch.randn(64), torch.zeros(32), torch.tensor([1e-35] * 32)]).numpy()
    x[[0, 1]] = -7.5, 7.5  # the ends of the first chunk
    made = room_for_bytes(len(x), 4)
    make_bytes(x, made)
    high = made.digits.astype(np.int64)
    whole = high[0] + 256 * high[1] + 65536 * high[2]
    units = np.repeat(made.units, 32)
    assert np.abs(whole * units.astype(np.float64) - x).max() <= units.max() * 0.51
    assert whole[64:].tolist() == [0] * 64
    assert (made.sums == made.digits.reshape(3, 4, 32).sum(2).T).all()
