"""Rotary position embedding, RoPE (Su et al., 2021, arXiv 2104.09864, section 3.2).

Each head vector is read as H/2 points in the plane. At position p, point i is turned by the angle p·theta^(−2i/H). A
dot product of two turned vectors depends on the difference of their positions only: turning q by a and k by b changes
their product exactly as turning q by a − b alone. So a key is turned once, when it enters the cache, and never again.

Which two numbers make a point is a convention, and a checkpoint works with its own only:

- `half` (Llama and nearly all Hugging Face checkpoints): number i goes with number i + H/2;
- `interleaved` (the paper, GPT-J, Meta's original Llama files): number 2i goes with number 2i + 1.
"""

import math
from dataclasses import dataclass

import torch

KINDS = ("linear", "llama3", "yarn")


@dataclass(frozen=True)
class RopeScaling:
    """How a model that was trained on `original_context` positions has its frequencies changed to read more."""

    kind: str  # "linear", "llama3" or "yarn"
    factor: float
    original_context: int | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True

    def frequencies(self, plain: torch.Tensor, theta: float) -> torch.Tensor:
        """The frequencies [H/2] in place of the plain ones, radians per position."""
        if self.kind == "linear":
            return plain / self.factor
        context = float(self.original_context or 0)
        if self.kind == "llama3":
            turns = context * plain / (2 * math.pi)  # [H/2]
            keep = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        else:
            pairs = len(plain)
            low, high = (
                pairs * math.log(context / (2 * math.pi * beta)) / math.log(theta)
                for beta in (self.beta_fast, self.beta_slow)
            )
            if self.truncate:
                low, high = math.floor(low), math.ceil(high)
            low, high = max(low, 0), min(high, 2 * pairs - 1)
            high = high + 0.001 if low == high else high
            keep = 1 - (torch.arange(pairs, dtype=plain.dtype, device=plain.device) - low) / (high - low)
        keep = keep.clamp(0, 1)
        return keep * plain + (1 - keep) * plain / self.factor

    @property
    def magnitude(self) -> float:
        """What cosines and sines are multiplied with: 1 but for YaRN."""
        if self.kind != "yarn":
            return 1.0
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return yarn_mscale(self.factor, self.mscale) / yarn_mscale(self.factor, self.mscale_all_dim)
        return yarn_mscale(self.factor)


def yarn_mscale(factor: float, mscale: float = 1.0) -> float:
    """`0.1·mscale·ln(factor) + 1`, YaRN's correction of attention's temperature (eq. 22); 1 if nothing is stretched."""
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


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
    frequency = theta ** (-pair / H)  # [H/2], radians per position
    if scaling is not None:
        frequency = scaling.frequencies(frequency, theta)
    angles = positions.double()[..., None] * frequency  # [..., T, H/2]
    magnitude = 1.0 if scaling is None else scaling.magnitude
    return (angles.cos() * magnitude).float(), (angles.sin() * magnitude).float()


def apply_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, pairing: str = "half") -> torch.Tensor:
    """Turn the heads of x by the tables of `rope_tables`.

    x: [B, T, N, H] (queries or keys); cos and sin: [T, H/2], or [B, T, H/2] where sequences stand at different
    positions. Turned in fp32, returned as [B, T, N, H] in the dtype of x. `pairing`: "half" or "interleaved".
    """
    turned = 2 * cos.shape[-1]
    if turned < x.shape[-1]:
        head = apply_rope(x[..., :turned], cos, sin, pairing)  # [B, T, N, turned]
        return torch.cat([head, x[..., turned:]], dim=-1)  # [B, T, N, H]
    cos, sin = cos[..., None, :], sin[..., None, :]  # [..., T, 1, H/2]: the same for every head
    if pairing == "half":
        a, b = x.chunk(2, dim=-1)  # [B, T, N, H/2] each
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)  # [B, T, N, H]
    if pairing == "interleaved":
        a, b = x[..., 0::2], x[..., 1::2]  # [B, T, N, H/2] each
        return torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2).to(x.dtype)  # [B, T, N, H]
    raise ValueError(f'RoPE pairs numbers in one of two ways, "half" or "interleaved"; got "{pairing}".')
