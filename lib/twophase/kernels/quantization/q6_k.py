"""GGUF's q6_k: super-blocks of 256 weights in 210 bytes, 6.5625 bits a weight.

Sixteen blocks of 16, each with an int8 scale; an fp16 scale for all of them: w ≈ d·scale·(code −
32). Of a half of the super-block, 128 codes, byte l of 64 holds the lower four bits of codes l and
l + 64, byte l of 32 the upper two of codes l, l + 32, l + 64 and l + 96.
"""

import torch

from twophase.kernels.quantization.k_search import NEGLIGIBLE, quotient, symmetric_scale
from twophase.kernels.quantization.numbers import blocks_of, check_bytes
from twophase.kernels.quantization.q4_k import checked_half
from twophase.theory.quantization import BLOCK_FORMATS

SUPER, BLOCKS, SIZE, HALF = 256, 16, 16, 32
BYTES = BLOCK_FORMATS["q6_k"].block_bytes


def encode_q6_k(x: torch.Tensor) -> torch.Tensor:
    """Rows [..., I] as bytes, uint8 [..., I / 256·210], those of ggml's reference."""
    rows = blocks_of(x, SUPER, "q6_k")  # [..., supers, 256]
    blocks = rows.reshape(-1, SIZE)  # [supers·16, 16]
    found, tried = symmetric_scale(blocks, HALF)
    scales = found.view(-1, BLOCKS)  # [supers, 16]
    extreme = scales.gather(1, scales.abs().argmax(1, keepdim=True))  # [supers, 1]
    empty = extreme.abs() < NEGLIGIBLE
    inverse = torch.where(empty, 0.0, quotient(-128, torch.where(empty, 1.0, extreme)))
    d = checked_half(torch.where(empty, 0.0, quotient(1, torch.where(empty, 1.0, inverse))))
    scale_codes = (inverse * scales).round().clamp(max=127)
    step = (d.float() * scale_codes).view(-1, 1)  # [supers·16, 1]
    levels = (blocks / torch.where(step == 0, 1.0, step)).round().clamp(-HALF, HALF - 1)
    levels = torch.where(step == 0, tried, levels)  # as ggml leaves them
    codes = (levels + HALF).view(-1, SUPER)  # [supers, 256]
    codes = torch.where(empty, 0.0, codes).to(torch.uint8)  # ggml clears such a block
    quarters = codes.view(-1, 2, 4, 32)  # [supers, halves, quarters, 32]
    lower = quarters[:, :, :2] & 15 | (quarters[:, :, 2:] & 15) << 4  # [supers, 2, 2, 32]
    places = torch.tensor([0, 2, 4, 6], dtype=torch.uint8, device=x.device)[:, None]
    upper = (quarters >> 4 << places).sum(2, dtype=torch.uint8)  # [supers, 2, 32]
    packed = torch.cat(
        [
            lower.flatten(1),
            upper.flatten(1),
            scale_codes.to(torch.int8).view(torch.uint8),
            d.view(torch.uint8),
        ],
        dim=1,
    )  # [supers, 210]
    return packed.view(*rows.shape[:-2], -1)  # [..., supers·210]


def decode_q6_k(packed: torch.Tensor) -> torch.Tensor:
    """The numbers, fp32 [..., I]."""
    check_bytes(packed, BYTES, "q6_k")
    blocks = packed.reshape(-1, BYTES)  # [supers, 210]
    lower = blocks[:, :128].view(-1, 2, 2, 32)  # [supers, halves, 2, 32]
    upper = blocks[:, 128:192].view(-1, 2, 1, 32)
    places = torch.tensor([0, 2, 4, 6], dtype=torch.uint8, device=packed.device)[:, None]
    codes = torch.cat([lower & 15, lower >> 4], 2) | (upper >> places & 3) << 4
    levels = codes.view(-1, BLOCKS, SIZE).float() - HALF  # [supers, 16, 16]
    scales = blocks[:, 192:208].contiguous().view(torch.int8).float()
    d = blocks[:, 208:].contiguous().view(torch.float16).float()  # [supers, 1]
    return ((d * scales)[..., None] * levels).view(*packed.shape[:-1], -1)  # [..., I]
