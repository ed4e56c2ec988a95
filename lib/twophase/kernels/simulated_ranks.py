"""Ranks in one process: n threads of which one runs at a time, until it waits for another.

So nothing depends on chance or on the machine: the lowest rank that can go on after the one that
waits goes on, sums are made in rank order, and where nobody can go on, that is seen at once.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")
Group = tuple[int, ...]  # ranks, as the whole world numbers them
_Call = tuple[str, tuple[str, ...], Sequence[torch.Tensor]]  # the collective, of what, the tensors


class CollectiveError(RuntimeError):
    """Ranks that do not meet: other collectives, other shapes, or one that has ended."""


class RankError(RuntimeError):
    """What went wrong on a rank; `__cause__` is its error, where that is known."""

    def __init__(self, rank: int, says: str) -> None:
        super().__init__(f"rank {rank}: {says}")
        self.rank, self.says = rank, says

    def __reduce__(self) -> tuple[type["RankError"], tuple[int, str]]:
        """How it goes from process to process."""
        return RankError, (self.rank, self.says)


class _Stopped(BaseException):
    """Ends a rank because another one failed; no `except Exception` of its own holds it up."""


class _World:
    """Who runs, who waits for what, and what was sent."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.turn = [threading.Event() for _ in range(n)]
        self.ended = [False] * n
        self.waiting: list[tuple[Callable[[], bool], Callable[[], str]] | None] = [None] * n
        self.failed: BaseException | None = None
        self.mail: defaultdict[tuple[Any, ...], deque[torch.Tensor]] = defaultdict(deque)
        self.meetings: dict[tuple[Any, ...], dict[int, _Call]] = {}
        self.left: defaultdict[tuple[Any, ...], int] = defaultdict(int)

    def wait(self, rank: int, ready: Callable[[], bool], says: Callable[[], str]) -> None:
        """Let others run until `ready`. Ends this rank if one of them fails, or none can go on."""
        if ready():
            return
        self.waiting[rank] = ready, says
        self.turn[rank].clear()
        self.pass_on(rank)
        self.turn[rank].wait()
        if self.failed is not None:
            raise _Stopped
        self.waiting[rank] = None

    def pass_on(self, rank: int) -> None:
        """Give the turn to the next rank that can go on."""
        if self.failed is None:
            for other in [(rank + i) % self.n for i in range(1, self.n + 1)]:
                held = self.waiting[other]
                if not self.ended[other] and (held is None or held[0]()):
                    self.turn[other].set()
                    return
            if not all(self.ended):
                self.failed = CollectiveError(self._nobody_goes_on())
        for turn in self.turn:
            turn.set()

    def _nobody_goes_on(self) -> str:
        waits = [
            f"rank {r} waits in {held[1]()}"
            for r, held in enumerate(self.waiting)
            if held is not None and not self.ended[r]
        ]
        ended = [str(r) for r in range(self.n) if self.ended[r]]
        gone = ""
        if ended:
            which = "rank" if len(ended) == 1 else "ranks"
            gone = f", but {which} {', '.join(ended)} {'has' if len(ended) == 1 else 'have'} ended"
        return (
            f"nobody can go on: {', '.join(waits)}{gone}; every rank must call the same"
            " collectives, and receive what another one sends."
        )

    def unread(self) -> str | None:
        """What was sent and never received, in a sentence."""
        for (*_, source, to), letters in self.mail.items():
            if letters:
                return (
                    f"rank {source} sent {describe(letters[0])} to rank {to}, which never received"
                    " it: every send needs a receive."
                )
        return None


