"""What ranks say to each other, and the ring algorithms it is made of.

A rank is one of n that run the same function, each with its own part of the data. It has a `Comm`
and nothing else of the others. `simulate` runs all ranks in this process, one at a time, so that
results, and the order in which things happen, are the same every time; `twophase.parallel` runs
them as processes.

The ring (Patarasuk and Yuan, 2009): rank r sends to r + 1 and receives from r − 1, one of n chunks
at a time. In n − 1 steps every chunk has been once round: summed on its way (reduce-scatter), or
copied (all-gather). An all-reduce is the two, one after the other, so that each rank sends
2·(n − 1)/n of the tensor's bytes, however many ranks there are.
"""

from collections.abc import Sequence
from typing import Protocol

import torch

from twophase.kernels.simulated_ranks import CollectiveError, RankError, SimulatedComm, simulate

__all__ = [
    "CollectiveError",
    "Comm",
    "RankError",
    "SimulatedComm",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce_scatter",
    "simulate",
]


class Comm(Protocol):
    """One rank's way to the others. Every rank of the group calls the same collectives in the same
    order. What is handed over is not changed, and what comes back is the rank's own; nothing is
    differentiated."""

    @property
    def rank(self) -> int:
        """This rank's number in the group, from 0."""

    @property
    def size(self) -> int:
        """Ranks in the group, n."""

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of all ranks' x, of the same shape and dtype everywhere: the same bits on every
        rank."""

    def all_gather(
        self, x: torch.Tensor, dim: int = 0, sizes: Sequence[int] | None = None
    ) -> torch.Tensor:
        """All ranks' x in their order, joined along `dim`. They have the same shape; where they
        differ along `dim`, `sizes` says how long each rank's is."""

    def reduce_scatter(self, x: torch.Tensor, dim: int = 0) -> torch.Tensor:
        """This rank's chunk of the sum of all ranks' x: `sum.tensor_split(n, dim)[rank]`, so that
        where n does not divide, the first chunks are longer by one."""

    def all_to_all(self, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """`parts[r]` goes to rank r; what came from each rank, in their order. The parts have one
        dtype and any shapes."""

    def broadcast(self, x: torch.Tensor, root: int) -> torch.Tensor:
        """What rank `root` has; the others give a tensor of its shape and dtype."""

    def send(self, x: torch.Tensor, to: int) -> None:
        """Hand a copy of x to rank `to`; does not wait until it is received."""

    def receive(self, source: int) -> torch.Tensor:
        """The next tensor that rank `source` has sent to this rank; waits for it."""

    def barrier(self) -> None:
        """Wait until all ranks are here."""

    def split(self, groups: Sequence[Sequence[int]], axis: str = "") -> "Comm":
        """The Comm of the group, among these, that this rank stands in: its ranks are numbered in
        the order given. Every rank gives the same groups, and stands in one of them. `axis`: what
        the groups are called in a trace."""


def ring_reduce_scatter(comm: Comm, x: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """`comm.reduce_scatter`, made of n − 1 sends and receives: returns the sum's chunk number
    `rank`. Chunk c starts its round at rank c + 1 and grows by one rank's share at each step."""
    n, rank = comm.size, comm.rank
    chunks = list(x.tensor_split(n, dim))  # n of [..., about x.shape[dim] / n, ...]
    for step in range(1, n):
        comm.send(chunks[(rank - step) % n], (rank + 1) % n)
        arrived = (rank - step - 1) % n
        chunks[arrived] = comm.receive((rank - 1) % n) + chunks[arrived]
    return chunks[rank].clone()


def ring_all_gather(comm: Comm, x: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """`comm.all_gather`, made of n − 1 sends and receives: every chunk is handed on as it came.
    Chunks may differ in length along `dim`."""
    n, rank = comm.size, comm.rank
    chunks = {rank: x}
    for step in range(n - 1):
        comm.send(chunks[(rank - step) % n], (rank + 1) % n)
        chunks[(rank - step - 1) % n] = comm.receive((rank - 1) % n)
    return torch.cat([chunks[r] for r in range(n)], dim)


def ring_all_reduce(comm: Comm, x: torch.Tensor) -> torch.Tensor:
    """`comm.all_reduce`, made of 2·(n − 1) sends and receives, in the shape of x. Every rank has
    the same bits: each chunk was summed once, then copied."""
    own = ring_reduce_scatter(comm, x.reshape(-1))  # [about numbers / n]
    return ring_all_gather(comm, own).view(x.shape)  # [...], as x
