"""Rotary position embedding, RoPE (Su et al., 2021, arXiv 2104.09864, section 3.2), and how it is
stretched.

Each head vector is read as H/2 points in the plane. At position p, point i is turned by the angle
p·theta^(−2i/H). A dot product of two turned vectors depends on the difference of their positions
only: turning q by a and k by b changes their product exactly as turning q by a − b alone. So a key
is turned once, when it enters the cache, and never again.

Which two numbers make a point is a convention, and a checkpoint works with its own only:

- `half` (Llama and nearly all Hugging Face checkpoints): number i goes with number i + H/2;
- `interleaved` (the paper, GPT-J, Meta's original Llama files): number 2i goes with number 2i + 1.

Some models turn the first numbers of a head only (partial rotary): H is then how many are turned.

**Longer contexts.** The first points turn by a radian per token, the last ones do not get round
once in the whole context of the training. Beyond that context the slow ones show angles that the
model never met, and its scores go wrong. Each `RopeScaling` slows points down so that their angles
stay where they were trained:

- `linear` (Chen et al., 2023, arXiv 2306.15595, "position interpolation"; Gemma 3's global layers)
  divides every frequency by `factor`: position p looks as p/factor did. Simple, but the fast points
  tell neighbors apart, and they now differ by `factor` times less than in training.
- `llama3` (Llama 3.1 and later) therefore looks at how often a point turns within the original
  context. Points that turn more than `high_freq_factor` times have met every angle and are kept;
  those that turn less than `low_freq_factor` times are divided by `factor`; between the two the
  frequency is blended, linearly in the turns.
- `yarn` (Peng et al., 2023, arXiv 2309.00071, sections 3.2 and 3.4; DeepSeek-V2 and V3) does the
  same with limits `beta_fast` and `beta_slow`, but blends linearly in the number i of the point;
  `truncate` rounds both limits outward to whole points. More keys also make the softmax flatter, so
  it sharpens the scores: cosines and sines are multiplied by `0.1·ln(factor) + 1`, which multiplies
  scores by its square.
"""

import math
from dataclasses import dataclass

import torch

from twophase.kernels.span import whole

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
KINDS = ("linear", "llama3", "yarn")


def yarn_mscale(factor: float, mscale: float = 1.0) -> float:
    """`0.1·mscale·ln(factor) + 1`, by which YaRN sharpens attention (section 3.4); 1 if nothing is
    stretched.

    DeepSeek-V2 and V3 put it elsewhere: cosines and sines get the ratio of two of these, for
    `mscale` and `mscale_all_dim`, and all scores, those of the dimensions without RoPE too, the
    square of the second. That square is no part of `rope_tables`: multiply the scale of the
    attention by `yarn_mscale(factor, mscale_all_dim) ** 2`. ValueError for a factor that is not
    positive, or numbers that are not finite.
    """
    if not 0 < factor < math.inf or not math.isfinite(mscale):
        raise ValueError(
            "positions are stretched by a positive factor, and sharpened by a finite mscale; got"
            f" {factor} and {mscale}."
        )
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


@dataclass(frozen=True)
class RopeScaling:
    """How the frequencies of a model trained on `original_context` positions are changed to read
    `factor` times as many.

    Plain data: `RopeScaling(**dataclasses.asdict(scaling)) == scaling`, through JSON too. Fields
    that a kind does not name are ignored. Raises ValueError for an unknown kind and for impossible
    values.
    """

    kind: str  # "linear", "llama3" or "yarn"
    factor: float
    original_context: int | None = None  # positions of the training; llama3 and yarn need it
    low_freq_factor: float = 1.0  # llama3: with fewer turns in that context it is slowed down fully
    high_freq_factor: float = 4.0  # llama3: with more it is not slowed down
    beta_fast: float = 32.0  # yarn: turns above which a point is not slowed down
    beta_slow: float = 1.0  # yarn: below which it is slowed down fully
    # yarn: what cosines and sines are multiplied with; None: computed, from the ratio of the two
    # corrections below if both are given
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True  # yarn: round both limits outward to whole points

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f'unknown RoPE scaling "{self.kind}"; known: {", ".join(KINDS)}.')
        if not 0 < self.factor < math.inf:
            raise ValueError(
                f"a RoPE scaling stretches positions by a positive factor; got {self.factor}."
            )
        context = self.original_context
        if self.kind != "linear" and (
            context is None or not hasattr(context, "__index__") or context < 1
        ):
            raise ValueError(
                f'"{self.kind}" compares frequencies with the context of the training:'
                f" original_context must be at least 1; got {self.original_context}."
            )
        if self.kind == "llama3" and not 0 < self.low_freq_factor < self.high_freq_factor:
            raise ValueError(
                "llama3 needs 0 < low_freq_factor < high_freq_factor; "
                f"got {self.low_freq_factor} and {self.high_freq_factor}."
            )
        if self.kind == "yarn" and not 0 < self.beta_slow <= self.beta_fast:
            raise ValueError(
                f"yarn needs 0 < beta_slow <= beta_fast; got {self.beta_slow} and {self.beta_fast}."
            )
        if self.attention_factor is not None and not 0 < self.attention_factor < math.inf:
            raise ValueError(
                "attention_factor multiplies cosines and must be positive; got"
                f" {self.attention_factor}."
            )

    def frequencies(self, plain: torch.Tensor, theta: float) -> torch.Tensor:
        """What becomes of the plain frequencies theta^(−2i/H), radians per position: [H/2] →
        [H/2]."""
        context = self.original_context
        if self.kind == "linear" or context is None:
            return plain / self.factor
        if self.kind == "llama3":
            kept = self._kept_by_turns(plain, context).clamp(0, 1)  # [H/2]
        else:
            kept = self._kept_by_pair(plain, context, theta).clamp(0, 1)  # [H/2]
        return kept * plain + (1 - kept) * plain / self.factor

    def _kept_by_turns(self, plain: torch.Tensor, context: int) -> torch.Tensor:
        """llama3: 1 where a point keeps its frequency, 0 where it is divided, from its turns in the
        original context."""
        turns = context * plain / (2 * math.pi)  # [H/2]
        return (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)

    def _kept_by_pair(self, plain: torch.Tensor, context: int, theta: float) -> torch.Tensor:
        """yarn: the same, from the number of the point; both limits lie at the points that turn
        beta times."""
        if theta <= 1:
            raise ValueError(
                f"yarn needs frequencies that fall, so a theta above 1; it is {theta}."
            )
        # theta^(−2i/H)·context = 2π·beta, solved for i
        fast, slow = (
            len(plain) * math.log(context / (2 * math.pi * beta)) / math.log(theta)
            for beta in (self.beta_fast, self.beta_slow)
        )
        if self.truncate:
            fast, slow = math.floor(fast), math.ceil(slow)
        # The upper bound is H − 1, not H/2 − 1, in the authors' code and DeepSeek's: checkpoints
        # were trained with it.
        fast, slow = max(fast, 0), min(slow, 2 * len(plain) - 1)
        width = slow - fast or 0.001  # a ramp of no width is a step
        return 1 - (torch.arange(len(plain), dtype=plain.dtype, device=plain.device) - fast) / width

    @property
    def magnitude(self) -> float:
        """What cosines and sines are multiplied with: 1 but for YaRN."""
        if self.kind != "yarn":
            return 1.0
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return yarn_mscale(self.factor, self.mscale) / yarn_mscale(
                self.factor, self.mscale_all_dim
            )
        return yarn_mscale(self.factor)


