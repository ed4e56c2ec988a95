"""MX: blocks of 32 small floats that share a power of two (OCP Microscaling Formats 1.0, 2023).

The power is 2**(floor(log2 of the largest magnitude) − the largest exponent of an element), stored
as e8m0: eight bits of exponent, without sign or mantissa. What then lies beyond the largest element
is cut off there (an element of 7 in a block whose power is 1 becomes e2m1's 6).
"""

from dataclasses import dataclass

import torch

from twophase.kernels.quantization.floats import (
    E2M1,
    E4M3,
    E5M2,
    FloatFormat,
    exponent_of,
    power_of_two,
)
from twophase.kernels.quantization.numbers import blocks_of
from twophase.kernels.quantization.packing import pack, unpack

BLOCK = 32
E8M0_BIAS = 127
ELEMENTS = {"mxfp4": E2M1, "mxfp8": E4M3, "mxfp8 e5m2": E5M2}


@dataclass(frozen=True)
class Microscaled:
    """Rows of blocks: elements, packed uint8 [..., ceil(I·bits / 8)], and exponents, e8m0 as uint8
    [..., I / 32]."""

    element: FloatFormat
    codes: torch.Tensor
    exponents: torch.Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of elements and exponents."""
        return self.codes.nbytes + self.exponents.nbytes

    def decode(self) -> torch.Tensor:
        """fp32 [..., I]; an exponent of 255 is NaN, as the format says."""
        inputs = self.exponents.shape[-1] * BLOCK
        values = self.element.decode(unpack(self.codes, self.element.bits, inputs))  # [..., I]
        blocks = values.view(*values.shape[:-1], -1, BLOCK)  # [..., blocks, 32]
        power = power_of_two(self.exponents.long() - E8M0_BIAS)
        power = torch.where(self.exponents == 255, torch.nan, power)
        return (blocks * power[..., None]).flatten(-2).float()


def encode_mx(x: torch.Tensor, element: str = "mxfp4") -> Microscaled:
    """Rows [..., I] in blocks of 32. Raises ValueError for an unknown element, NaN or infinity, and
    for a width that 32 does not divide."""
    if element not in ELEMENTS:
        raise ValueError(f"an MX format is one of {', '.join(ELEMENTS)}; got {element!r}.")
    kind = ELEMENTS[element]
    blocks = blocks_of(x, BLOCK, element).double()  # [..., blocks, 32]
    largest = blocks.abs().amax(-1)  # [..., blocks]
    top = exponent_of(torch.tensor(kind.largest).double())
    # a block of zeros takes the smallest power; elements of it are zero
    exponent = torch.where(largest > 0, exponent_of(largest) - top, -E8M0_BIAS)
    exponent = exponent.clamp(-E8M0_BIAS, E8M0_BIAS)
    codes = kind.encode(blocks * power_of_two(-exponent)[..., None], saturate=True)
    packed = pack(codes.flatten(-2), kind.bits)
    return Microscaled(kind, packed, (exponent + E8M0_BIAS).to(torch.uint8))
