"""The blocks of llama.cpp's files, byte for byte: q8_0, q5_0 and q4_0, and the table of all five.

Blocks of 32 numbers, each with a scale in fp16 in front. q4_0's scale is the number of largest
magnitude, *with its sign*, over −8: so that number takes level −8, and the grid's one extra level
is on its side; q5_0 has −16 for −8. Bytes are those of ggml's reference (`quantize_row_q8_0_ref`,
`quantize_row_q5_0_ref`, `quantize_row_q4_0_ref`): codes are rounded with the scale before it
becomes fp16.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from twophase.kernels.quantization import q4_k, q6_k
from twophase.kernels.quantization.numbers import blocks_of, check_bytes
from twophase.kernels.quantization.packing import pack, unpack
from twophase.theory.quantization import BLOCK_FORMATS


def encode_q8_0(x: torch.Tensor) -> torch.Tensor:
    """Rows [..., I] as bytes, uint8 [..., I / 32·34]: scale, then 32 int8."""
    blocks = blocks_of(x, 32, "q8_0")  # [..., blocks, 32]
    scale = blocks.abs().amax(-1, keepdim=True) / 127  # [..., blocks, 1]
    codes = _round_away(blocks * _inverse(scale)).to(torch.int8)
    return torch.cat([_half_bytes(scale), codes.view(torch.uint8)], -1).flatten(-2)


def decode_q8_0(packed: torch.Tensor) -> torch.Tensor:
    """The numbers, fp32 [..., I]."""
    blocks = _blocks(packed, "q8_0")  # [..., blocks, 34]
    return (_half(blocks[..., :2]) * blocks[..., 2:].view(torch.int8).float()).flatten(-2)


def encode_q4_0(x: torch.Tensor) -> torch.Tensor:
    """Rows [..., I] as bytes, uint8 [..., I / 32·18]: scale, then 16 bytes, of which byte j holds
    the codes of numbers j (lower half) and j + 16."""
    scale, codes = _one_sided(blocks_of(x, 32, "q4_0"), 8)  # [..., blocks, 1 and 32]
    return torch.cat([_half_bytes(scale), codes[..., :16] | codes[..., 16:] << 4], -1).flatten(-2)


def decode_q4_0(packed: torch.Tensor) -> torch.Tensor:
    """The numbers, fp32 [..., I]."""
    blocks = _blocks(packed, "q4_0")  # [..., blocks, 18]
    codes = torch.cat([blocks[..., 2:] & 15, blocks[..., 2:] >> 4], -1)  # [..., blocks, 32]
    return (_half(blocks[..., :2]) * (codes.float() - 8)).flatten(-2)


def encode_q5_0(x: torch.Tensor) -> torch.Tensor:
    """Rows [..., I] as bytes, uint8 [..., I / 32·22]: scale, then the fifth bits of 32 codes, then
    their lower four as q4_0 has them."""
    scale, codes = _one_sided(blocks_of(x, 32, "q5_0"), 16)  # [..., blocks, 1 and 32]
    low = codes[..., :16] & 15 | codes[..., 16:] << 4  # [..., blocks, 16]
    return torch.cat([_half_bytes(scale), pack(codes >> 4, 1), low], -1).flatten(-2)


def decode_q5_0(packed: torch.Tensor) -> torch.Tensor:
    """The numbers, fp32 [..., I]."""
    blocks = _blocks(packed, "q5_0")  # [..., blocks, 22]
    low = torch.cat([blocks[..., 6:] & 15, blocks[..., 6:] >> 4], -1)  # [..., blocks, 32]
    codes = low | unpack(blocks[..., 2:6], 1, 32) << 4
    return (_half(blocks[..., :2]) * (codes.float() - 16)).flatten(-2)


def _one_sided(blocks: torch.Tensor, half: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale of each block, [..., blocks, 1], that gives its largest number level −half, and codes
    from 0 to 2·half − 1, uint8 [..., blocks, 32]."""
    first = blocks.abs().argmax(-1, keepdim=True)  # of equal magnitudes the first
    scale = blocks.gather(-1, first) / -half  # [..., blocks, 1]
    codes = (blocks * _inverse(scale) + (half + 0.5)).to(torch.int8)
    return scale, codes.clamp(0, 2 * half - 1).to(torch.uint8)


def _blocks(packed: torch.Tensor, name: str) -> torch.Tensor:
    """Bytes cut into blocks, [..., blocks, bytes of a block]."""
    size = BLOCK_FORMATS[name].block_bytes
    check_bytes(packed, size, name)
    return packed.contiguous().view(*packed.shape[:-1], -1, size)  # [..., blocks, size]


def _inverse(scale: torch.Tensor) -> torch.Tensor:
    """1 / scale, 0 where it is 0: a block of zeros."""
    return torch.where(scale == 0, 0.0, 1 / scale)


def _round_away(x: torch.Tensor) -> torch.Tensor:
    """To nearest, away from zero in the middle, as C's roundf."""
    whole = x.abs().floor()
    return torch.sign(x) * (whole + (2 * (x.abs() - whole)).floor())


def _half_bytes(scale: torch.Tensor) -> torch.Tensor:
    """fp32 [..., 1] as the two bytes of an fp16. ValueError where that is too narrow."""
    half = scale.half()
    if not half.isfinite().all():
        raise ValueError(
            f"the scale of a block, {float(scale.abs().max()):g}, does not fit into fp16, as GGUF"
            " has it."
        )
    return half.view(torch.uint8)  # [..., 2]


def _half(two: torch.Tensor) -> torch.Tensor:
    """Two bytes [..., 2] as fp32 [..., 1]."""
    return two.contiguous().view(torch.float16).float()


@dataclass(frozen=True)
class Codec:
    """How rows become bytes, and bytes rows."""

    encode: Callable[[torch.Tensor], torch.Tensor]
    decode: Callable[[torch.Tensor], torch.Tensor]


CODECS = {
    "q8_0": Codec(encode_q8_0, decode_q8_0),
    "q5_0": Codec(encode_q5_0, decode_q5_0),
    "q4_0": Codec(encode_q4_0, decode_q4_0),
    "q4_k": Codec(q4_k.encode_q4_k, q4_k.decode_q4_k),
    "q6_k": Codec(q6_k.encode_q6_k, q6_k.decode_q6_k),
}
