"""What carries bytes from chip to chip: published rates, and the time of one hop.

`sent_bytes_per_s` is what one chip can send, over all its wires of one axis. A vendor's figure for
"both directions" of an NVLink port is therefore halved; on an axis of a TPU, where a chip has a
neighbor on either side, the two outgoing wires together carry as much as one wire both ways.
A hop is the least that a message takes to the next chip, however short. Calls of a library cost
more before the first byte moves (NCCL's own model adds 6.6 microseconds to each): not counted.
"""

from dataclasses import dataclass
from math import inf, prod

from twophase.theory import collectives
from twophase.theory._domain import Number

_SCALING_BOOK = "Austin et al., How to Scale Your Model, jax-ml.github.io/scaling-book"
_NCCL = "hop: hwLat of NCCL's tuning model, ring, protocol LL, github.com/NVIDIA/nccl"


@dataclass(frozen=True)
class Link:
    """One kind of wire. `wraps_at`: an axis whose length is a multiple of it is a closed ring, any
    other an open line; None: a switch, where every chip reaches every other. `usual_chips`: how
    many it joins in the machines that are mostly sold."""

    name: str
    sent_bytes_per_s: float
    hop_s: float
    n_axes: int = 1
    wraps_at: int | None = None
    usual_chips: int | None = None
    source: str = ""
    date: str = ""

    @property
    def switched(self) -> bool:
        """Whether every chip reaches every other."""
        return self.wraps_at is None

    def closed(self, side: int) -> bool:
        """Whether an axis of so many chips is a closed ring, used both ways."""
        return self.wraps_at is not None and side % self.wraps_at == 0

    def hops(self, sides: tuple[int, ...]) -> int:
        """Hops of an all-gather over these axes, the longest way that a piece goes."""
        return sum(int(collectives.ring_hops(side, self.closed(side))) for side in sides)

    def mesh(self, n_chips: int) -> tuple[int, ...]:
        """The squarest mesh of so many chips on all axes: 4 × 4 for 16 chips on two, 2 × 4 for 8.
        Behind a switch there is one axis. ValueError for what is no whole number of chips."""
        if isinstance(n_chips, bool) or n_chips < 1 or n_chips % 1:
            raise ValueError(f"A mesh has a whole number of chips, 1 or more, not {n_chips}.")
        sides: list[int] = []
        for axes in range(self.n_axes, 1, -1):
            root = round(n_chips ** (1 / axes) + 1)
            side = max(s for s in range(1, root + 1) if n_chips % s == 0 and s**axes <= n_chips)
            sides, n_chips = [*sides, side], n_chips // side
        return tuple(side for side in (*sides, n_chips) if side > 1) or (1,)

    def time_s(self, kind: str, array_bytes: Number, sides: tuple[int, ...]) -> float:
        """Seconds of a collective over axes of so many chips. `array_bytes`: of the whole array
        ("all_gather", "reduce_scatter", "all_reduce"), of what one chip holds ("all_to_all"), of
        the message ("send"). One chip alone, or nothing to send, takes no time; a side of one chip
        has no wires.

        ValueError for an unknown kind, bytes that are no number or below zero, and for more axes
        than the link has.
        """
        sides = tuple(side for side in sides if side != 1)
        if len(sides) > self.n_axes:
            raise ValueError(
                f"{self.name} has {self.n_axes} axes, but the mesh {sides} has {len(sides)}."
            )
        n = prod(sides)
        if kind not in (*_GATHERING, "all_reduce", "all_to_all", "send"):
            raise ValueError(f"Unknown collective {kind!r}.")
        if not 0 <= array_bytes < inf:
            raise ValueError(f"array_bytes must be zero or more and finite, not {array_bytes}.")
        if n == 1 or not array_bytes:
            return 0.0
        if kind == "send":
            return float(self.hop_s + array_bytes / (self.sent_bytes_per_s / self._wires))
        if kind == "all_to_all":
            return self._all_to_all_s(array_bytes, sides)
        open_line = not self.switched and not all(map(self.closed, sides))
        given = (array_bytes, n, self.sent_bytes_per_s, len(sides), self.hops(sides), self.hop_s)
        gather_s = collectives.all_reduce_s if kind == "all_reduce" else collectives.all_gather_s
        return float(gather_s(*given, not open_line))

    def _all_to_all_s(self, held_bytes: Number, sides: tuple[int, ...]) -> float:
        """Every piece goes along one axis after the other, so that each axis carries all that its
        chips hold, at the same time as the others: the one that takes longest is the limit."""
        axes = (
            collectives.all_to_all_s(
                held_bytes, side, self.sent_bytes_per_s, 0, 0, self.closed(side), self.switched
            )
            for side in sides
        )
        return float(self.hops(sides) * self.hop_s + max(axes))

    @property
    def _wires(self) -> int:
        """Wires of one axis: a message to one neighbor has one of two, or a switch's port."""
        return 1 if self.switched else 2


_GATHERING = ("all_gather", "reduce_scatter")

LINKS = (
    Link(
        name="TPU v5e ICI",
        sent_bytes_per_s=9e10,
        hop_s=1e-6,
        n_axes=2,
        wraps_at=16,
        source=f"rate, wraparound at 16 chips, hop of about a microsecond: {_SCALING_BOOK}",
        date="2025-02",
    ),
    Link(
        name="TPU v5p ICI",
        sent_bytes_per_s=1.8e11,
        hop_s=1e-6,
        n_axes=3,
        wraps_at=4,
        source=f"rate, wraparound at multiples of 4, hop of about a microsecond: {_SCALING_BOOK}",
        date="2025-02",
    ),
    Link(
        name="NVLink 3",
        sent_bytes_per_s=300e9,
        hop_s=0.6e-6,
        usual_chips=8,
        source=f"600 GB/s of both directions: NVIDIA A100 data sheet; {_NCCL}",
        date="2021-06",
    ),
    Link(
        name="NVLink 4",
        sent_bytes_per_s=450e9,
        hop_s=0.6e-6,
        usual_chips=8,
        source=f"900 GB/s of both directions: NVIDIA H100 data sheet; {_NCCL}",
        date="2023-07",
    ),
    Link(
        name="NVLink 5",
        sent_bytes_per_s=900e9,
        hop_s=0.6e-6,
        usual_chips=8,
        source=f"1.8 TB/s of both directions: NVIDIA DGX B200 data sheet; {_NCCL}",
        date="2024-10",
    ),
    Link(
        name="PCIe 4",
        sent_bytes_per_s=32e9,
        hop_s=1e-6,
        usual_chips=8,
        source=f"64 GB/s of both directions, 16 lanes: NVIDIA L40S data sheet; {_NCCL}",
        date="2023-08",
    ),
    Link(
        name="PCIe 5",
        sent_bytes_per_s=64e9,
        hop_s=1e-6,
        usual_chips=8,
        source=f"128 GB/s of both directions, 16 lanes: PCI-SIG, base specification 5.0; {_NCCL}",
        date="2019-05",
    ),
    Link(
        name="InfiniBand NDR",
        sent_bytes_per_s=50e9,
        hop_s=2.7e-6,
        source=f"400 Gb/s, one port for each GPU: NVIDIA DGX H100 data sheet; {_NCCL}",
        date="2023-07",
    ),
    Link(
        name="Ethernet 100G",
        sent_bytes_per_s=12.5e9,
        hop_s=25e-6,
        source="100 Gb/s: IEEE 802.3; hop: an assumption, for TCP through a kernel",
        date="2010-06",
    ),
)
