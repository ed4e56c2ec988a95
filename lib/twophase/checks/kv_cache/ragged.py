"""kv_cache-ragged: a cache in which every sequence has its own length."""

from __future__ import annotations

import random
from typing import Any

import torch

from twophase.checks.answer import Answer, Handle, refuses, tell
from twophase.checks.compare import Tolerance, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.kv_cache._data import SAME_NUMBERS, normal
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

Held = tuple[torch.Tensor, torch.Tensor, list[int]]
Step = tuple[torch.Tensor, torch.Tensor, list[int]] | int  # an append, or the sequence to free


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


def observe(answer: Answer, case: Case) -> list[Any]:
    """Each append: the lengths returned and what lies within them, or whether it was refused.
    Nothing behind a length counts."""
    sizes, steps = case.args
    B, S_max = sizes[:2]
    cache = answer.new("RaggedKVCache", *sizes)
    lengths, seen = [0] * B, []
    for step in steps:
        if isinstance(step, int):
            tell(cache, "free", step)
            lengths[step] = 0
            continue
        after = [n + new for n, new in zip(lengths, step[2], strict=True)]
        if max(after) > S_max:
            seen.append(
                {"an append that does not fit raises ValueError": refuses(_append(cache, step))}
            )
        else:
            lengths = after
            seen.append(_held(_append(cache, step)(), lengths))
    return seen


def _append(cache: Handle, step: tuple[torch.Tensor, torch.Tensor, list[int]]) -> Any:
    return lambda: cache.call("append", *step)


def _held(found: Any, lengths: list[int]) -> dict[str, Any]:
    """The valid part of each sequence, cut by the judge's own lengths."""
    if not isinstance(found, list | tuple) or len(found) != 3:
        return {"append returned": "something that is not (keys, values, lengths)"}
    keys, values, told = found
    told = plain(told)
    if not all(
        isinstance(x, torch.Tensor) and x.ndim == 4 and len(x) == len(lengths)
        for x in (keys, values)
    ):
        return {"append returned": "keys and values that are not tensors [B, S, K, H]"}
    return {
        "lengths": told,
        "keys": [keys[b, :n] for b, n in enumerate(lengths)],
        "values": [values[b, :n] for b, n in enumerate(lengths)],
    }


def _script(
    rng: random.Random, name: str, sizes: tuple[int, int, int, int], steps: list[list[int] | int]
) -> Case:
    """Appends by their n_new, every second one padded by a token more than the longest; a whole
    number frees that sequence."""
    B, _, K, H = sizes

    def made(i: int, step: list[int] | int) -> Step:
        if isinstance(step, int):
            return step
        T = max(1, max(step) + 1 - i % 2)
        return normal(rng, B, T, K, H), normal(rng, B, T, K, H), step

    return Case(name, (sizes, [made(i, step) for i, step in enumerate(steps)]))


def cases(rng: random.Random) -> list[Case]:
    """Prompts of different lengths, a sequence without a new token, an overflow in the last one
    only, a slot used again."""
    return [
        _script(rng, "two prompts of 2 and 1 tokens", (2, 5, 1, 2), [[2, 1]]),
        _script(rng, "prompts of 1 and 3, then one token each", (2, 6, 1, 2), [[1, 3], [1, 1]]),
        _script(rng, "prompts of 3, 1, 2; then 0, 2, 1 more", (3, 5, 2, 3), [[3, 1, 2], [0, 2, 1]]),
        _script(
            rng,
            "room for 4: the second sequence becomes full, to the last place",
            (2, 4, 2, 3),
            [[1, 3], [1, 1]],
        ),
        _script(
            rng,
            "room for 4: the last sequence overflows, then all but it go on",
            (3, 4, 1, 3),
            [[1, 2, 4], [1, 1, 1], [2, 1, 0]],
        ),
        _script(
            rng,
            "a sequence ends and another takes its slot",
            (2, 6, 2, 2),
            [[4, 2], 0, [3, 1], [1, 1]],
        ),
        _script(
            rng,
            "one sequence: 2 tokens, none, one, one too many; then the next",
            (1, 3, 1, 2),
            [[2], [0], [1], [1], 0, [3]],
        ),
        _script(
            rng,
            "all of it",
            (3, 8, 3, 5),
            [[3, 5, 1], [1, 0, 2], [2, 4, 1], 1, [1, 7, 1], [2, 1, 1], [1, 1, 4]],
        ),
    ]


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
    recall=(
        (
            "Sequences of different length share a batch. What must attention be told besides keys"
            " and values?"
        ),
        "The length of each sequence: whatever lies behind it is padding and must be masked.",
    ),
    withholds=("twophase.kernels.kv_cache.RaggedKVCache", "twophase.kernels.kv_cache.KVCache"),
)
