"""Codes of a few bits side by side in bytes.

A row is a stream of bits, the lowest bit of the first code first: code j of `bits` bits begins at
bit j·bits, and bit i lies in byte i // 8. So two 4-bit codes share a byte, the first in the lower
half; eight 3-bit codes fill three bytes, and some of them lie across two. Each row begins with a
byte of its own, and what is left of its last byte is zero.
"""

import torch

from twophase.theory.quantization import packed_bytes


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes [..., n], whole numbers from 0 to 2**bits − 1, as uint8 [..., ceil(n·bits / 8)].

    Raises ValueError for bits outside 1 to 8, for floats, and for a code that does not fit: cut
    off, it would be another code.
    """
    check_bits(bits)
    if codes.is_floating_point() or codes.dtype == torch.bool or codes.ndim < 1:
        raise ValueError(f"codes are whole numbers [..., n]; got {codes.dtype} {codes.ndim}-d.")
    if codes.numel() and (int(codes.min()) < 0 or int(codes.max()) >= 1 << bits):
        raise ValueError(
            f"a code of {bits} bits lies between 0 and {(1 << bits) - 1}; these go from"
            f" {int(codes.min())} to {int(codes.max())}."
        )
    if bits == 8:
        return codes.to(torch.uint8)
    places = torch.arange(bits, dtype=torch.uint8, device=codes.device)
    stream = (codes.to(torch.uint8)[..., None] >> places) & 1  # [..., n, bits]
    stream = stream.flatten(-2)  # [..., n·bits]
    short = -stream.shape[-1] % 8
    stream = torch.nn.functional.pad(stream, (0, short))
    octets = stream.view(*stream.shape[:-1], -1, 8)  # [..., bytes, 8]
    eight = torch.arange(8, dtype=torch.uint8, device=codes.device)
    return (octets << eight).sum(-1, dtype=torch.uint8)


def unpack(packed: torch.Tensor, bits: int, n: int) -> torch.Tensor:
    """The first n codes of each row of bytes, uint8 [..., n]; the inverse of `pack`.

    Raises ValueError unless rows are as long as n codes need.
    """
    check_bits(bits)
    if packed.dtype != torch.uint8 or packed.ndim < 1 or packed.shape[-1] != packed_bytes(n, bits):
        raise ValueError(
            f"{n} codes of {bits} bits fill rows of {packed_bytes(n, bits)} bytes (uint8); got"
            f" {packed.dtype} {list(packed.shape)}."
        )
    if bits == 8:
        return packed.clone()
    if 8 % bits == 0:  # the same as below, without a number for each bit: no code has two bytes
        parts = [packed >> first & (1 << bits) - 1 for first in range(0, 8, bits)]
        return torch.stack(parts, -1).flatten(-2)[..., :n]
    eight = torch.arange(8, dtype=torch.uint8, device=packed.device)
    stream = (packed[..., None] >> eight) & 1  # [..., bytes, 8]
    stream = stream.flatten(-2)[..., : n * bits]  # [..., n·bits]
    places = stream.view(*stream.shape[:-1], n, bits)  # [..., n, bits]
    return (places << eight[:bits]).sum(-1, dtype=torch.uint8)


def check_bits(bits: int) -> None:
    """ValueError unless a code of so many bits fits into a byte."""
    if type(bits) is not int or not 1 <= bits <= 8:
        raise ValueError(f"a packed code has 1 to 8 bits; got {bits!r}.")
