"""What rounding does when it runs: facts for the rows on quantization."""

from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

GROUP = 128


def _normal(n: int = 4096, outlier: float = 0.0) -> "torch.Tensor":
    """n numbers spread as the normal distribution has them, fp32 [1, n]; with an outlier of so many
    deviations, one more."""
    import torch

    values = [NormalDist().inv_cdf((i + 0.5) / n) for i in range(n)]
    return torch.tensor([values + ([outlier] if outlier else [])])


def rounding_error(form: str, outlier: float = 0.0) -> float:
    """Root mean square error of normal numbers in a format, one absmax scale for all, as a share of
    their size. An outlier that shares the scale is not counted."""
    import torch

    from twophase.kernels.quantization import floats
    from twophase.kernels.quantization.integers import IntegerFormat, encode

    x = _normal(outlier=outlier)
    if form.startswith("int"):
        how = IntegerFormat(int(form[3:]), "channel", scale_dtype=torch.float32)
        found = encode(x, how).decode()
    else:
        kind = {"fp16": floats.FP16, "fp8": floats.E4M3}[form]
        scale = x.abs().max().double() / kind.largest if form == "fp8" else 1.0
        found = (kind.decode(kind.encode(x.double() / scale)) * scale).float()
    error = (found - x)[0, :4096]
    return float(error.pow(2).mean().sqrt() / x[0, :4096].pow(2).mean().sqrt())


def largest_absmax_error(bits: int = 8) -> float:
    """The largest error of normal numbers on an absmax grid, in steps of the grid."""
    import torch

    from twophase.kernels.quantization.integers import IntegerFormat, encode

    x = _normal()
    found = encode(x, IntegerFormat(int(bits), "channel", scale_dtype=torch.float32))
    return float((found.decode() - x).abs().max() / found.scales.max())


def share_rounded_to_zero(outlier: float, bits: int = 8) -> float:
    """The share of normal numbers that become 0 beside an outlier of so many deviations."""
    import torch

    from twophase.kernels.quantization.integers import IntegerFormat, encode

    how = IntegerFormat(int(bits), "channel", scale_dtype=torch.float32)
    found = encode(_normal(outlier=outlier), how).decode()
    return float((found[0, :4096] == 0).float().mean())


def product_error(outliers_apart: bool) -> float:
    """The relative error of an int8 product whose inputs have two channels 60 times as large, with
    these in floating point or not."""
    import torch

    from twophase.kernels.quantization.int8_products import (
        int8_product,
        product_with_outliers,
        quantize_tokens,
    )

    drawn = torch.Generator().manual_seed(0)
    x, w = torch.randn(32, 256, generator=drawn), torch.randn(64, 256, generator=drawn)
    x[:, [3, 70]] *= 60
    w[:, [3, 70]] /= 60
    codes, scales = quantize_tokens(w)
    run = product_with_outliers if outliers_apart else int8_product
    return float((run(x, codes, scales[:, 0]) - x @ w.T).norm() / (x @ w.T).norm())


def scales_change_with_samples(what: str) -> bool:
    """Whether other samples give other scales: of "weights" rounded to nearest, or of
    "activations"."""
    import torch

    from twophase.kernels.quantization.integers import IntegerFormat, encode

    drawn = torch.Generator().manual_seed(0)
    w = torch.randn(4, GROUP, generator=drawn)
    seen = []
    for _ in range(2):
        sample = torch.randn(16, GROUP, generator=drawn)
        rounded = w if what == "weights" else sample
        seen.append(encode(rounded, IntegerFormat(8, "tensor")).scales)
    return not torch.equal(*seen)


def share_left_unrounded() -> float:
    """The share of a layer's weights that AWQ's search leaves out of the codes."""
    import torch

    from twophase.kernels.quantization.integers import IntegerFormat, encode
    from twophase.kernels.quantization.scaling import awq_scales

    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(256, GROUP, generator=drawn)
    x[:, :2] *= 30  # two salient channels
    w, how = torch.randn(8, GROUP, generator=drawn), IntegerFormat(3, GROUP)
    scales, _ = awq_scales([w], x.abs().mean(0), x.T @ x, how)
    return 1 - encode(w * scales, how).unpacked()[0].numel() / w.numel()


def gptq_error_over_best() -> float:
    """GPTQ's output error on a row of six weights in 2 bits, over the least of all codes: the mean
    of 20 rows."""
    from itertools import product

    import torch

    from twophase.kernels.quantization.gptq import gptq, output_error
    from twophase.kernels.quantization.integers import IntegerFormat

    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(64, 6, generator=drawn) @ torch.randn(6, 6, generator=drawn)
    hessian, how = x.T @ x, IntegerFormat(2, "channel", affine=True, scale_dtype=torch.float32)
    total, least = 0.0, 0.0
    for _ in range(20):
        w = torch.randn(1, 6, generator=drawn)
        found = gptq(w, hessian, how)
        zero = found.unpacked()[1]
        assert zero is not None
        codes = torch.tensor(list(product(range(4), repeat=6))).float()  # [4096, 6]
        off = (codes - zero.float()) * found.scales - w
        total += output_error(found.decode() - w, hessian)
        least += float(((off @ hessian) * off).sum(1).min())
    return float(total / least)


def quantize_group(weight: "torch.Tensor", bits: int = 4, group: int = GROUP) -> tuple:  # type: ignore[type-arg]
    """The deep dive's snippet, line for line: codes, scales, zeros, and what is cast to int8."""
    import torch

    weight = weight.reshape(-1, group)
    scales = weight.abs().max(dim=1, keepdim=True)[0] / (2 ** (bits - 1) - 1)
    zeros = weight.min(dim=1, keepdim=True)[0]
    exact = torch.round((weight - zeros) / scales)
    return exact.to(torch.int8), scales, zeros, exact


def snippet_worst_error(low: float, high: float, bits: int = 4) -> float:
    """The snippet's largest error on a group spread from low to high, in steps of the grid that the
    range allows, (high − low) / (2**bits − 1)."""
    import torch

    w = torch.linspace(low, high, GROUP)[None]
    codes, scales, zeros, _ = quantize_group(w, int(bits))
    error = (codes.float() * scales + zeros - w).abs().max()
    step = (high - low) / (2 ** int(bits) - 1)
    return float(error / step)


def snippet_lost_codes(bits: int) -> int:
    """Of a group spread from −1 to 1: how many codes are others after the cast to int8."""
    import torch

    codes, *_, exact = quantize_group(torch.linspace(-1, 1, GROUP)[None], int(bits))
    return int((codes.float() != exact).sum())


def snippet_nans() -> int:
    """Of a group of zeros: how many codes are no number before the cast."""
    import torch

    *_, exact = quantize_group(torch.zeros(1, GROUP))
    return int(exact.isnan().sum())


def snippet_bits_of_a_code() -> int:
    """Bits that a 4-bit code takes as the snippet returns it."""
    import torch

    return 8 * int(quantize_group(torch.ones(1, GROUP))[0].element_size())


def snippet_groups_across_rows(rows: int, width: int) -> int:
    """Of a matrix whose width 128 does not divide: groups with weights of two rows."""
    import torch

    numbers = torch.arange(rows).repeat_interleave(width).reshape(-1, GROUP)
    return int((numbers.amin(1) != numbers.amax(1)).sum())
