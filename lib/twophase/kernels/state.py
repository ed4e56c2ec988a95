"""What a layer with a recurrence keeps of its past: a few tensors that do not grow.

A state has mixed all its tokens, and none can be taken out again. So it is replaced as a whole, and
only when a pass is committed: one that is broken off changes nothing. To take back up to r tokens,
the state keeps what it was after each of the last r: `rollback` = r, r + 1 times the memory.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from twophase.kernels.span import Span, whole
from twophase.kernels.store import Store

Tensors = tuple[torch.Tensor, ...]  # each [B, ...]
# For some of the T tokens, what they give, [B, tokens, ...], and the state after them.
Advance = Callable[[slice, Tensors], tuple[torch.Tensor, Tensors]]


class Side(NamedTuple):
    """A state as loops read it, and where they write the next one."""

    held: Tensors  # [B, r + 1, ...] each, or [B, 1, ...]
    now: Tensors  # the last token's of each: views [B, ...]
    room: Tensors  # for the one after it: `now` of the other side
    places: tuple[int, ...]  # where the tensors of `now` begin, and those of `room`


def sides(held: Tensors, other: Tensors) -> tuple[Side, Side]:
    """Tensors [B, tokens, ...], each the room of the other."""
    now, room = (tuple(tensor[:, -1] for tensor in tensors) for tensors in (held, other))
    here, there = (tuple(tensor.data_ptr() for tensor in tensors) for tensors in (now, room))
    return Side(held, now, room, here + there), Side(other, room, now, there + here)


class State(Store):
    """The tensors of one layer after each of the last r tokens, and now: [B, r + 1, ...] each.

    `run` lets a pass read the state and proposes what it leaves; `commit` makes that the state.
    """

    def __init__(
        self,
        B: int,
        shapes: Sequence[tuple[int, ...]],
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        *,
        rollback: int = 0,
    ) -> None:
        rollback = whole("rollback", rollback, 0)
        past = [(rollback + 1, *shape) for shape in shapes]
        super().__init__(B, *past, dtype=dtype, device=device)
        self.rollback = rollback
        self._proposed: list[Tensors] = []  # after each token of a pass, or after all of them
        self._span: Span | None = None  # of that pass
        self._sides: tuple[Side, Side] | None = None  # for `step`: the state, and its room

    @property
    def now(self) -> Tensors:
        """The state: views [B, ...]."""
        return tuple(past[:, -1] for past in self.held)

    def run(self, span: Span, advance: Advance) -> torch.Tensor:
        """What the T tokens of a span give, [B, T, ...]: all at once, or one by one where some of
        them may be taken back."""
        steps = span.T if self.rollback + 1 >= span.T else 1
        size = span.T // steps  # 1, or all
        outs, state = [], self.now
        self._proposed, self._span = [], span
        for start in range(0, span.T, size):
            out, state = advance(slice(start, start + size), state)
            outs.append(out)
            self._proposed.append(state)
        return outs[0] if len(outs) == 1 else torch.cat(outs, dim=1)

    def step(self, span: Span) -> Side:
        """The same for loops that take in a token of each sequence by themselves: the state, to be
        read, and room for the one after it. The room is kept from pass to pass: so a state of 100
        KB is written into memory that is there, and taken over without a copy."""
        if self._sides is None or self._sides[0].held is not self.held:
            with torch.inference_mode(False):  # others may change it, who are not in that mode
                room = tuple(torch.empty_like(past[:, -1:]) for past in self.held)
                self._sides = sides(self.held, room)
        side = self._sides[0]
        self._proposed, self._span = [side.room], span
        return side

    def steps(self, span: Span) -> list[Tensors]:
        """The same for several tokens: the state, then room for the one after each. Where tokens
        can be taken back each has its own; else only the last is wanted, and two take turns."""
        n = span.T if self.rollback + 1 >= span.T else 2
        rooms = [past.new_empty(n, *past[:, -1].shape) for past in self.held]
        after = [tuple(room[t % n] for room in rooms) for t in range(span.T)]
        self._proposed, self._span = (after if n == span.T else after[-1:]), span
        return [self.now, *after]

    def can_commit(self, span: Span) -> bool:
        """Whether this pass went through the layer: what it never read, it cannot keep."""
        return self._span is span

    def commit(self, span: Span, kept: Sequence[int]) -> None:
        """The state after the first `kept[b]` tokens of the span that ran last."""
        proposed, self._proposed, self._span = self._proposed, [], None
        if not any(kept):
            return
        if not self.rollback and self._take_over(proposed[-1]):
            return
        if len(proposed) < span.T or not self.rollback:  # only whole passes can stay
            for past, last in zip(self.held, proposed[-1], strict=True):
                past[:, -1] = last
            return
        for i, past in enumerate(self.held):
            after = torch.stack([tensors[i] for tensors in proposed], dim=1).to(past.dtype)
            past.copy_(self._shifted(torch.cat([past, after], dim=1), kept))

    def _take_over(self, proposed: Tensors) -> bool:
        """Let the room of `step` be the state, and the state's tensors the next room, if that is
        what was proposed. (Never are both the same, wherever a Ctrl-C comes.)"""
        if self._sides is None or proposed is not self._sides[0].room:
            return False
        (now, other), self._sides = self._sides, None
        self.held = other.held
        self._sides = other, now
        return True

    def take_back(self, gone: Span) -> None:
        """The state before these tokens, which the owner knows to be held."""
        for past in self.held:
            past.copy_(self._shifted(past, [-n for n in gone.n_new]))

    def _shifted(self, timeline: torch.Tensor, by: Sequence[int]) -> torch.Tensor:
        """The r + 1 states up to `by[b]` steps after place r: from [B, steps, ...] to [B, r + 1,
        ...]. What would lie before the first is the first again."""
        steps = torch.arange(self.rollback + 1, device=timeline.device)  # [r + 1]
        moved = torch.tensor(by, device=timeline.device)[:, None]  # [B, 1]
        rows = torch.arange(len(by), device=timeline.device)[:, None]  # [B, 1]
        return timeline[rows, (steps + moved).clamp(min=0)]