def rope_tables(
    positions: torch.Tensor, H: int, theta: float = 10_000.0, scaling: RopeScaling | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of the angles, each [..., T, H/2] in fp32, for integer positions [..., T]
    counted from 0.

    Positions are absolute: the first new token after a cache of S keys has position S, not 0.
    Angles are taken in fp64 and then rounded, since fp32 loses a radian's third digit at positions
    beyond 100,000. `scaling`: for contexts longer than those of the training; YaRN also multiplies
    what is returned. Raises ValueError if H is odd or below 2, for a theta that is not positive,
    and for positions that are no tensor of whole numbers.
    """
    if whole("the head width", H, 2) % 2:
        raise ValueError(f"RoPE turns pairs of numbers, so the head width must be even; it is {H}.")
    if not 0 < theta < math.inf:
        raise ValueError(f"frequencies are powers of theta, a positive number; got {theta}.")
    if not isinstance(positions, torch.Tensor) or positions.dtype not in INTEGERS:
        got = getattr(positions, "dtype", type(positions).__name__)
        raise ValueError(f"positions are a tensor of whole numbers [..., T]; got {got}.")
    pair = torch.arange(0, H, 2, dtype=torch.float64, device=positions.device)  # [H/2]
    frequency = theta ** (-pair / H)  # [H/2], radians per position
    if scaling is not None:
        frequency = scaling.frequencies(frequency, theta)
    angles = positions.double()[..., None] * frequency  # [..., T, H/2]
    magnitude = 1.0 if scaling is None else scaling.magnitude
    return (angles.cos() * magnitude).float(), (angles.sin() * magnitude).float()


def apply_rope(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, pairing: str = "half"
) -> torch.Tensor:
    """Turn the heads of x by the tables of `rope_tables`.

    x: [B, T, N, H] (queries or keys); cos and sin: [T, H/2], or [B, T, H/2] where sequences stand
    at different positions. Turned in fp32, returned as [B, T, N, H] in the dtype of x. `pairing`:
    "half" or "interleaved". Narrower tables turn the first `2·cos.shape[-1]` numbers of each head,
    paired among themselves; the rest is left. Raises ValueError for an unknown pairing, if the
    tables are wider than a head, or if they are for other tokens than x.
    """
    tokens, alike = cos.shape[:-1], cos.shape == sin.shape
    if x.ndim != 4 or not alike or tokens not in (x.shape[1:2], x.shape[:2], (1, x.shape[1])):
        raise ValueError(
            "RoPE takes x [B, T, N, H] and tables of [T, H/2] or [B, T, H/2], both alike; got"
            f" {list(x.shape)}, {list(cos.shape)} and {list(sin.shape)}."
        )
    turned, H = 2 * cos.shape[-1], x.shape[-1]
    if turned > H:
        raise ValueError(
            f"these tables turn {turned} numbers, but a head has {H}; make them with that width."
        )
    if turned < H:
        first = apply_rope(x[..., :turned], cos, sin, pairing)
        return torch.cat([first, x[..., turned:]], dim=-1)  # [B, T, N, H]
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)  # [..., T, 1, H/2]: the same for every head
    if pairing == "half":
        a, b = x.chunk(2, dim=-1)  # [B, T, N, H/2] each
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)  # [B, T, N, H]
    if pairing == "interleaved":
        a, b = x[..., 0::2], x[..., 1::2]  # [B, T, N, H/2] each
        pairs = torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1)  # [B, T, N, H/2, 2]
        return pairs.flatten(-2).to(x.dtype)  # [B, T, N, H]
    raise ValueError(
        f'RoPE pairs numbers in one of two ways, "half" or "interleaved"; got "{pairing}".'
    )
