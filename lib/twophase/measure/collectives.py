"""What ranks said to each other, as events: a `Comm` that notes every call of another one.

Bytes are those of the ring (`kernels.collectives`), whatever algorithm really moved them: an
all-reduce of n_bytes over n ranks sends 2·(n − 1)·n_bytes in all. Where n does not divide the
tensor, some ranks send a number more than others; over all ranks the sum is exact.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import torch

from twophase.kernels.collectives import Comm

from .events import Event, EventLog


class Tracer:
    """A Comm that writes an event for each call of `comm` into `log`.

    `axis` is what its group is called. `at` says where in the model the next calls are; Tracers
    made by `split` share it, and the log.
    """

    def __init__(self, comm: Comm, log: EventLog | None = None, axis: str = "") -> None:
        self.log = EventLog() if log is None else log
        self._comm, self._axis = comm, axis
        self._group: tuple[int, ...] = tuple(range(comm.size))  # as the outermost Comm has them
        self._place: dict[str, Any] = {"step": 0, "phase": "", "layer": None}

    @property
    def rank(self) -> int:
        """This rank's number in the group."""
        return self._comm.rank

    @property
    def size(self) -> int:
        """Ranks in the group."""
        return self._comm.size

    def at(self, **place: Any) -> None:
        """Say `step`, `phase` or `layer` of the calls to come. ValueError for another name."""
        if unknown := sorted(set(place) - set(self._place)):
            raise ValueError(f"a place is said by {', '.join(self._place)}; got {unknown[0]!r}.")
        self._place.update(place)

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """As `Comm` has it, noted."""
        with self._noted("all_reduce", x.nbytes, self._reduced(x)):
            return self._comm.all_reduce(x)

    def all_gather(
        self, x: torch.Tensor, dim: int = 0, sizes: Sequence[int] | None = None
    ) -> torch.Tensor:
        """As `Comm` has it, noted."""
        n, rank, dim = self.size, self.rank, dim % x.ndim
        rows = [x.shape[dim]] * n if sizes is None else list(sizes)
        row_bytes = x.element_size() * prod(x.shape[:dim] + x.shape[dim + 1 :])
        total = sum(rows) * row_bytes  # every chunk but that of the next rank is handed on
        with self._noted("all_gather", total, total - rows[(rank + 1) % n] * row_bytes):
            return self._comm.all_gather(x, dim, sizes)

    def reduce_scatter(self, x: torch.Tensor, dim: int = 0) -> torch.Tensor:
        """As `Comm` has it, noted."""
        own = x.tensor_split(self.size, dim)[self.rank]  # the only chunk that ends its round here
        n_bytes = x.nbytes
        with self._noted("reduce_scatter", n_bytes, n_bytes - own.nbytes):
            return self._comm.reduce_scatter(x, dim)

    def all_to_all(self, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """As `Comm` has it, noted."""
        n_bytes = sum(part.nbytes for part in parts)
        kept = parts[self.rank].nbytes if len(parts) == self.size else 0
        with self._noted("all_to_all", n_bytes, n_bytes - kept):
            return self._comm.all_to_all(parts)

    def broadcast(self, x: torch.Tensor, root: int) -> torch.Tensor:
        """As `Comm` has it, noted: round the ring, so that the rank before `root` sends nothing."""
        last = (self.rank + 1) % self.size == root
        with self._noted("broadcast", x.nbytes, 0 if last else x.nbytes):
            return self._comm.broadcast(x, root)

    def send(self, x: torch.Tensor, to: int) -> None:
        """As `Comm` has it, noted."""
        with self._noted("send", x.nbytes, x.nbytes, self._group[to]):
            self._comm.send(x, to)

    def receive(self, source: int) -> torch.Tensor:
        """As `Comm` has it, noted."""
        with self._noted("receive", 0, 0, self._group[source]) as noted:
            x = self._comm.receive(source)
            noted.n_bytes = x.nbytes
        return x

    def barrier(self) -> None:
        """As `Comm` has it, noted."""
        with self._noted("barrier", 0, 0):
            self._comm.barrier()

    def split(self, groups: Sequence[Sequence[int]], axis: str = "") -> Tracer:
        """As `Comm` has it; the new one is traced, too."""
        comm = self._comm.split(groups, axis)
        inner = Tracer(comm, self.log, axis)
        own = next(group for group in groups if self.rank in group)
        inner._group, inner._place = tuple(self._group[r] for r in own), self._place
        return inner

    def _reduced(self, x: torch.Tensor) -> int:
        """Bytes that this rank sends in an all-reduce: all chunks but its own, then all but that of
        the next rank. The first chunks have a number more, where the ranks do not divide them."""
        each, more = divmod(x.numel(), self.size)
        kept = 2 * each + sum(r % self.size < more for r in (self.rank, self.rank + 1))
        return (2 * x.numel() - kept) * x.element_size()

    def _noted(self, op: str, n_bytes: int, sent_bytes: int, peer: int | None = None) -> _Noted:
        return _Noted(self, op, n_bytes, sent_bytes, peer)


class _Noted:
    """One call: an event when it has come to its end."""

    def __init__(
        self, tracer: Tracer, op: str, n_bytes: int, sent_bytes: int, peer: int | None
    ) -> None:
        self.tracer, self.op, self.peer = tracer, op, peer
        self.n_bytes, self.sent_bytes = n_bytes, sent_bytes

    def __enter__(self) -> _Noted:
        self.start_s = time.perf_counter() - self.tracer.log.started
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            return
        tracer = self.tracer
        tracer.log.write(
            "collective",
            rank=tracer._group[tracer.rank],
            op=self.op,
            axis=tracer._axis,
            group=list(tracer._group),
            peer=self.peer,
            n_bytes=self.n_bytes,
            sent_bytes=self.sent_bytes,
            **tracer._place,
            start_s=self.start_s,
            seconds=time.perf_counter() - tracer.log.started - self.start_s,
        )


def sent_bytes(events: Iterable[Event]) -> int:
    """Bytes that all ranks of the events send together."""
    return sum(event["sent_bytes"] for event in events if event.kind == "collective")


def meetings(events: Iterable[Event]) -> list[list[Event]]:
    """The calls that belong together: of each collective those of all its ranks, of each message
    its send and its receive. In the order in which they were complete.

    The first call of a group that a rank made meets the first of the others, and so on; calls that
    not all ranks have noted are left out.
    """
    open_calls: defaultdict[tuple[Any, ...], list[Event]] = defaultdict(list)
    made: defaultdict[tuple[Any, ...], int] = defaultdict(int)
    found = []
    for event in events:
        if event.kind != "collective":
            continue
        rank, peer = event["rank"], event["peer"]
        way: tuple[Any, ...] = (event["axis"], tuple(event["group"]))
        if event["op"] == "send":
            way, size = (*way, rank, peer), 2
        elif event["op"] == "receive":
            way, size = (*way, peer, rank), 2
        else:
            size = len(event["group"])
        number = made[(*way, rank)]
        made[(*way, rank)] += 1
        calls = open_calls[(*way, number)]
        calls.append(event)
        if len(calls) == size:
            found.append(calls)
            del open_calls[(*way, number)]
    return found


def met_s(calls: Sequence[Event]) -> float:
    """Seconds of a meeting: from when the last of its ranks came to when the last one left."""
    ended = max(float(e["start_s"] + e["seconds"]) for e in calls)
    return ended - max(float(e["start_s"]) for e in calls)


def waited_s(events: Iterable[Event]) -> list[tuple[Event, float]]:
    """Each event of a meeting, with how long its rank waited in it for the last one to come.
    Events of all ranks on one clock; a send waits for nobody."""
    found = []
    for calls in meetings(events):
        last = max(event["start_s"] for event in calls)
        found += [(e, 0.0 if e["op"] == "send" else last - e["start_s"]) for e in calls]
    return found
