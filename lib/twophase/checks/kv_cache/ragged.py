"""kv_cache-ragged: a cache in which every sequence has its own length."""

from __future__ import annotations

import torch

from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Exercise
from twophase.checks.kv_cache._data import SAME_NUMBERS
from twophase.checks.kv_cache._ragged_cases import cases, observe
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Held = tuple[torch.Tensor, torch.Tensor, list[int]]


class Right:
    """The right answer, in small methods that the wrong ones below replace."""

    def __init__(self, B: int, S_max: int, K: int, H: int) -> None:
        self.keys, self.values = torch.zeros(B, S_max, K, H), torch.zeros(B, S_max, K, H)
        self.S_max = S_max
        self.lengths = [0] * B

    def append(self, k: torch.Tensor, v: torch.Tensor, n_new: list[int]) -> Held:
        self.check(n_new)
        for b, n in enumerate(n_new):
            self.store(b, k[b, :n], v[b, :n])
        return self.held()

    def check(self, n_new: list[int]) -> None:
        if any(length + n > self.S_max for length, n in zip(self.lengths, n_new, strict=True)):
            raise ValueError(
                f"room for {self.S_max}, holding {self.lengths}: {n_new} more do not fit"
            )

    def store(self, b: int, k: torch.Tensor, v: torch.Tensor) -> None:
        start, end = self.lengths[b], self.lengths[b] + len(k)
        self.keys[b, start:end], self.values[b, start:end] = k, v
        self.lengths[b] = end

    def held(self) -> Held:
        longest = max(self.lengths)
        return self.keys[:, :longest], self.values[:, :longest], list(self.lengths)

    def free(self, b: int) -> None:
        self.lengths[b] = 0


@wrong(
    "a blog's cache class",
    "You keep one length for all sequences: the shorter ones get holes, which attention takes for"
    " keys.",
)
class OneLengthForAll(Right):
    def append(self, k: torch.Tensor, v: torch.Tensor, n_new: list[int]) -> Held:
        self.check(n_new)
        start, end = max(self.lengths), max(self.lengths) + max(n_new)
        if end > self.S_max:
            raise ValueError("full")
        for b, n in enumerate(n_new):
            self.keys[b, start : start + n], self.values[b, start : start + n] = k[b, :n], v[b, :n]
        self.lengths = [end] * len(n_new)
        return self.held()


@wrong(
    "ragged padding attended to",
    "The padding was stored too: only the first n_new[b] tokens of sequence b are real.",
)
class PaddingStored(Right):
    def append(self, k: torch.Tensor, v: torch.Tensor, n_new: list[int]) -> Held:
        return super().append(k, v, [k.shape[1]] * len(n_new))


@wrong(
    "padding on the left in one place, on the right in another",
    "You took the last n_new[b] tokens of the block: here the padding is on the right.",
)
class LastTokensTaken(Right):
    def append(self, k: torch.Tensor, v: torch.Tensor, n_new: list[int]) -> Held:
        self.check(n_new)
        T = k.shape[1]
        for b, n in enumerate(n_new):
            self.store(b, k[b, T - n :], v[b, T - n :])
        return self.held()


@wrong(
    "plausible",
    "The append was refused after earlier sequences had been written: check all of them first.",
)
class HalfRefused(Right):
    def append(self, k: torch.Tensor, v: torch.Tensor, n_new: list[int]) -> Held:
        for b, n in enumerate(n_new):
            if self.lengths[b] + n > self.S_max:
                raise ValueError(f"sequence {b} is full")
            self.store(b, k[b, :n], v[b, :n])
        return self.held()


@wrong("plausible", "A sequence without room lost its tokens silently: raise ValueError instead.")
class Truncates(Right):
    def append(self, k: torch.Tensor, v: torch.Tensor, n_new: list[int]) -> Held:
        fits = [min(n, self.S_max - length) for n, length in zip(n_new, self.lengths, strict=True)]
        return super().append(k, v, fits)


@wrong(
    "plausible", "You checked the sum of the lengths: every sequence has S_max places of its own."
)
class SumOfLengthsChecked(Right):
    def check(self, n_new: list[int]) -> None:
        if sum(self.lengths) + sum(n_new) > self.S_max:
            raise ValueError("full")


@wrong(
    "plausible",
    "You refused an append because its padding would not fit: only the n_new[b] real tokens need"
    " room.",
)
class PaddingCountedInTheCheck(Right):
    def append(self, k: torch.Tensor, v: torch.Tensor, n_new: list[int]) -> Held:
        self.check([k.shape[1]] * len(n_new))
        return super().append(k, v, n_new)


@wrong(
    "stale page after free",
    "After free the sequence goes on where it was: its length must return to 0.",
)
class FreeDoesNothing(Right):
    def free(self, b: int) -> None:
        self.keys[b], self.values[b] = 0.0, 0.0


@wrong("plausible", "free(b) emptied every sequence: only sequence b has ended.")
class FreeClearsAll(Right):
    def free(self, b: int) -> None:
        self.lengths = [0] * len(self.lengths)


@wrong(
    "the cached step that excluded the current token",
    "The lengths are those from before the append: attention would not see the new tokens.",
)
class OldLengthsReturned(Right):
    def append(self, k: torch.Tensor, v: torch.Tensor, n_new: list[int]) -> Held:
        before = list(self.lengths)
        keys, values, _ = super().append(k, v, n_new)
        return keys, values, before


wrong.add(
    "refuses_too_early",
    replaced(Right, {"length + n > self.S_max": "length + n >= self.S_max"}),
    "plausible",
    "You refuse the token that would exactly fill a sequence: S_max tokens fit.",
)
wrong.add(
    "longest_checked_alone",
    replaced(
        Right,
        {
            "any(length + n > self.S_max for length, n in zip(self.lengths, n_new, strict=True))": (
                "max(self.lengths) + n_new[self.lengths.index(max(self.lengths))] > self.S_max"
            )
        },
    ),
    "plausible",
    "You looked at the longest sequence only: a shorter one may get more new tokens than it has"
    " room for.",
)


EXERCISE = Exercise(
    id="kv_cache-ragged",
    title="Every sequence its own length",
    kind="kernel",
    points=6,
    minutes=25,
    entries=("RaggedKVCache",),
    cases=cases,
    observe=observe,
    reference=Right,
    compare=Tolerance(rtol=0.0, atol=0.0, dtype=True, why=SAME_NUMBERS),
    misconceptions=tuple(wrong),
    hints=(
        (
            "Keep one length per sequence. What does an append do that leaves some sequences as"
            " they are?"
        ),
        (
            "First pass: is there room in every sequence? Second pass: write k[b, :n] to [b,"
            " length:length + n] and move that length."
        ),
        (
            "Return the buffers cut at the longest length, and a copy of the lengths: a list of B"
            " whole numbers."
        ),
    ),
    ranges={"append.n_new[]": (0, 2052), "append.k.shape[1]": (1, 2053)},
    recall=(
        (
            "Sequences of different length share a batch. What must attention be told besides keys"
            " and values?"
        ),
        "The length of each sequence: whatever lies behind it is padding and must be masked.",
    ),
)
