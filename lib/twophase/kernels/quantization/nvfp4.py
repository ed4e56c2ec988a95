"""NVFP4: blocks of 16 e2m1 that share an e4m3 scale, and one fp32 scale for the tensor.

The scale of a tensor, its largest magnitude over 6·448, brings the scales of blocks into e4m3's
range; they have a mantissa, so that the largest number of a block may become 6, the largest e2m1,
where MX has powers of two only. (NVIDIA, "Introducing NVFP4 for efficient and accurate
low-precision inference", 2025.)
"""

from dataclasses import dataclass

import torch

from twophase.kernels.quantization.floats import E2M1, E4M3
from twophase.kernels.quantization.numbers import blocks_of
from twophase.kernels.quantization.packing import pack, unpack

BLOCK = 16


@dataclass(frozen=True)
class NVFP4:
    """Rows of blocks: elements, packed uint8 [..., I / 2]; scales, e4m3 as uint8 [..., I / 16]; the
    tensor's scale, fp32 []."""

    codes: torch.Tensor
    scales: torch.Tensor
    tensor_scale: torch.Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of elements and scales."""
        return self.codes.nbytes + self.scales.nbytes + self.tensor_scale.nbytes

    def decode(self) -> torch.Tensor:
        """fp32 [..., I]."""
        values = E2M1.decode(unpack(self.codes, E2M1.bits, self.scales.shape[-1] * BLOCK))
        blocks = values.view(*values.shape[:-1], -1, BLOCK)  # [..., blocks, 16]
        scales = E4M3.decode(self.scales) * self.tensor_scale.double()
        return (blocks * scales[..., None]).flatten(-2).float()


def encode_nvfp4(x: torch.Tensor) -> NVFP4:
    """Rows [..., I] in blocks of 16. Raises ValueError for NaN or infinity, and for a width that
    16 does not divide."""
    blocks = blocks_of(x, BLOCK, "nvfp4").double()  # [..., blocks, 16]
    largest = blocks.abs().amax(-1)  # [..., blocks]
    tensor_scale = (largest.amax() / (E2M1.largest * E4M3.largest)).float()
    if tensor_scale == 0:  # nothing but zeros, or too small for an fp32 scale
        tensor_scale = torch.ones_like(tensor_scale)
    scales = E4M3.encode(largest / E2M1.largest / tensor_scale.double(), saturate=True)
    steps = (E4M3.decode(scales) * tensor_scale.double())[..., None]  # [..., blocks, 1]
    # a block so small that its scale is 0 becomes zeros
    elements = torch.where(steps == 0, 0.0, blocks / torch.where(steps == 0, 1.0, steps))
    codes = E2M1.encode(elements, saturate=True)
    return NVFP4(pack(codes.flatten(-2), E2M1.bits), scales.to(torch.uint8), tensor_scale)
