"""Rotary position embedding, RoPE (Su et al., 2021, arXiv 2104.09864, section 3.2).

Each head vector is read as H/2 points in the plane. At position p, point i is turned by the angle p·theta^(−2i/H). A
dot product of two turned vectors depends on the difference of their positions only: turning q by a and k by b changes
their product exactly as turning q by a − b alone. So a key is turned once, when it enters the cache, and never again.

Which two numbers make a point is a convention, and a checkpoint works with its own only:

- `half` (Llama and nearly all Hugging Face checkpoints): number i goes with number i + H/2;
- `interleaved` (the paper, GPT-J, Meta's original Llama files): number 2i goes with number 2i + 1.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class RopeScaling:
    """To come."""

    kind: str


def rope_tables(
    positions: torch.Tensor, H: int, theta: float = 10_000.0, scaling: RopeScaling | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of the angles, each [..., T, H/2] in fp32, for integer positions [..., T] counted from 0.

    Positions are absolute: the first new token after a cache of S keys has position S, not 0. Angles are taken in fp64
    and then rounded, since fp32 loses a radian's third digit at positions beyond 100,000.
    """
    if H % 2:
        raise ValueError(f"RoPE turns pairs of numbers, so the head width must be even; it is {H}.")
    pair = torch.arange(0, H, 2, dtype=torch.float64, device=positions.device)  # [H/2]
    angles = positions.double()[..., None] * theta ** (-pair / H)  # [..., T, H/2]
    return angles.cos().float(), angles.sin().float()


def apply_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, pairing: str = "half") -> torch.Tensor:
    """Turn the heads of x by the tables of `rope_tables`.

    x: [B, T, N, H] (queries or keys); cos and sin: [T, H/2], or [B, T, H/2] where sequences stand at different
    positions. Turned in fp32, returned as [B, T, N, H] in the dtype of x. `pairing`: "half" or "interleaved".
    """
    cos, sin = cos[..., None, :], sin[..., None, :]  # [..., T, 1, H/2]: the same for every head
    if pairing == "half":
        a, b = x.chunk(2, dim=-1)  # [B, T, N, H/2] each
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)  # [B, T, N, H]
    if pairing == "interleaved":
        a, b = x[..., 0::2], x[..., 1::2]  # [B, T, N, H/2] each
        return torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2).to(x.dtype)  # [B, T, N, H]
    raise ValueError(f'RoPE pairs numbers in one of two ways, "half" or "interleaved"; got "{pairing}".')
