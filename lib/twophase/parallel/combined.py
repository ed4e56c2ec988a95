"""Tensor parallelism inside, another layout outside: what people run where wires inside a machine
are quick and those between machines are slow. Ranks form a mesh of X by Y: Y of them, neighbors in
number, are a tensor-parallel group, and X groups are stages of a pipeline, or replicas.
"""

from __future__ import annotations

from math import isqrt

import torch

from twophase.kernels.collectives import Comm
from twophase.parallel.dealt import Dealt
from twophase.parallel.pipeline import Pipeline
from twophase.parallel.tensor import tensor_parallel
from twophase.parallel.weights import Source


def tensor_replicas(
    source: Source,
    comm: Comm,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    Y: int | None = None,
) -> Dealt:
    """Replicas that are tensor-parallel groups of Y ranks (`group_size`, if not said): sequences
    are dealt out to the groups. ValueError as in `tensor_parallel`."""
    inside, across = groups(comm, Y)
    return Dealt(tensor_parallel(source, inside, dtype, device), across)


def tensor_pipeline(
    source: Source,
    comm: Comm,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    Y: int | None = None,
) -> Pipeline:
    """A pipeline whose stages are tensor-parallel groups of Y ranks (`group_size`, if not said).
    Each rank of a group hands the whole stream to its fellow in the next. ValueError as in
    `tensor_parallel` and `pipeline`."""
    inside, across = groups(comm, Y)
    return Pipeline(source, across, dtype, device, inside=inside)


def groups(comm: Comm, Y: int | None = None) -> tuple[Comm, Comm]:
    """This rank's group of Y neighbors, and the ranks that have its place in the other groups.
    ValueError unless Y divides the ranks."""
    Y = group_size(comm.size) if Y is None else Y
    if not 1 <= Y <= comm.size or comm.size % Y:
        raise ValueError(f"{comm.size} ranks form no groups of {Y}: take a divisor.")
    X = comm.size // Y
    rows = [[x * Y + y for y in range(Y)] for x in range(X)]
    columns = [[x * Y + y for x in range(X)] for y in range(Y)]
    return comm.split(rows, "Y"), comm.split(columns, "X")


def group_size(n_ranks: int) -> int:
    """The largest divisor of n_ranks that is at most its root: 2 of 4, 2 of 8, 4 of 16; of a prime
    number 1, and the layout outside is all there is."""
    return max(Y for Y in range(1, isqrt(n_ranks) + 1) if n_ranks % Y == 0)
