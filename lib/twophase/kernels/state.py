"""What a layer with a recurrence keeps of its past: a few tensors that do not grow.

A state has mixed all its tokens, and none can be taken out again. So it is replaced as a whole, and
only when a pass is committed: one that is broken off changes nothing. To take back up to r tokens,
the state keeps what it was after each of the last r: `rollback` = r, r + 1 times the memory.
"""

from collections.abc import Callable, Sequence

import torch

from twophase.kernels.span import Span

Tensors = tuple[torch.Tensor, ...]  # each [B, ...]
# For some of the T tokens, what they give, [B, tokens, ...], and the state after them.
Advance = Callable[[slice, Tensors], tuple[torch.Tensor, Tensors]]


class State:
    """The tensors [B, ...] of one layer, at zero before the first token.

    `run` lets a pass read the state and proposes what it leaves; `commit` makes that the state.
    """

    unlimited = False

    def __init__(
        self,
        B: int,
        shapes: Sequence[tuple[int, ...]],
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        *,
        rollback: int = 0,
    ) -> None:
        if min(B, *(n for shape in shapes for n in shape)) < 1 or rollback < 0:
            raise ValueError(
                "a state needs sizes of at least 1 and rollback of at least 0; got"
                f" B = {B}, {[list(shape) for shape in shapes]} and {rollback}."
            )
        self.rollback = rollback
        # After each of the last r tokens, and now: r + 1 of each.
        self._past = [
            torch.zeros(rollback + 1, B, *shape, dtype=dtype, device=device) for shape in shapes
        ]
        self._proposed: list[Tensors] = []  # after each token of a pass, or after all of them

    @property
    def now(self) -> Tensors:
        """The state: views [B, ...]."""
        return tuple(past[-1] for past in self._past)

    @property
    def nbytes(self) -> int:
        """Bytes taken, after one token or a million."""
        return sum(past.numel() * past.element_size() for past in self._past)

    def run(self, span: Span, advance: Advance) -> torch.Tensor:
        """What the T tokens of a span give, [B, T, ...]: all at once, or one by one where some of
        them may be taken back."""
        steps = span.T if self.rollback + 1 >= span.T else 1
        size = span.T // steps  # 1, or all
        outs, state = [], self.now
        self._proposed = []
        for start in range(0, span.T, size):
            out, state = advance(slice(start, start + size), state)
            outs.append(out)
            self._proposed.append(tuple(tensor.detach() for tensor in state))
        return outs[0] if len(outs) == 1 else torch.cat(outs, dim=1)

    def commit(self, span: Span, kept: Sequence[int]) -> None:
        """The state after the first `kept[b]` tokens of the span that ran last. ValueError if
        tokens should stay and none ran."""
        proposed, self._proposed = self._proposed, []
        if any(kept) and not proposed:
            raise ValueError(
                "a layer with a state did not run, and cannot keep what it never read."
            )
        if len(proposed) < span.T or not self.rollback:  # only whole passes can stay
            if any(kept):
                for past, last in zip(self._past, proposed[-1], strict=True):
                    past[-1] = last
            return
        for i, past in enumerate(self._past):
            after = torch.stack([tensors[i] for tensors in proposed]).to(past.dtype)
            past.copy_(self._shifted(torch.cat([past, after]), kept))

    def take_back(self, counts: Sequence[int]) -> None:
        """The state before the last `counts[b]` tokens, which the owner knows to be held."""
        for past in self._past:
            past.copy_(self._shifted(past, [-n for n in counts]))

    def _shifted(self, timeline: torch.Tensor, by: Sequence[int]) -> torch.Tensor:
        """The r + 1 states up to `by[b]` steps after place r: from [steps, B, ...] to [r + 1, B,
        ...]. What would lie before the first is the first again."""
        steps = torch.arange(self.rollback + 1, device=timeline.device)[:, None]  # [r + 1, 1]
        index = (steps + torch.tensor(by, device=timeline.device)).clamp(min=0)  # [r + 1, B]
        return timeline[index, torch.arange(len(by), device=timeline.device)]

    def move(self, span: Span, paths: Sequence[Sequence[int]]) -> None:
        """Nothing: a state reads no tree."""

    def clear(self, row: int) -> None:
        """Forget one sequence."""
        for past in self._past:
            past[:, row] = 0

    def copy_row(self, source: int, target: int) -> None:
        """Make one sequence a copy of another."""
        for past in self._past:
            past[:, target] = past[:, source]

    def fill_with_noise(self) -> None:
        """Normal numbers everywhere: for measuring, where the numbers do not matter."""
        for past in self._past:
            past.normal_()
