"""Matrices with zeros, stored without them: what a file saves. Both come back bit for bit.

No product here runs on these forms. A processor that reads them has to unpack them first, unless
its matrix units know the form: those of NVIDIA's cards since Ampere know 2:4.
"""

from dataclasses import dataclass

import torch

BITS = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8)


@dataclass(frozen=True)
class Bitmap:
    """Any zeros: a bit for each weight that says whether it is there, and those that are."""

    shape: tuple[int, int]
    bits: torch.Tensor  # uint8 [⌈O·I / 8⌉]
    values: torch.Tensor  # [weights that are not zero]

    @classmethod
    def of(cls, weight: torch.Tensor) -> "Bitmap":
        """A matrix [O, I], without what is zero in it."""
        there = weight != 0
        O, I = weight.shape
        return cls((O, I), _packed(there.flatten()), weight[there])

    def dense(self) -> torch.Tensor:
        """The matrix again, [O, I]."""
        O, I = self.shape
        there = _unpacked(self.bits, O * I).view(O, I)
        weight = self.values.new_zeros(O, I)
        weight[there] = self.values
        return weight

    @property
    def nbytes(self) -> int:
        """Bytes of bits and values."""
        return self.bits.nbytes + self.values.nbytes


@dataclass(frozen=True)
class TwoFour:
    """Two of each four: the two values, and for each of them the two bits that say its place."""

    shape: tuple[int, int]
    places: torch.Tensor  # uint8 [⌈O·I / 8⌉]: four bits for each four weights
    values: torch.Tensor  # [O, I / 2]

    @classmethod
    def of(cls, weight: torch.Tensor) -> "TwoFour":
        """A matrix [O, I] with two zeros at least in each four. ValueError for another."""
        O, I = weight.shape
        if I % 4 or bool(((weight.view(O, I // 4, 4) != 0).sum(-1) > 2).any()):
            raise ValueError(
                "some four neighbors in a row have more than two weights: mask the matrix 2:4"
                " first."
            )
        fours = weight.view(O, I // 4, 4)
        order = (fours != 0).int().sort(dim=-1, descending=True, stable=True).indices
        places = order[..., :2].sort(dim=-1).values  # [O, I/4, 2]
        bits = torch.stack([places & 1, places >> 1], dim=-1).bool()  # [O, I/4, 2, 2]
        values = fours.gather(-1, places).reshape(O, I // 2)  # [O, I/2]
        return cls((O, I), _packed(bits.flatten()), values)

    def dense(self) -> torch.Tensor:
        """The matrix again, [O, I]."""
        O, I = self.shape
        bits = _unpacked(self.places, O * I).view(O, I // 4, 2, 2).long()
        places = bits[..., 0] + 2 * bits[..., 1]  # [O, I/4, 2]
        fours = self.values.new_zeros(O, I // 4, 4)
        fours.scatter_(-1, places, self.values.view(O, I // 4, 2))
        return fours.view(O, I)  # [O, I]

    @property
    def nbytes(self) -> int:
        """Bytes of places and values."""
        return self.places.nbytes + self.values.nbytes


def _packed(bits: torch.Tensor) -> torch.Tensor:
    """bool [n] → uint8 [⌈n / 8⌉], the first bit lowest."""
    padded = torch.nn.functional.pad(bits.to(torch.uint8), (0, -len(bits) % 8))
    return (padded.view(-1, 8) * BITS.to(bits.device)).sum(1).to(torch.uint8)  # [⌈n / 8⌉]


def _unpacked(packed: torch.Tensor, n: int) -> torch.Tensor:
    """uint8 [⌈n / 8⌉] → bool [n]."""
    return ((packed[:, None] & BITS.to(packed.device)) != 0).flatten()[:n]
