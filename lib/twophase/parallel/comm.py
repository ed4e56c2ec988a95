"""`Comm` between processes: torch.distributed, over gloo on CPUs or NCCL between GPUs.

Tests run gloo and, where there is a GPU, NCCL with one rank; with more it is written against
torch's documentation. Under NCCL every tensor, of sends too, must be on the rank's own GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from twophase.kernels.collectives import CollectiveError
from twophase.kernels.simulated_ranks import own_group

MOST_AXES = 8
DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.bool,
)  # fmt: skip
Result = TypeVar("Result")


class ProcessComm:
    """One process's `Comm`, in the default process group of torch.distributed, or in `group`.

    Sums are made by the backend, in an order of its own, the same bits on every rank. Raises
    CollectiveError where another rank has gone, or does not come within the group's timeout.
    """

    def __init__(
        self,
        group: Any = None,
        ranks: Sequence[int] | None = None,
        began: Callable[[], None] = lambda: None,
    ) -> None:
        """`ranks`: those of the group, as the world numbers them. `began` is called before every
        message."""
        self._group, self._began = group, began
        self._ranks = list(range(dist.get_world_size()) if ranks is None else ranks)
        self._world_rank = dist.get_rank()
        self._sent: list[tuple[Any, torch.Tensor]] = []  # what is under way keeps its memory
        self.rank, self.size = self._ranks.index(self._world_rank), len(self._ranks)
        on_gpu = dist.get_backend(group) == "nccl"
        self.device = torch.device("cuda", torch.cuda.current_device() if on_gpu else 0)
        if not on_gpu:
            self.device = torch.device("cpu")

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of all ranks' x."""
        total = x.clone(memory_format=torch.contiguous_format)
        self._met("all_reduce", lambda: dist.all_reduce(total, group=self._group))
        return total

    def all_gather(
        self, x: torch.Tensor, dim: int = 0, sizes: Sequence[int] | None = None
    ) -> torch.Tensor:
        """All ranks' x, joined along `dim`. Where `sizes` differ, shorter ones are padded on the
        way."""
        rows = [x.shape[dim]] * self.size if sizes is None else list(sizes)
        own = x.transpose(0, dim)  # [rows, ...]
        if rows[self.rank] != len(own) or len(rows) != self.size:
            raise ValueError(
                f"`sizes` says how long each of the {self.size} ranks' tensors is along axis {dim};"
                f" got {rows} on rank {self.rank}, whose tensor has {len(own)}."
            )
        padded = own.new_zeros(max(rows), *own.shape[1:])
        padded[: len(own)] = own
        found = [torch.empty_like(padded) for _ in rows]  # n of [rows, ...]
        self._met("all_gather", lambda: dist.all_gather(found, padded, group=self._group))
        parts = [part[:n] for part, n in zip(found, rows, strict=True)]
        return torch.cat(parts).transpose(0, dim).contiguous()

    def reduce_scatter(self, x: torch.Tensor, dim: int = 0) -> torch.Tensor:
        """This rank's chunk of the sum: each chunk goes straight to its rank, which adds in rank
        order. As many bytes as in the ring, and chunks may differ in length."""
        chunks = x.tensor_split(self.size, dim)
        shape = chunks[self.rank].shape
        came = self._exchanged(
            "reduce_scatter",
            [chunk.reshape(-1) for chunk in chunks],
            [shape.numel()] * self.size,
        )
        total = came[0].clone()
        for part in came[1:]:
            total += part
        return total.view(shape)

    def all_to_all(self, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What came from each rank: first the shapes travel, then the numbers."""
        if len(parts) != self.size or len({part.dtype for part in parts}) != 1:
            raise ValueError(
                f"all_to_all takes a tensor for each of the {self.size} ranks, of one dtype; got"
                f" {len(parts)} of {sorted({str(part.dtype) for part in parts})}."
            )
        headers = torch.stack([_header(part) for part in parts]).to(self.device)  # [n, 2 + axes]
        found = torch.empty_like(headers)
        self._met("all_to_all", lambda: dist.all_to_all_single(found, headers, group=self._group))
        shapes = [_shape(header) for header in found.tolist()]
        flat = [part.reshape(-1) for part in parts]
        came = self._exchanged("all_to_all", flat, [shape.numel() for shape in shapes])
        return [part.view(shape) for part, shape in zip(came, shapes, strict=True)]

    def broadcast(self, x: torch.Tensor, root: int) -> torch.Tensor:
        """What rank `root` has."""
        found = x.clone(memory_format=torch.contiguous_format)
        source = self._ranks[root]
        self._met("broadcast", lambda: dist.broadcast(found, source, group=self._group))
        return found

    def send(self, x: torch.Tensor, to: int) -> None:
        """Hand a copy of x, behind its dtype and shape, to rank `to`."""
        self._sent = [(work, kept) for work, kept in self._sent if not work.is_completed()]
        copy = x.clone(memory_format=torch.contiguous_format)
        for tensor in (_header(x).to(self.device), copy):
            peer = self._ranks[to]

            def start(tensor: torch.Tensor = tensor, peer: int = peer) -> Any:
                return dist.isend(tensor, peer, group=self._group)

            if tensor.numel():
                self._sent.append((self._met("send", start), tensor))

    def receive(self, source: int) -> torch.Tensor:
        """The next tensor from rank `source`."""
        header = _header(torch.empty(0)).to(self.device)
        peer = self._ranks[source]
        self._met("receive", lambda: dist.recv(header, peer, group=self._group))
        numbers = header.tolist()
        x = torch.empty(_shape(numbers), dtype=DTYPES[numbers[0]], device=self.device)
        if x.numel():
            self._met("receive", lambda: dist.recv(x, peer, group=self._group))
        return x

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        self._met("barrier", lambda: dist.barrier(group=self._group))

    def split(self, groups: Sequence[Sequence[int]], axis: str = "") -> ProcessComm:
        """The Comm of this rank's group. Every rank of the whole world must call it."""
        own = own_group(groups, self.rank, self.size)
        mine = None
        for group in groups:  # all ranks make all groups, in the same order
            ranks = [self._ranks[r] for r in group]
            made = self._met("split", partial(dist.new_group, sorted(ranks)))
            if tuple(group) == own:
                mine = ProcessComm(made, ranks, self._began)
        assert mine is not None
        return mine

    def close(self) -> None:
        """Wait until what was sent has gone."""
        for work, _ in self._sent:
            self._met("send", work.wait)
        self._sent = []

    def _exchanged(
        self, op: str, parts: Sequence[torch.Tensor], counts: Sequence[int]
    ) -> list[torch.Tensor]:
        """`parts[r]`, flat, goes to rank r; the `counts[r]` numbers that came from each."""
        given = torch.cat(list(parts)) if len(parts) > 1 else parts[0].contiguous()
        found = given.new_empty(sum(counts))
        lengths = [len(part) for part in parts]
        self._met(
            op,
            lambda: dist.all_to_all_single(found, given, list(counts), lengths, group=self._group),
        )
        return [*torch.split(found, list(counts))]

    def _met(self, op: str, call: Callable[[], Result]) -> Result:
        """What a call of torch.distributed returns. CollectiveError if the others do not come."""
        self._began()
        try:
            return call()
        except RuntimeError as error:
            cause = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
            raise CollectiveError(
                f"rank {self._world_rank} lost the others in {op}: one of them has ended, called"
                f" something else, or did not come in time ({cause[:200]})."
            ) from error


def join(
    backend: str = "gloo",
    patience_s: float = 60.0,
    began: Callable[[], None] = lambda: None,
    **place: Any,
) -> ProcessComm:
    """Become a rank of torch.distributed: by torchrun's environment, or by `place` (store, rank,
    world_size), as `init_process_group` has them.

    A collective for which some rank does not come in `patience_s` is an error.
    """
    dist.init_process_group(backend, timeout=timedelta(seconds=patience_s), **place)
    return ProcessComm(began=began)


def leave() -> None:
    """Be no rank any more."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _header(x: torch.Tensor) -> torch.Tensor:
    """A tensor's dtype and shape as numbers: int64 [2 + MOST_AXES]."""
    if x.ndim > MOST_AXES or x.dtype not in DTYPES:
        raise ValueError(
            f"a tensor that is sent has at most {MOST_AXES} axes and one of the dtypes"
            f" {', '.join(str(d).removeprefix('torch.') for d in DTYPES)}; got {x.dtype}"
            f" {list(x.shape)}."
        )
    rest = [0] * (MOST_AXES - x.ndim)
    return torch.tensor([DTYPES.index(x.dtype), x.ndim, *x.shape, *rest])


def _shape(header: Sequence[int]) -> torch.Size:
    return torch.Size(header[2 : 2 + header[1]])
