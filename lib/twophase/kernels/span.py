"""The new tokens of one forward pass: whose they are, where they go, and what they may see.

A cache has one owner, who knows how long each sequence is, and one store for each layer, which
knows nothing but numbers. Before any layer runs the owner writes down a `Span`; every store reads
from it where the new tokens belong. All of it is known on the host, so nothing here waits for a
device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any, Generic, TypeVar

import torch

_Value = TypeVar("_Value")


class once(Generic[_Value]):  # noqa: N801  (read as a word, like `property`)
    """A property that is computed when it is first asked for, and then kept. `cached_property` of
    Python 3.11 takes a lock for that, which breaks the graph of a compiled model."""

    def __init__(self, compute: Callable[[Any], _Value]) -> None:
        self.compute = compute

    def __get__(self, span: Any, owner: type) -> _Value:
        value = span.__dict__[self.compute.__name__] = self.compute(span)
        return value


@dataclass(frozen=True, eq=False)
class Span:
    """T new tokens for each of B sequences, of which the first `n_new[b]` are real.

    `starts[b]`: tokens that sequence b held before; its token t goes to slot `starts[b] + t`.
    `tree`: bool [T, T], which of the new tokens each one sees, itself included; None: all up to
    itself. In a tree a token's position is its depth, which several tokens share; its slot is its
    own. Raises ValueError if the lists and T do not fit, or for a tree in which a token does not
    see itself, or sees one behind it.
    """

    starts: tuple[int, ...]
    n_new: tuple[int, ...]
    T: int
    device: torch.device | str | None = None
    tree: torch.Tensor | None = None
    _masks: dict[str, torch.Tensor] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.T, bool) or not hasattr(self.T, "__index__") or self.T < 1:
            raise ValueError(
                f"a forward pass needs at least one token of each sequence; got T = {self.T}."
            )
        if len(self.n_new) != len(self.starts) or any(not 0 <= n <= self.T for n in self.n_new):
            raise ValueError(
                f"n_new needs {len(self.starts)} counts between 0 and T = {self.T}; got"
                f" {list(self.n_new)}."
            )
        if self.tree is not None:
            _check_tree(self.tree, self.T)

    @classmethod
    def of(cls, B: int, T: int, start: int = 0, device: torch.device | str | None = None) -> "Span":
        """T tokens for each of B sequences that all hold `start` tokens. ValueError for no whole
        numbers, or none of them."""
        B, start = whole("the number of sequences", B, 1), whole("the start", start, 0)
        return cls((start,) * B, (T,) * B, T, device)

    @property
    def B(self) -> int:
        """Sequences."""
        return len(self.starts)

    @once
    def even(self) -> bool:
        """Whether all sequences are of one length and bring T tokens: then a slice holds them."""
        return len(set(self.starts)) == 1 and set(self.n_new) == {self.T}

    @once
    def end(self) -> int:
        """The length of the longest sequence after this pass; 1 if all are empty."""
        return max(1, *(start + n for start, n in zip(self.starts, self.n_new, strict=True)))

    @once
    def positions(self) -> torch.Tensor:
        """The position of each token in its sequence: int64 [T], or [B, T] where lengths differ."""
        if not self.even:
            return self.first[:, None] + self.depth
        return self.starts[0] + self.depth if self.starts[0] else self.depth

    @once
    def depth(self) -> torch.Tensor:
        """How far each token lies behind the first: int64 [T]; in a tree several are equal."""
        if self.tree is None:
            return torch.arange(self.T, device=self.device)
        return self.tree.to(self.device).sum(-1) - 1  # the tokens that it sees before itself

    @once
    def first(self) -> torch.Tensor:
        """`starts` on the device: int64 [B]."""
        return torch.tensor(self.starts, device=self.device)

    @once
    def real(self) -> torch.Tensor | None:
        """Which of the T tokens are real: bool [B, T]; None if all are."""
        if set(self.n_new) == {self.T}:
            return None
        counts = torch.tensor(self.n_new, device=self.device)  # [B]
        return torch.arange(self.T, device=self.device) < counts[:, None]

    @once
    def index(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The real tokens one by one: whose, which of the T, and its slot; int64 [n] each."""
        whose = [b for b, n in enumerate(self.n_new) for _ in range(n)]
        which = [t for n in self.n_new for t in range(n)]
        slots = [self.starts[b] + t for b, t in zip(whose, which, strict=True)]
        rows, tokens, where = torch.tensor([whose, which, slots], device=self.device).long()
        return rows, tokens, where

    def mask(self, keys: torch.Tensor, window: int | None = None) -> torch.Tensor:
        """Which keys each token sees: bool [1 or B, T, S].

        keys: int64 [1 or B, S], the slot of each key, -1 where there is none. A token sees what its
        sequence held before, and of the new tokens those up to itself, or those of its tree. With a
        window also `position of the key > its own position − window`.
        """
        new = keys - self.first[:, None]  # [B, S]: which of the T it is; below 0: held before
        which = new.clamp(0, self.T - 1)  # [B, S]
        sees = self._among_new[:, which].transpose(0, 1)  # [B, T, S]
        counts = torch.tensor(self.n_new, device=self.device)[:, None]  # [B, 1]
        seen = (keys >= 0)[:, None] & ((new < 0)[:, None] | (sees & (new < counts)[:, None]))
        if window is None:
            return seen
        ahead = torch.where(new < 0, new, self.depth[which])  # [B, S]: its position − start
        return seen & (ahead[:, None] > self.depth[:, None] - window)

    @once
    def _among_new(self) -> torch.Tensor:
        """Which new tokens each new token sees: bool [T, T]."""
        if self.tree is not None:
            return self.tree.to(self.device)
        return torch.ones(self.T, self.T, dtype=torch.bool, device=self.device).tril()

    def mask_of_all(self, window: int | None = None) -> torch.Tensor | None:
        """The mask for a store that holds every token in its slot: bool [B, T, `end`].

        None where none is needed: in an even span without a tree the queries are the last of the
        keys, and a kernel knows what they see. Made once for all layers.
        """
        if self.even and self.tree is None:
            return None
        key = f"window {window}"
        if key not in self._masks:
            slots = torch.arange(self.end, device=self.device)[None]  # [1, S]
            self._masks[key] = self.mask(slots, window)
        return self._masks[key]


