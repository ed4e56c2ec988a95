"""The cache of a model: a store for each layer that keeps anything, and one owner who counts.

The owner alone knows how long each of the B sequences is. Before a pass it checks the room of each
and says where the new tokens go (`begin`); layers write to their stores and attend through them;
after the last layer it says how many of the new tokens stay (`commit`). A pass that is broken off
in between changes nothing. Full and latent layers keep every token, sliding layers a ring, linear
and state-space layers a state; a layer that reads another's keys keeps nothing.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from twophase.kernels.kv_cache import check_room
from twophase.kernels.span import Span, span_counts
from twophase.kernels.state import State

Counts = torch.Tensor | Sequence[int] | int  # for B sequences, or one number for all


class Store(Protocol):
    """What the owner asks of every store; how layers write and read is each kind's own."""

    unlimited: bool  # whether any number of tokens can be taken back

    @property
    def nbytes(self) -> int:
        """Bytes taken."""

    def commit(self, span: Span, kept: Sequence[int]) -> None:
        """The first `kept[b]` new tokens of each sequence stay."""

    def move(self, span: Span, paths: Sequence[Sequence[int]]) -> None:
        """Put the new tokens `paths[b]` first."""

    def take_back(self, counts: Sequence[int]) -> None:
        """Forget the last `counts[b]` tokens of each sequence."""

    def clear(self, row: int) -> None:
        """Forget one sequence."""

    def copy_row(self, source: int, target: int) -> None:
        """Make one sequence a copy of another."""

    def fill_with_noise(self) -> None:
        """Normal numbers everywhere."""


