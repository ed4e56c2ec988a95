"""GGUF's q4_k: super-blocks of 256 weights in 144 bytes, 4.5 bits a weight.

Eight blocks of 32, each with a scale and a minimum: w ≈ d·scale·code − dmin·minimum. Scales and
minima have 6 bits each and share two fp16, d and dmin. Twelve bytes hold the sixteen 6-bit numbers:
byte j < 4 has scale j, byte 4 + j minimum j, and their two highest bits are the highest of scale
and minimum 4 + j, whose lower four lie in byte 8 + j.
"""

import torch

from twophase.kernels.quantization.k_search import affine_scales, ordered_sum, quotient
from twophase.kernels.quantization.numbers import blocks_of, check_bytes
from twophase.theory.quantization import BLOCK_FORMATS

SUPER, BLOCKS, SIZE, MOST = 256, 8, 32, 63
BYTES = BLOCK_FORMATS["q4_k"].block_bytes


def encode_q4_k(x: torch.Tensor) -> torch.Tensor:
    """Rows [..., I] as bytes, uint8 [..., I / 256·144], those of ggml's reference."""
    rows = blocks_of(x, SUPER, "q4_k")  # [..., supers, 256]
    blocks = rows.reshape(-1, SIZE)  # [supers·8, 32]
    # through fp64: torch.sqrt of many fp32 at once is not always the nearest
    spread = (ordered_sum(blocks * blocks) / SIZE).double().sqrt().float()
    scales, minima, tried = affine_scales(blocks, spread[:, None] + blocks.abs())
    d, scale_codes = _six_bits(scales.view(-1, BLOCKS))  # [supers, 1], [supers, 8]
    dmin, minimum_codes = _six_bits(minima.view(-1, BLOCKS))
    step = (d.float() * scale_codes).view(-1, 1)  # [supers·8, 1]
    shift = (dmin.float() * minimum_codes).view(-1, 1)
    codes = ((blocks + shift) / torch.where(step == 0, 1.0, step)).round().clamp(0, 15)
    codes = torch.where(step == 0, tried, codes).to(torch.uint8)  # as ggml leaves them
    pairs = codes.view(-1, BLOCKS // 2, 2, SIZE)  # [supers, 4, 2, 32]
    packed = torch.cat(
        [
            d.view(torch.uint8),
            dmin.view(torch.uint8),
            pack_scales(scale_codes.to(torch.uint8), minimum_codes.to(torch.uint8)),
            (pairs[:, :, 0] | pairs[:, :, 1] << 4).flatten(1),
        ],
        dim=1,
    )  # [supers, 144]
    return packed.view(*rows.shape[:-2], -1)  # [..., supers·144]


def decode_q4_k(packed: torch.Tensor) -> torch.Tensor:
    """The numbers, fp32 [..., I]."""
    check_bytes(packed, BYTES, "q4_k")
    blocks = packed.reshape(-1, BYTES)  # [supers, 144]
    d, dmin = (blocks[:, i : i + 2].contiguous().view(torch.float16).float() for i in (0, 2))
    scales, minima = unpack_scales(blocks[:, 4:16])
    bytes_ = blocks[:, 16:].view(-1, BLOCKS // 2, 1, SIZE)  # [supers, 4, 1, 32]
    codes = torch.cat([bytes_ & 15, bytes_ >> 4], 2).view(-1, BLOCKS, SIZE)  # [supers, 8, 32]
    step, shift = (d * scales.float())[..., None], (dmin * minima.float())[..., None]
    return (step * codes.float() - shift).view(*packed.shape[:-1], -1)  # [..., I]


def pack_scales(scales: torch.Tensor, minima: torch.Tensor) -> torch.Tensor:
    """Two times eight 6-bit codes, uint8 [supers, 8], as 12 bytes [supers, 12]."""
    lower = [part[:, :4] | part[:, 4:] >> 4 << 6 for part in (scales, minima)]
    return torch.cat([*lower, scales[:, 4:] & 15 | (minima[:, 4:] & 15) << 4], 1)


def unpack_scales(packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The inverse of `pack_scales`."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = torch.cat([first & 63, third & 15 | first >> 6 << 4], 1)
    minima = torch.cat([second & 63, third >> 4 | second >> 6 << 4], 1)
    return scales, minima


def _six_bits(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Positive numbers [supers, 8] as an fp16 step [supers, 1] and 6-bit multiples of it. Rounded
    with the step as it is before fp16, as ggml does."""
    largest = values.amax(1, keepdim=True).clamp(min=0) + 0.0  # [supers, 1], no −0
    inverse = torch.where(largest > 0, quotient(MOST, largest), 0.0)
    return checked_half(largest / MOST), (inverse * values).round().clamp(0, MOST)


def checked_half(step: torch.Tensor) -> torch.Tensor:
    """fp32 as fp16. ValueError where that is too narrow."""
    half = step.half()
    if not half.isfinite().all():
        raise ValueError(
            f"the scale of a super-block, {float(step.abs().max()):g}, does not fit into fp16, as"
            " GGUF has it."
        )
    return half