def whole(name: str, n: object, least: int) -> int:
    """The number n as an int. ValueError for one below `least`, and for 2.0, True and the like."""
    number = None if isinstance(n, bool) or not hasattr(n, "__index__") else index(n)
    if number is None or number < least:
        raise ValueError(f"{name} is a whole number of at least {least}; got {n!r}.")
    return number


def span_counts(
    counts: torch.Tensor | Sequence[int] | int | None, B: int, default: int
) -> tuple[int, ...]:
    """Counts for B sequences as ints on the host: given as a tensor [B], a list, one for all, or
    not at all. ValueError if there are not B of them, or one is no whole number."""
    if counts is None:
        return (default,) * B
    if type(counts) is int:
        return (counts,) * B
    listed = counts.tolist() if hasattr(counts, "tolist") else counts
    if not isinstance(listed, Sequence) or len(listed) != B:
        listed = [None]
    if any(isinstance(n, bool) or not hasattr(n, "__index__") for n in listed):
        raise ValueError(f"one count, a whole number, is needed for each of {B}; got {counts}.")
    return tuple(map(index, listed))


def check_paths(paths: Sequence[Sequence[int]], span: Span) -> Sequence[Sequence[int]]:
    """The paths; ValueError unless each goes down the span's tree: a token sees what comes before
    it on its path, itself, and nothing else."""
    if span.tree is None or len(paths) != span.B:
        raise ValueError(
            f"paths are for a pass with a tree, one for each of {span.B} sequences; a pass without"
            " one keeps the first tokens, so many of each."
        )
    seen = [[s for s, sees in enumerate(row) if sees] for row in span.tree.tolist()]
    for path, came in zip(map(list, paths), span.n_new, strict=True):
        if path != sorted(set(path)) or not set(path) <= set(range(came)):
            raise ValueError(
                f"a path names tokens that came, from 0 on, in their order; got {path} of {came}."
            )
        if any(seen[t] != path[: i + 1] for i, t in enumerate(path)):
            raise ValueError(f"{path} is no way down the tree: a token in it sees others.")
    return paths


def _check_tree(tree: torch.Tensor, T: int) -> None:
    if not isinstance(tree, torch.Tensor) or tree.shape != (T, T) or tree.dtype != torch.bool:
        found = getattr(tree, "dtype", type(tree).__name__)
        raise ValueError(
            f"a tree of {T} tokens is a bool tensor [{T}, {T}]; got {found}"
            f" {list(getattr(tree, 'shape', []))}."
        )
    if not tree.diagonal().all() or tree.triu(1).any():
        raise ValueError("in a tree every token sees itself, and none that comes after it.")
