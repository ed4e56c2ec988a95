"""Matrices in formats that have a name: the tensors of their kernels, byte for byte, of the shapes
and bytes that theory gives them."""

from __future__ import annotations

from fractions import Fraction

import gguf
import numpy as np
import pytest
import torch

from twophase.kernels.quantization.gguf import CODECS
from twophase.kernels.quantization.named import (
    NAMED,
    Named,
    encode_named,
    integers_of,
    layout_of,
    named_format_of,
)
from twophase.theory.quantization import BLOCK_FORMATS, normal_float_bytes
from twophase.theory.weight_format import NORMAL_FLOATS, stored_bytes_per_value


def matrix(outputs: int = 6, inputs: int = 512) -> torch.Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("name", NAMED)
def test_a_matrix_has_the_tensors_of_its_layout_and_the_bytes_of_theory(name: str) -> None:
    w = matrix()
    stored = encode_named(w, name)
    layout = layout_of(name, 6, 512)
    assert {k: (tuple(t.shape), t.dtype) for k, t in stored.tensors.items()} == layout
    if name in BLOCK_FORMATS:
        assert stored.nbytes == BLOCK_FORMATS[name].bytes(6, 512)
    elif name == "e4m3":
        assert stored.nbytes == w.numel() + 4
    else:
        assert stored.nbytes == normal_float_bytes(w.numel(), double=NORMAL_FLOATS[name])
    error = (stored.decode() - w).pow(2).mean().sqrt()
    bits = 8 * stored.nbytes / w.numel()
    assert 0 < error < (0.03 if bits > 6.5 else 0.13)  # of a normal distribution


@pytest.mark.parametrize("name", CODECS)
def test_blocks_decode_as_the_gguf_package_decodes_them(name: str) -> None:
    stored = encode_named(matrix(), name)
    kind = gguf.GGMLQuantizationType[name.upper()]
    theirs = gguf.dequantize(stored.tensors["blocks"].numpy(), kind)
    assert np.array_equal(stored.decode().numpy(), theirs)


@pytest.mark.parametrize("name", ["q8_0", "q4_0"])
def test_blocks_without_minima_are_integers_in_groups_of_32_number_for_number(name: str) -> None:
    form = BLOCK_FORMATS[name]
    shape = (5, 3 * form.block_bytes)
    blocks = torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(1)).byte()
    blocks.view(5, 3, -1)[..., 1] &= 0xBF  # scales of any sign, none of them infinite or NaN
    stored = Named(name, (5, 96), {"blocks": blocks})
    assert torch.equal(integers_of(stored).decode(), stored.decode())
    with pytest.raises(ValueError, match="q4_k has no loop"):
        integers_of(encode_named(matrix(), "q4_k"))


@pytest.mark.parametrize("name", NAMED)
def test_zeros_stay_zeros_and_nan_and_infinity_are_refused(name: str) -> None:
    assert encode_named(torch.zeros(3, 256), name).decode().abs().max() == 0
    for wrong in (torch.nan, torch.inf, -torch.inf):
        w = matrix()
        w[2, 7] = wrong
        with pytest.raises(ValueError, match="1 of 3072 numbers are NaN or infinite"):
            encode_named(w, name)


def test_an_e4m3_of_one_scale_gives_its_largest_number_the_largest_code() -> None:
    w = matrix()
    stored = encode_named(w, "e4m3")
    torch_codes = (w / (w.abs().max() / 448)).to(torch.float8_e4m3fn)
    assert torch.equal(stored.tensors["codes"], torch_codes.view(torch.uint8))
    torch.testing.assert_close(stored.decode().abs().max(), w.abs().max())


@pytest.mark.parametrize("name", NAMED)
def test_the_planner_counts_the_bits_that_large_matrices_have(name: str) -> None:
    n_bytes = sum(
        torch.Size(shape).numel() * dtype.itemsize
        for shape, dtype in layout_of(name, 8192, 8192).values()
    )
    planned = stored_bytes_per_value(name) * 8192 * 8192
    assert 0 <= n_bytes - planned <= 4  # what a tensor has once
    assert stored_bytes_per_value(name) < Fraction(11, 10)


def test_what_is_no_named_format_or_does_not_fit_it_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a named format is one of q8_0, .*; got 'q3_k'"):
        encode_named(matrix(), "q3_k")
    with pytest.raises(ValueError, match="a named format is one of"):
        named_format_of("int4", 256)
    with pytest.raises(ValueError, match="multiple of 256"):
        encode_named(matrix(2, 128), "q4_k")
    stored = encode_named(matrix(), "nf4-double")
    with pytest.raises(ValueError, match="in nf4-double is"):
        Named("nf4-double", (6, 513), stored.tensors)
    assert named_format_of("nf4", 213) == "nf4"
    assert named_format_of("q4_k", 128) == "q5_0"