class Cache:
    """The stores of a model's layers for B sequences of at most S_max tokens each, every one with a
    length of its own. Made by `Transformer.new_cache`.

    `rollback`: how many committed tokens may be taken back from layers with a window or a state,
    and how many of a pass from one with a state; all else gives back any number.
    """

    def __init__(
        self,
        stores: dict[int, Any],
        B: int,
        S_max: int,
        *,
        rollback: int = 0,
        device: torch.device | str | None = None,
    ) -> None:
        self.stores, self.S_max, self.rollback, self.device = stores, S_max, rollback, device
        self._lengths = [0] * B
        self._undo = [0] * B  # tokens that can be taken back, where stores are limited
        self._taken = [True] * B  # rows that hold a sequence; all, until one is released
        self._span: Span | None = None  # begun, not committed
        self._torn = False  # a commit was broken off: some layers have the new tokens, some not

    @property
    def B(self) -> int:
        """Sequences there is room for."""
        return len(self._lengths)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of each sequence."""
        return tuple(self._lengths)

    @property
    def length(self) -> int:
        """Tokens of every sequence; ValueError if they differ: see `lengths`."""
        if len(set(self._lengths)) > 1:
            raise ValueError(f"the sequences differ in length: {self._lengths}; ask for `lengths`.")
        return self._lengths[0]

    @property
    def nbytes(self) -> int:
        """Bytes taken by all layers, filled or not."""
        return int(sum(store.nbytes for store in self.stores.values()))

    def begin(
        self, B: int, T: int, n_new: Counts | None = None, tree: torch.Tensor | None = None
    ) -> Span:
        """Where T new tokens of each sequence go, `n_new[b]` of them real. Nothing is changed yet.

        A span that was begun and not committed is forgotten. Raises ValueError if B is not the
        cache's, a count is not between 0 and T, a sequence has no room, or a row was released.
        """
        if B != self.B:
            raise ValueError(f"the cache is for {self.B} sequences; got tokens of {B}.")
        self._check_whole()
        span = Span(self.lengths, span_counts(n_new, B, T), T, self.device, tree)
        check_room(span, self.S_max)
        for row, (n, taken) in enumerate(zip(span.n_new, self._taken, strict=True)):
            if n and not taken:
                raise ValueError(f"row {row} was released: admit it, or give it n_new of 0.")
        self._span = span
        return span

    def discard(self) -> None:
        """Forget a pass that was begun: there is nothing to commit until the next."""
        self._span = None

    def commit(
        self, kept: Counts | None = None, *, paths: Sequence[Sequence[int]] | None = None
    ) -> None:
        """End a pass: the first `kept[b]` new tokens of each sequence stay (all, if not said).

        After a tree, `paths[b]` are those that stay, numbered from 0, each a descendant of the one
        before. Raises ValueError, and changes nothing, if no pass was begun, more should stay than
        came, what should stay of a tree is no way down, or, where a layer has a state, more than
        `rollback` should go. That none stay at all is always possible.
        """
        span = self._span
        if span is None:
            raise ValueError(
                "nothing to commit: no pass was begun since rows were last committed, cut, released"
                " or copied."
            )
        self._check_whole()
        if paths is not None:
            if kept is not None:
                raise ValueError("say how many stay (`kept`) or which (`paths`), not both.")
            kept = [len(path) for path in _check_paths(paths, span)]
        counts = span_counts(span.n_new if kept is None else kept, self.B, 0)
        for b, (n, came) in enumerate(zip(counts, span.n_new, strict=True)):
            if not 0 <= n <= came:
                raise ValueError(f"{came} tokens came for sequence {b}: {n} of them cannot stay.")
        if span.tree is not None and paths is None:
            paths = _check_paths([range(n) for n in counts], span)
        if any(counts) and self._has_states():  # rings hold a pass back until it is committed
            most = 0 if self._is_long(span) else self.rollback
            back = [came - n for came, n in zip(span.n_new, counts, strict=True)]
            self._check_undo(back, [most] * self.B)
        self._torn = True
        for store in self.stores.values():
            if paths is not None:
                store.move(span, paths)
            store.commit(span, counts)
        self._count(span, counts)
        self._span, self._torn = None, False

    def _count(self, span: Span, kept: Sequence[int]) -> None:
        """Note what a committed span added, and how much of it can be taken back later."""
        for b, n in enumerate(kept):
            self._lengths[b] += n
            self._undo[b] = min(self.rollback, self._undo[b] + n)
            if n and self._is_long(span):
                self._undo[b] = 0

    def _is_long(self, span: Span) -> bool:
        """Whether only the end of a pass is known: a state takes snapshots in short ones only."""
        return self._has_states() and self.rollback + 1 < span.T

    def _has_states(self) -> bool:
        return any(isinstance(store, State) for store in self.stores.values())

    def truncate(self, lengths: Counts) -> None:
        """Forget every token from position `lengths[b]` on (one number: for all sequences).

        0 is always possible. ValueError, and nothing changed, for a length that a sequence does not
        have, or one further back than the layers can go.
        """
        wanted = span_counts(lengths, self.B, 0)
        for b, (n, held) in enumerate(zip(wanted, self._lengths, strict=True)):
            if not 0 <= n <= held:
                raise ValueError(f"sequence {b} holds {held} tokens and cannot be cut to {n}.")
        back = [h - n if n else 0 for n, h in zip(wanted, self._lengths, strict=True)]
        self._check_undo(back, self._undo)
        self._span = None
        if any(back):
            for store in self.stores.values():
                store.take_back(back)
        for b, n in enumerate(wanted):
            self._undo[b] = self._undo[b] - back[b] if n else 0
            self._lengths[b] = n
            if n == 0:
                self._clear(b)
        self._torn = self._torn and any(wanted)

    def _check_undo(self, back: Sequence[int], undo: Sequence[int]) -> None:
        """ValueError unless as many tokens of each sequence can be taken back as `back` says: at
        most `undo`, where stores are limited."""
        if all(store.unlimited for store in self.stores.values()):
            return
        for b, (n, most) in enumerate(zip(back, undo, strict=True)):
            if n > most:
                raise ValueError(
                    f"sequence {b} cannot give back {n} tokens, only {most}: layers with a window"
                    f" or a state forget, and this cache was made with rollback={self.rollback};"
                    " make one with more, or cut to 0 and read the tokens again."
                )

    def admit(self) -> int:
        """A free row for a new sequence. ValueError if all are taken: `release` one first."""
        for row, taken in enumerate(self._taken):
            if not taken:
                self._taken[row] = True
                return row
        raise ValueError(f"all {self.B} rows are taken: release one, or make a larger cache.")

    def release(self, row: int) -> None:
        """Forget the sequence of a row, which is free then. ValueError if there is no such row."""
        self._check_row(row)
        self._clear(row)
        self._taken[row] = False

    def fork(self, source: int, target: int) -> None:
        """Make the sequence of one row a copy of another's, so that they can part."""
        for row in (source, target):
            self._check_row(row)
        for store in self.stores.values():
            store.copy_row(source, target)
        for noted in (self._lengths, self._undo):
            noted[target] = noted[source]
        self._taken[target] = True
        self._span = None

    def fill_with_noise(self, length: int) -> None:
        """As if every sequence held `length` tokens: for measuring, where numbers do not matter."""
        if not 0 <= length <= self.S_max:
            raise ValueError(f"the cache has room for {self.S_max} tokens; got {length}.")
        for store in self.stores.values():
            store.fill_with_noise()
        self._lengths, self._undo, self._span = [length] * self.B, [0] * self.B, None
        if length == 0:  # a state starts at zero
            for row in range(self.B):
                self._clear(row)

    def _clear(self, row: int) -> None:
        for store in self.stores.values():
            store.clear(row)
        self._lengths[row] = self._undo[row] = 0
        self._span = None

    def _check_whole(self) -> None:
        """ValueError if a commit was broken off."""
        if self._torn:
            raise ValueError(
                "a commit was broken off, and the layers of this cache hold different tokens:"
                " truncate(0), and read the tokens again."
            )

    def _check_row(self, row: int) -> None:
        if not 0 <= row < self.B:
            raise ValueError(f"the cache has rows 0 to {self.B - 1}; got {row}.")


def _check_paths(paths: Sequence[Sequence[int]], span: Span) -> Sequence[Sequence[int]]:
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