class SimulatedComm:
    """`Comm` among ranks of this process. Made by `simulate`."""

    def __init__(self, world: _World, members: Group, me: int, name: tuple[Any, ...] = ()) -> None:
        self._world, self._members, self._me, self._name = world, members, me, name
        self._calls = self._splits = 0
        self.rank, self.size = members.index(me), len(members)

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of all ranks' x, in rank order."""
        return _sum([v for (v,) in self._meet("all_reduce", (describe(x),), [x])])

    def all_gather(
        self, x: torch.Tensor, dim: int = 0, sizes: Sequence[int] | None = None
    ) -> torch.Tensor:
        """All ranks' x, joined along `dim`."""
        dim = _axis(x, dim)
        if sizes is not None and (len(sizes) != self.size or x.shape[dim] != sizes[self.rank]):
            raise ValueError(
                f"`sizes` says how long each of the {self.size} ranks' tensors is along axis {dim};"
                f" got {list(sizes)} on rank {self.rank}, whose tensor has {x.shape[dim]}."
            )
        shape = list(x.shape)
        shape[dim] = -1 if sizes is not None else shape[dim]
        long = f" with sizes {list(sizes)}" if sizes is not None else ""
        key = f"{_dtype(x)} {shape} along axis {dim}{long}"
        return torch.cat([v for (v,) in self._meet("all_gather", (key,), [x])], dim)

    def reduce_scatter(self, x: torch.Tensor, dim: int = 0) -> torch.Tensor:
        """This rank's chunk of the sum of all ranks' x."""
        dim = _axis(x, dim)
        found = self._meet("reduce_scatter", (f"{describe(x)} along axis {dim}",), [x])
        return _sum([v.tensor_split(self.size, dim)[self.rank] for (v,) in found])

    def all_to_all(self, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What came from each rank."""
        if len(parts) != self.size or len({part.dtype for part in parts}) != 1:
            raise ValueError(
                f"all_to_all takes a tensor for each of the {self.size} ranks, of one dtype; got"
                f" {[describe(part) for part in parts]}."
            )
        found = self._meet("all_to_all", (f"parts of {_dtype(parts[0])}",), parts)
        return [given[self.rank].clone() for given in found]

    def broadcast(self, x: torch.Tensor, root: int) -> torch.Tensor:
        """What rank `root` has."""
        self._check(root)
        found = self._meet("broadcast", (f"{describe(x)} from rank {root}",), [x])
        return found[root][0].clone()

    def send(self, x: torch.Tensor, to: int) -> None:
        """Hand a copy of x to rank `to`."""
        self._world.mail[*self._name, self._me, self._members[self._check(to)]].append(x.clone())

    def receive(self, source: int) -> torch.Tensor:
        """The next tensor from rank `source`."""
        other = self._members[self._check(source)]
        box = self._world.mail[*self._name, other, self._me]
        self._world.wait(self._me, lambda: bool(box), lambda: f"receive from rank {other}")
        return box.popleft()

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        self._meet("barrier", (), [])

    def split(self, groups: Sequence[Sequence[int]], axis: str = "") -> "SimulatedComm":
        """The Comm of this rank's group."""
        own = own_group(groups, self.rank, self.size)
        self._splits += 1
        members = tuple(self._members[r] for r in own)
        return SimulatedComm(self._world, members, self._me, (*self._name, self._splits, own))

    def _meet(
        self, op: str, key: tuple[str, ...], value: Sequence[torch.Tensor]
    ) -> list[Sequence[torch.Tensor]]:
        """What all ranks of the group brought to this call, in rank order."""
        place = (self._members, *self._name, self._calls)
        self._calls += 1
        found = self._world.meetings.setdefault(place, {})
        for other, (their_op, their_key, _) in found.items():
            if (their_op, their_key) != (op, key):
                theirs, ours = " of ".join((their_op, *their_key)), " of ".join((op, *key))
                raise CollectiveError(
                    f"the ranks do not meet: rank {other} calls {theirs} and rank {self._me}"
                    f" {ours}; every rank must call the same collective, of the same shape and"
                    " dtype."
                )
        found[self._me] = op, key, [v.clone() for v in value]  # its owner may change it later

        def says() -> str:
            return f"{op} for rank {', '.join(str(r) for r in self._members if r not in found)}"

        self._world.wait(self._me, lambda: len(found) == self.size, says)
        self._world.left[place] += 1
        if self._world.left[place] == self.size:
            del self._world.meetings[place], self._world.left[place]
        return [found[r][2] for r in self._members]

    def _check(self, rank: int) -> int:
        """ValueError unless there is such a rank."""
        if not 0 <= rank < self.size:
            raise ValueError(f"the group has ranks 0 to {self.size - 1}; got {rank}.")
        return rank


def simulate(n_ranks: int, function: Callable[..., Result], *args: Any) -> list[Result]:
    """Run `function(comm, *args)` on n ranks in this process; return their results by rank.

    The ranks share `args`, which they must not change, and torch's global generator. One rank runs
    at a time, so a clock says nothing here. Raises RankError if one raises, as soon as it does,
    from its error; CollectiveError, in one sentence, if ranks do not meet (other collectives or
    shapes, one has ended, each waits for another, something sent is never received); ValueError
    for less than one rank.
    """
    if isinstance(n_ranks, bool) or not isinstance(n_ranks, int) or n_ranks < 1:
        raise ValueError(f"there is at least 1 rank; got {n_ranks!r}.")
    world = _World(n_ranks)
    results: list[Any] = [None] * n_ranks
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def run(rank: int) -> None:
        world.turn[rank].wait()
        try:
            if world.failed is None:
                comm = SimulatedComm(world, tuple(range(n_ranks)), rank)
                with torch.inference_mode(inference), torch.set_grad_enabled(grad):
                    results[rank] = function(comm, *args)
        except _Stopped:
            pass
        except BaseException as error:  # SystemExit of a rank, too, is everybody's end
            if world.failed is None:
                world.failed = _of_rank(rank, error)
        world.ended[rank] = True
        world.pass_on(rank)

    threads = [threading.Thread(target=run, args=(r,), daemon=True) for r in range(n_ranks)]
    try:
        for thread in threads:
            thread.start()
        world.turn[0].set()
        for thread in threads:
            thread.join()
    except BaseException as error:  # Ctrl-C
        world.failed = error
        world.pass_on(0)
        raise
    if world.failed is not None:
        raise world.failed
    if lost := world.unread():
        raise CollectiveError(lost)
    return results


def own_group(groups: Sequence[Sequence[int]], rank: int, size: int) -> tuple[int, ...]:
    """The one of the groups that a rank stands in. ValueError unless each of `size` ranks stands in
    one, once."""
    if sorted(r for group in groups for r in group) != list(range(size)):
        raise ValueError(
            f"each of the {size} ranks stands in one group, once; got {[list(g) for g in groups]}."
        )
    return next(tuple(group) for group in groups if rank in group)


def describe(x: torch.Tensor) -> str:
    """A tensor's dtype and shape, for a sentence."""
    return f"{_dtype(x)} {list(x.shape)}"


def _dtype(x: torch.Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _axis(x: torch.Tensor, dim: int) -> int:
    """The number of an axis, from 0. ValueError if there is none."""
    if not -x.ndim <= dim < x.ndim:
        raise ValueError(f"a tensor {describe(x)} has no axis {dim}.")
    return dim % x.ndim


def _sum(values: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum in rank order, in memory of its own."""
    total = values[0].clone()
    for value in values[1:]:
        total += value
    return total


def _of_rank(rank: int, error: BaseException) -> BaseException:
    """A rank's error, with its number."""
    if isinstance(error, CollectiveError):
        return error
    wrapped = RankError(rank, f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
