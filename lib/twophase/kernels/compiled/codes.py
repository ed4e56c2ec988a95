"""Quantized matrices as loops read them: words of codes, side by side in tiles of rows."""

from dataclasses import dataclass

import numpy as np
import torch

from twophase.kernels.quantization.integers import Integers

TILE = 128  # rows of a tile
STEP_INPUTS = 8  # inputs that a loop takes at a time
CHUNK = 8  # steps of a group at most that are summed by themselves
Array = np.ndarray


@dataclass(frozen=True)
class Packed:
    """A matrix [outputs, inputs] as loops read it: `arrays` are codes, scales, zero points.

    Codes: uint32 [tiles, inputs / 8, 128] of 4 bits, [tiles, inputs / 8, 2, 128] of 8; scales: fp32
    or bf16 bits [tiles, groups, 128]; zero points: uint8 [tiles, groups, 128], empty where all are
    the middle of the codes.
    """

    outputs: int
    inputs: int
    arrays: tuple[Array, Array, Array]

    @property
    def nbytes(self) -> int:
        """Bytes that a product reads."""
        return sum(array.nbytes for array in self.arrays)

    @property
    def groups(self) -> int:
        """Of inputs."""
        return int(self.arrays[1].shape[1])

    def rows(self, first: int, n: int) -> "Packed | None":
        """The n rows from `first` on, in the same memory; None where they begin inside a tile."""
        if first % TILE:
            return None
        tiles = slice(first // TILE, -(-(first + n) // TILE))
        codes, scales, zeros = self.arrays
        return Packed(n, self.inputs, (codes[tiles], scales[tiles], zeros[tiles]))


def n_chunks(inputs: int, groups: int) -> int:
    """Chunks of inputs that are summed by themselves, at most eight steps of one group each: in a
    longer sum fp32 would round what comes late to what was found early."""
    steps = inputs // STEP_INPUTS // groups
    return groups * steps // max(n for n in range(1, CHUNK + 1) if steps % n == 0)


def pack_for_loops(*matrices: Integers) -> Packed:
    """Quantized matrices of the same inputs, one below the other, as loops read them (a copy).

    Raises ValueError for what has no loop: other than 4 or 8 bits, a scale a tensor, groups that
    are no multiple of 8 or do not divide the inputs; for a mixture of formats; and for codes on
    another device than the CPU.
    """
    first = matrices[0]
    f = first.format
    if any(m.codes.device.type != "cpu" for m in matrices):
        raise ValueError(
            f"loops read codes in the CPU's memory; these are on {first.codes.device}: decode()"
            " runs there."
        )
    if any(m.format != f or m.inputs != first.inputs for m in matrices):
        raise ValueError("matrices that one loop reads have one format and the same inputs.")
    size = f.group_of(first.inputs)
    if f.bits not in (4, 8) or f.group == "tensor" or size % STEP_INPUTS or first.inputs % size:
        raise ValueError(
            f"loops read codes of 4 or 8 bits in groups of a multiple of {STEP_INPUTS} that divide"
            f" the inputs; got {f.bits} bits, groups of {f.group}, {first.inputs} inputs."
        )
    unpacked = [m.unpacked() for m in matrices]
    scales = _tiles(torch.cat([_scales(m) for m in matrices]))  # [tiles, groups, 128]
    zeros = torch.empty(0, scales.shape[1], TILE, dtype=torch.uint8, device="cpu")
    if f.affine:
        zeros = _tiles(torch.cat([z for _, z in unpacked if z is not None]))
    bits = scales.dtype == torch.bfloat16
    arrays = (
        _words(torch.cat([codes for codes, _ in unpacked]), f.bits),
        (scales.view(torch.uint16) if bits else scales.float()).numpy(),
        zeros.numpy(),
    )
    return Packed(sum(len(m.codes) for m in matrices), first.inputs, arrays)


def _scales(m: Integers) -> torch.Tensor:
    """The scales [O, groups], 0 where all weights of a group are: loops add Σ code·x and take
    offset·Σ x away, and what rounding leaves between these two no scale may multiply."""
    codes, zeros = m.unpacked()
    offset = torch.tensor(m.format.half, device="cpu") if zeros is None else zeros[..., None]
    groups = codes.view(*m.scales.shape, -1)  # [O, groups, group]
    return m.scales.masked_fill((groups == offset).all(-1), 0)


def _words(codes: torch.Tensor, bits: int) -> Array:
    """Codes uint8 [O, I] as words of four bytes, the first inputs in the lowest; of 4 bits inputs 0
    to 3 in the lower halves of these bytes, 4 to 7 in the upper ones."""
    codes = _tiles(codes)  # [tiles, I, 128]
    tiles, inputs = codes.shape[:2]
    if bits == 4:
        eights = codes.view(
            tiles, inputs // STEP_INPUTS, 2, STEP_INPUTS // 2, TILE
        )  # [tiles, I/8, 2, 4, 128]
        codes = eights[:, :, 0] | eights[:, :, 1] << 4  # [tiles, I/8, 4, 128]
    fours = codes.view(tiles, -1, 4, TILE).transpose(2, 3).contiguous()  # [tiles, words, 128, 4]
    words = fours.numpy().view(np.uint32)[..., 0]  # [tiles, words, 128]
    return words if bits == 4 else words.reshape(tiles, -1, 2, TILE)  # [tiles, I/8, 2, 128]


def _tiles(rows: torch.Tensor) -> torch.Tensor:
    """[O, n] as [tiles, n, 128]; zeros fill the last tile: its scales make them nothing."""
    padded = torch.nn.functional.pad(rows, (0, 0, 0, -len(rows) % TILE))
    return padded.view(-1, TILE, rows.shape[1]).transpose(1, 2).contiguous()  # [tiles, n, 128]
