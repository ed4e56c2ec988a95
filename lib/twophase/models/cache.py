"""The cache of a model: a store for each layer that keeps anything, and one owner who counts.

The owner alone knows how long each of the B sequences is. Before a pass it checks the room of each
and says where the new tokens go (`begin`); layers write to their stores and attend through them;
after the last layer it says how many of the new tokens stay (`commit`). A pass that is broken off
in between changes nothing. Full and latent layers keep every token, sliding layers a ring, linear
and state-space layers a state; a layer that reads another's keys keeps nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from twophase.kernels.kv_cache import check_room
from twophase.kernels.span import Span, check_paths, span_counts, whole
from twophase.kernels.state import State
from twophase.kernels.store import Store

Counts = torch.Tensor | Sequence[int] | int  # for B sequences, or one number for all


@dataclass
class Row:
    """What the owner knows of one row."""

    length: int = 0  # tokens of its sequence
    undo: int = 0  # how many of these can be taken back, where stores are limited
    written: int = 0  # slots that were ever written to, also by tokens that did not stay
    taken: bool = True  # a sequence is here, if only an empty one
    torn: bool = False  # a change was broken off: some layers have it, some not


class Cache:
    """The stores of a model's layers for B sequences of at most S_max tokens each, every one with a
    length of its own. Made by `Transformer.new_cache`.

    `rollback`: how many committed tokens may be taken back from layers with a window or a state,
    and how many of a pass from one with a state; all else gives back any number.
    """

    def __init__(
        self,
        stores: Mapping[int, Store],
        B: int,
        S_max: int,
        *,
        rollback: int = 0,
        device: torch.device | str | None = None,
    ) -> None:
        self.stores, self.S_max, self.rollback, self.device = stores, S_max, rollback, device
        self._states = [store for store in stores.values() if isinstance(store, State)]
        self._rows = [Row() for _ in range(B)]
        self._span: Span | None = None  # begun, not committed

    @property
    def B(self) -> int:
        """Sequences there is room for."""
        return len(self._rows)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of each sequence."""
        return tuple(row.length for row in self._rows)

    @property
    def length(self) -> int:
        """Tokens of every sequence; ValueError if they differ: see `lengths`."""
        if len(set(self.lengths)) > 1:
            raise ValueError(f"the sequences differ in length: {self.lengths}; ask for `lengths`.")
        return self._rows[0].length

    @property
    def nbytes(self) -> int:
        """Bytes taken by all layers, filled or not."""
        return sum(store.nbytes for store in self.stores.values())

    def begin(
        self, B: int, T: int, n_new: Counts | None = None, tree: torch.Tensor | None = None
    ) -> Span:
        """Where T new tokens of each sequence go, `n_new[b]` of them real. No token is touched yet.

        A span that was begun and not committed is forgotten. Raises ValueError if B is not the
        cache's, a count is not between 0 and T, a sequence has no room, or a row was released.
        """
        if (B, T) == (1, 1) and n_new is None and tree is None and self._goes_on():
            return self._span  # type: ignore[return-value]
        if B != self.B:
            raise ValueError(f"the cache is for {self.B} sequences; got tokens of {B}.")
        self._check_whole()
        span = Span(self.lengths, span_counts(n_new, B, T), T, self.device, tree)
        check_room(span, self.S_max)
        for b, (row, n) in enumerate(zip(self._rows, span.n_new, strict=True)):
            if n and not row.taken:
                raise ValueError(f"row {b} was released: admit it, or give it n_new of 0.")
        self._wipe(span)
        self._span = span
        return span

    def _goes_on(self) -> bool:
        """Begin a pass of one token of the one sequence, as a decode step does, if nothing forbids
        it: the same in a third of the time."""
        row = self._rows[0]
        if len(self._rows) != 1 or row.torn or not row.taken or row.length >= self.S_max:
            return False
        row.written = max(row.written, row.length + 1)
        self._span = Span((row.length,), (1,), 1, self.device)
        return True

    def _wipe(self, span: Span) -> None:
        """Zero what other passes left behind the ends of this one, if a mask must hide it: what is
        not seen is weighted with 0, and 0·NaN is NaN."""
        ends = tuple(start + n for start, n in zip(span.starts, span.n_new, strict=True))
        left = tuple(max(0, row.written - n) for row, n in zip(self._rows, ends, strict=True))
        if dirty := any(left) and not span.even:
            gone = Span(ends, left, max(left), self.device)
            for store in self.stores.values():
                if store.unlimited:  # the others keep nothing there
                    store.take_back(gone)
        for row, end in zip(self._rows, ends, strict=True):
            row.written = end if dirty else max(row.written, end)

    def discard(self) -> None:
        """Forget a pass that was begun: there is nothing to commit until the next."""
        self._span = None

    def commit(
        self, kept: Counts | None = None, *, paths: Sequence[Sequence[int]] | None = None
    ) -> None:
        """End a pass: the first `kept[b]` new tokens of each sequence stay (all, if not said).

        After a tree, `paths[b]` are those that stay, numbered from 0, each a descendant of the one
        before. Raises ValueError, and changes nothing, if no pass was begun, more should stay than
        came, what should stay of a tree is no way down, or, where a layer has a state, it did not
        run or more than `rollback` should go. That none stay at all is always possible.
        """
        self._check_whole()
        span = self._span
        if span is None:
            raise ValueError(
                "nothing to commit: no pass was begun since rows were last committed, cut, released"
                " or copied."
            )
        counts, paths = self._what_stays(span, kept, paths)
        self._mark_torn(self._rows)
        for store in self.stores.values():
            if paths is not None:
                store.move(span, paths)
            store.commit(span, counts)
        for row, n in zip(self._rows, counts, strict=True):
            row.length += n
            row.undo = 0 if n and self._is_long(span) else min(self.rollback, row.undo + n)
            row.torn = False

    def _what_stays(
        self, span: Span, kept: Counts | None, paths: Sequence[Sequence[int]] | None
    ) -> tuple[tuple[int, ...], Sequence[Sequence[int]] | None]:
        """How many new tokens of each sequence stay, and which of a tree. ValueError as in
        `commit`."""
        if paths is not None:
            if kept is not None:
                raise ValueError("say how many stay (`kept`) or which (`paths`), not both.")
            kept = [len(path) for path in check_paths(paths, span)]
        counts = span.n_new
        if kept is not None:
            counts = span_counts(kept, self.B, 0)
            for b, (n, came) in enumerate(zip(counts, span.n_new, strict=True)):
                if not 0 <= n <= came:
                    raise ValueError(
                        f"{came} tokens came for sequence {b}: {n} of them cannot stay."
                    )
        if span.tree is not None and paths is None:
            paths = check_paths([range(n) for n in counts], span)
        if self._states and any(counts):  # rings hold a pass back until it is committed
            if not all(state.can_commit(span) for state in self._states):
                raise ValueError("a layer with a state did not run: none of its tokens can stay.")
            if counts is span.n_new:  # none goes back
                return counts, paths
            back = [came - n for came, n in zip(span.n_new, counts, strict=True)]
            self._check_undo(back, [0 if self._is_long(span) else self.rollback] * self.B)
        return counts, paths

    def _is_long(self, span: Span) -> bool:
        """Whether only the end of a pass is known: a state takes snapshots in short ones only."""
        return bool(self._states) and self.rollback + 1 < span.T

    def truncate(self, lengths: Counts) -> None:
        """Forget every token from position `lengths[b]` on (one number: for all sequences).

        0 is always possible. ValueError, and nothing changed, for a length that a sequence does not
        have, or one further back than the layers can go.
        """
        wanted = span_counts(lengths, self.B, 0)
        for b, (n, row) in enumerate(zip(wanted, self._rows, strict=True)):
            if not 0 <= n <= row.length:
                raise ValueError(
                    f"sequence {b} holds {row.length} tokens and cannot be cut to {n}."
                )
        back = tuple(row.length - n if n else 0 for n, row in zip(wanted, self._rows, strict=True))
        if any(wanted):
            self._check_whole()
        self._check_undo(back, [row.undo for row in self._rows])
        self._span = None
        if any(back):
            gone = Span(wanted, back, max(back), self.device)
            self._mark_torn(self._rows)
            for store in self.stores.values():
                if not store.unlimited:  # the others are wiped when a mask must hide it
                    store.take_back(gone)
        for b, (n, row) in enumerate(zip(wanted, self._rows, strict=True)):
            row.length, row.undo, row.torn = n, row.undo - back[b], False
            if n == 0:
                self._clear(b)

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
        for b, row in enumerate(self._rows):
            if not row.taken:
                row.taken = True
                return b
        raise ValueError(f"all {self.B} rows are taken: release one, or make a larger cache.")

    def release(self, row: int) -> None:
        """Forget the sequence of a row, which is free then. ValueError if there is no such row."""
        self._clear(self._checked(row))
        self._rows[row].taken = False

    def fork(self, source: int, target: int) -> None:
        """Make the sequence of one row a copy of another's, so that they can part."""
        self._check_whole()
        copied = replace(self._rows[self._checked(source)], taken=True)
        self._mark_torn([self._rows[self._checked(target)]])
        for store in self.stores.values():
            store.copy_row(source, target)
        self._rows[target], self._span = copied, None

    def fill_with_noise(self, length: int) -> None:
        """As if every sequence held `length` tokens: for measuring, where numbers do not matter."""
        if not whole("the length of noise", length, 0) <= self.S_max:
            raise ValueError(f"the cache has room for {self.S_max} tokens; got {length}.")
        for store in self.stores.values():
            store.fill_with_noise()
        for b, row in enumerate(self._rows):
            row.length, row.undo = length, 0
            if length == 0:  # a state starts at zero
                self._clear(b)
        self._span = None

    def _clear(self, row: int) -> None:
        self._mark_torn([self._rows[row]])
        for store in self.stores.values():
            store.clear(row)
        self._rows[row] = Row(taken=self._rows[row].taken)
        self._span = None

    def _mark_torn(self, rows: Sequence[Row]) -> None:
        """Before layer after layer is changed: until all are, nobody may read these rows."""
        for row in rows:
            row.torn = True
        self._span = None

    def _check_whole(self) -> None:
        """ValueError if a commit, a cut or a copy was broken off."""
        if any(row.torn for row in self._rows):
            raise ValueError(
                "a change was broken off, and the layers of this cache hold different tokens:"
                " truncate(0) or release its rows, and read the tokens again."
            )

    def _checked(self, row: int) -> int:
        if whole("a row's number", row, 0) >= self.B:
            raise ValueError(f"the cache has rows 0 to {self.B - 1}; got {row}.")
        return row
