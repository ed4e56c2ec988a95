"""NF4: sixteen levels where normally distributed weights are equally many, scaled by the largest
magnitude of each block of 64 (QLoRA: Dettmers et al. 2023, arXiv 2305.14314, section 3).

Levels are quantiles of the normal distribution, eight above zero and seven below, and zero itself,
the largest brought to 1. Double quantization stores the blocks' maxima in 8 bits: their mean is
taken off, and what is left goes, in blocks of 256, to the nearest of 255 values that lie closer
together near zero (`dynamic_levels`). Codes and their order are those of bitsandbytes: the first
weight of a byte in its upper half, blocks along the flattened tensor.
"""

from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import torch

from twophase.kernels.quantization.numbers import check_numbers

BLOCK, OUTER_BLOCK = 64, 256
OFFSET = (
    0.9677083  # the largest quantile: between those of 15 and of 16 levels, 1 − (1/30 + 1/32)/2
)


@cache
def levels() -> torch.Tensor:
    """The sixteen values of NF4, fp32, from −1 to 1."""
    quantile = NormalDist().inv_cdf

    def side(n: int) -> list[float]:
        """Quantiles from OFFSET down to, but without, the middle."""
        return [quantile(OFFSET + (0.5 - OFFSET) * i / n) for i in range(n)]

    values = sorted([*side(8), 0.0, *(-v for v in side(7))])
    return torch.tensor([v / values[-1] for v in values])


@cache
def dynamic_levels() -> torch.Tensor:
    """The 256 values between −1 and 1 that maxima are rounded to, fp32 and ascending.

    Seven decades; from the smallest to the largest, 1, 2, 4, ... 64 values on each side of zero, in
    the middles of equal parts of [0.1, 1]; then zero and one (Dettmers 2016, arXiv 1511.04561,
    section 2; signed, as bitsandbytes makes it).
    """
    values = [0.0, 1.0]
    for decade in range(7):
        n = 2**decade
        ends = torch.linspace(0.1, 1, n + 1)
        middles = 10 ** (decade - 6) * ((ends[:-1] + ends[1:]) / 2)
        values += [*middles.tolist(), *(-middles).tolist()]
    return torch.tensor(sorted(values))


@dataclass(frozen=True)
class NormalFloat:
    """A tensor in NF4.

    codes: uint8 [ceil(n / 2)]; maxima: fp32 [blocks], or with double quantization their codes,
    uint8 [blocks], with `outer_maxima` fp32 [ceil(blocks / 256)] and `mean` fp32 [].
    """

    shape: tuple[int, ...]
    codes: torch.Tensor
    maxima: torch.Tensor
    outer_maxima: torch.Tensor | None = None
    mean: torch.Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of codes and of all that scales them."""
        parts = (self.codes, self.maxima, self.outer_maxima, self.mean)
        return sum(part.nbytes for part in parts if part is not None)

    def block_maxima(self) -> torch.Tensor:
        """What each block is multiplied by, fp32 [blocks]."""
        if self.outer_maxima is None or self.mean is None:
            return self.maxima
        scale = self.outer_maxima.repeat_interleave(OUTER_BLOCK)[: len(self.maxima)]  # [blocks]
        inner = dynamic_levels().to(scale.device)[self.maxima.long()]  # [blocks]
        return inner * scale + self.mean

    def decode(self) -> torch.Tensor:
        """fp32, in the tensor's shape."""
        n = torch.Size(self.shape).numel()
        halves = torch.stack([self.codes >> 4, self.codes & 15], -1).flatten()[:n]  # [n]
        values = levels().to(halves.device)[halves.long()]  # [n]
        return (values * _each(self.block_maxima(), n)).view(self.shape)


def encode_nf4(w: torch.Tensor, double: bool = True) -> NormalFloat:
    """A tensor to the nearest levels. Raises ValueError for NaN and infinity."""
    flat = check_numbers(w).flatten()
    maxima = _pieces(flat, BLOCK).abs().amax(-1)  # [blocks]
    scale = torch.where(maxima == 0, 1.0, maxima)
    codes = _nearest(flat / _each(scale, len(flat)), levels())  # [n]
    pairs = torch.nn.functional.pad(codes, (0, len(codes) % 2)).view(-1, 2)  # [bytes, 2]
    packed = (pairs[:, 0] << 4 | pairs[:, 1]).to(torch.uint8)
    if not double:
        return NormalFloat(tuple(w.shape), packed, maxima)
    mean = maxima.mean()
    off = maxima - mean
    outer = _pieces(off, OUTER_BLOCK).abs().amax(-1)  # [outer blocks]
    scale = torch.where(outer == 0, 1.0, outer).repeat_interleave(OUTER_BLOCK)[: len(off)]
    inner = _nearest(off / scale, dynamic_levels()).to(torch.uint8)
    return NormalFloat(tuple(w.shape), packed, inner, outer, mean)


def _nearest(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The place of the value nearest to each x; in the very middle the lower."""
    return torch.bucketize(x, ((values[:-1] + values[1:]) / 2).to(x.device))


def _pieces(flat: torch.Tensor, size: int) -> torch.Tensor:
    """[n] as [ceil(n / size), size], zeros at the end."""
    return torch.nn.functional.pad(flat, (0, -len(flat) % size)).view(-1, size)


def _each(per_block: torch.Tensor, n: int) -> torch.Tensor:
    """[blocks] as [n], each as often as its block is long."""
    return per_block.repeat_interleave(BLOCK)[:n]
