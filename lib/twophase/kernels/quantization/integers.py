"""Integer grids: absmax and affine, with a scale for a tensor, a channel, or a group of inputs.

- absmax (symmetric): w ≈ s·q with q from −(2**(b−1) − 1) to 2**(b−1) − 1, so that the largest
  magnitude of a group becomes the last level. Stored as q + 2**(b−1).
- affine: w ≈ s·(q − z) with q and z from 0 to 2**b − 1: the group from its least to its largest
  number, 0 always among them, so that 0 stays 0 exactly.

A width that groups do not divide ends in a shorter group. Codes are rounded with the scale as it
is *stored*: with the exact one they would not be the nearest (in fp16, off by up to 1 in 2048).
(Jacob et al. 2018, arXiv 1712.05877, section 2.1; groups: Dettmers and Zettlemoyer 2023, arXiv
2212.09720, section 2.)
"""

from dataclasses import dataclass

import torch

from twophase.kernels.quantization.numbers import check_numbers
from twophase.kernels.quantization.packing import pack, unpack
from twophase.theory.quantization import n_groups

SCALE_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class IntegerFormat:
    """Bits of a code, what shares a scale, and which grid.

    `group`: so many inputs of a row; "channel", a whole row; "tensor", all of it. Raises ValueError
    for what is no such format.
    """

    bits: int = 4
    group: int | str = 64
    affine: bool = False
    scale_dtype: torch.dtype = torch.float16

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 2 <= self.bits <= 8:
            raise ValueError(f"an integer format has 2 to 8 bits; got {self.bits!r}.")
        whole = type(self.group) is int and self.group >= 1
        if not whole and self.group not in ("channel", "tensor"):
            raise ValueError(
                f'a group is so many inputs, "channel" or "tensor"; got {self.group!r}.'
            )
        if self.scale_dtype not in SCALE_DTYPES:
            raise ValueError(f"scales are fp32, fp16 or bf16; got {self.scale_dtype}.")

    def __str__(self) -> str:
        """As tables call it."""
        who = (
            f"groups of {self.group}" if isinstance(self.group, int) else f"a scale a {self.group}"
        )
        return f"int{self.bits}, {who}{', affine' * self.affine}"

    @property
    def half(self) -> int:
        """What absmax adds to a level to store it."""
        return int(2 ** (self.bits - 1))

    @property
    def last_code(self) -> int:
        """The largest code."""
        return int(2**self.bits) - 1

    def group_of(self, inputs: int) -> int:
        """How many inputs of a row share a scale."""
        return min(self.group, inputs) if isinstance(self.group, int) else inputs

    def grid(self, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Scales [O, groups] in their dtype, as stored, and zero points (uint8, None without) of
        w [O, I]; per tensor [1, 1].

        A group of zeros has scale 1. So has one whose scale would be 0 in its dtype: its numbers
        become 0. Raises ValueError for a scale that its dtype cannot hold.
        """
        wide = check_numbers(w, 2)
        groups = self._groups(wide)
        low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)  # [O, groups]
        if self.group == "tensor":
            low, high = low.amin().view(1, 1), high.amax().view(1, 1)  # [1, 1]
        span = high - low if self.affine else torch.maximum(high, -low)
        scales = (span / (self.last_code if self.affine else self.half - 1)).to(self.scale_dtype)
        if not scales.isfinite().all():
            raise ValueError(
                f"the scale of a group up to {float(span.max()):g} does not fit into"
                f" {str(self.scale_dtype).removeprefix('torch.')}: take scale_dtype=torch.float32."
            )
        scales = torch.where(scales == 0, torch.ones_like(scales), scales)
        if not self.affine:
            return scales, None
        return scales, (-low / scales.float()).round().clamp(0, self.last_code).to(torch.uint8)

    def round(
        self, w: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None
    ) -> torch.Tensor:
        """The nearest codes, uint8 of w's shape; scales and zeros broadcast against w."""
        offset = self.half if zeros is None else zeros.float()
        least = 0 if self.affine else 1  # absmax does not use the level −2**(b−1)
        codes = (w.float() / scales.float()).round() + offset
        return codes.clamp(least, self.last_code).to(torch.uint8)

    def nearest(self, w: torch.Tensor) -> torch.Tensor:
        """The numbers that codes of w [O, I] would stand for, without packing them, fp32. Raises
        ValueError as `grid`."""
        scales, zeros = self.grid(w)
        scales = self.spread(scales, w.shape[1])
        zeros = None if zeros is None else self.spread(zeros, w.shape[1])
        offset = self.half if zeros is None else zeros.float()
        return (self.round(w, scales, zeros).float() - offset) * scales.float()

    def spread(self, per_group: torch.Tensor, inputs: int) -> torch.Tensor:
        """What each group has, [O or 1, groups], for each of its inputs: [O or 1, inputs]."""
        if self.group == "tensor":
            return per_group.expand(1, inputs)  # [1, inputs]
        return per_group.repeat_interleave(self.group_of(inputs), dim=1)[:, :inputs]

    def _groups(self, w: torch.Tensor) -> torch.Tensor:
        """w [O, I] as [O, groups, size]; zeros fill the last group and change no grid."""
        size = self.group_of(w.shape[1])
        padded = torch.nn.functional.pad(w, (0, -w.shape[1] % size))
        return padded.view(len(w), -1, size)  # [O, groups, size]


@dataclass(frozen=True)
class Integers:
    """A matrix [O, I] as packed codes with scales and zero points.

    codes: uint8 [O, ceil(I·bits / 8)]; scales [O, groups] (per tensor [1, 1]); zeros: packed as
    codes are, uint8 [O, ceil(groups·bits / 8)], or None. Raises ValueError if they do not fit each
    other: an absmax format with zero points, say, or an affine one without.
    """

    format: IntegerFormat
    inputs: int
    codes: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor | None = None

    def __post_init__(self) -> None:
        f = self.format
        if f.affine != (self.zeros is not None):
            raise ValueError(
                "an affine grid has zero points and an absmax grid has none: this is a mixture,"
                " which would shift every weight."
            )
        rows = 1 if f.group == "tensor" else len(self.codes)
        expected = rows, n_groups(self.inputs, f.group_of(self.inputs))
        if tuple(self.scales.shape) != expected or self.scales.dtype != f.scale_dtype:
            raise ValueError(
                f"{self.inputs} inputs in groups of {f.group} have scales {list(expected)} in"
                f" {f.scale_dtype}; got {list(self.scales.shape)} in {self.scales.dtype}."
            )

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and zero points."""
        return (
            self.codes.nbytes
            + self.scales.nbytes
            + (0 if self.zeros is None else self.zeros.nbytes)
        )

    def unpacked(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Codes uint8 [O, I], and zero points uint8 [O, groups] (or None)."""
        zeros = self.zeros
        if zeros is not None:
            zeros = unpack(zeros, self.format.bits, self.scales.shape[1])
        return unpack(self.codes, self.format.bits, self.inputs), zeros

    def decode(self) -> torch.Tensor:
        """The weights that the codes stand for, fp32 [O, I]."""
        codes, zeros = self.unpacked()
        f, offset = self.format, torch.tensor(float(self.format.half), device="cpu")
        if zeros is not None:
            offset = f.spread(zeros, self.inputs).float()
        return (codes.float() - offset) * f.spread(self.scales, self.inputs).float()


def encode(w: torch.Tensor, how: IntegerFormat) -> Integers:
    """Round a matrix [O, I] to nearest. Raises ValueError as `IntegerFormat.grid`."""
    scales, zeros = how.grid(w)
    inputs = w.shape[1]
    codes = how.round(
        w, how.spread(scales, inputs), None if zeros is None else how.spread(zeros, inputs)
    )
    return from_codes(codes, how, scales, zeros)


def from_codes(
    codes: torch.Tensor, how: IntegerFormat, scales: torch.Tensor, zeros: torch.Tensor | None
) -> Integers:
    """Pack codes [O, I] that were chosen in some other way, and zero points [O, groups]."""
    packed = None if zeros is None else pack(zeros, how.bits)
    return Integers(how, codes.shape[1], pack(codes, how.bits), scales, packed)
