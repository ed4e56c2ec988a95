"""kv_cache-cache: a cache that appends, returns what it holds, and refuses to overflow."""

from __future__ import annotations

import random
from typing import Any

import torch

from twophase.checks.answer import Answer, Handle, refuses, tell
from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case, Exercise
from twophase.checks.kv_cache._data import SAME_NUMBERS, normal
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Pair = tuple[torch.Tensor, torch.Tensor]


class Right:
    """The right answer, in small methods that the wrong ones below replace."""

    def __init__(self, B: int, S_max: int, K: int, H: int, dtype: str) -> None:
        self.keys = torch.zeros(B, S_max, K, H, dtype=getattr(torch, dtype))
        self.values = torch.zeros_like(self.keys)
        self.S_max = S_max
        self.length = 0

    def append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        end = self.length + k.shape[1]
        if end > self.S_max:
            raise ValueError(
                f"{self.length} of {self.S_max} tokens are taken: {k.shape[1]} more do not fit"
            )
        self.store(k, v, end)
        self.length = end
        return self.held()

    def store(self, k: torch.Tensor, v: torch.Tensor, end: int) -> None:
        self.keys[:, self.length : end] = k
        self.values[:, self.length : end] = v

    def held(self) -> Pair:
        return self.keys[:, : self.length], self.values[:, : self.length]

    def reset(self) -> None:
        self.length = 0


@wrong(
    "the cached step that excluded the current token",
    "append returned what was there before: a query also attends to its own key, so the new tokens"
    " belong in it.",
)
class NewTokensLeftOut(Right):
    def append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        before = self.held()
        super().append(k, v)
        return before


wrong.add(
    "only_new_tokens",
    replaced(Right, {"return self.held()": "return k, v"}),
    "plausible",
    "append returned only the tokens that it was given: attention needs all that the cache holds.",
)


@wrong(
    "static caches without a mask",
    "append returned the whole buffer: the empty places are keys of zeros, and softmax gives them"
    " weight.",
)
class WholeBuffer(Right):
    def held(self) -> Pair:
        return self.keys, self.values


@wrong(
    "pointer not reset between generations (rasbt/LLMs-from-scratch #697)",
    "reset emptied the buffer and kept the pointer: the next generation starts after a stretch of"
    " zeros.",
)
class ResetKeepsPointer(Right):
    def reset(self) -> None:
        self.keys.zero_()
        self.values.zero_()


@wrong(
    "plausible",
    "The pointer moved by one for a block of T tokens: a prompt arrives many tokens at once.",
)
class OneTokenAtATime(Right):
    def append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        super().append(k, v)
        self.length += 1 - k.shape[1]
        return self.held()


@wrong(
    "plausible", "Every append wrote to the start of the buffer: write after what the cache holds."
)
class AlwaysFromZero(Right):
    def store(self, k: torch.Tensor, v: torch.Tensor, end: int) -> None:
        self.keys[:, : k.shape[1]] = k
        self.values[:, : k.shape[1]] = v


@wrong("plausible", "The values that come back are the keys.")
class KeysTwice(Right):
    def store(self, k: torch.Tensor, v: torch.Tensor, end: int) -> None:
        super().store(k, k, end)


@wrong(
    "plausible",
    "You stored what fits and dropped the rest: a token that is silently missing makes wrong text."
    " Refuse it.",
)
class Truncates(Right):
    def append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        room = self.S_max - self.length
        return super().append(k[:, :room], v[:, :room])


@wrong(
    "a blog's cache class",
    "Nothing checks the room. One token too many is lost without a word (a slice past the end is"
    " empty), two raise RuntimeError.",
)
class NoCheck(Right):
    def append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        end = self.length + k.shape[1]
        self.store(k, v, end)
        self.length = end
        return self.held()


@wrong(
    "plausible", "The refused append moved the pointer: check the room before you change anything."
)
class CountsBeforeRefusing(Right):
    def append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        start = self.length
        self.length = start + k.shape[1]
        if self.length > self.S_max:
            raise ValueError("full")
        self.length = start
        return super().append(k, v)


wrong.add(
    "refuses_too_early",
    replaced(Right, {"end > self.S_max": "end >= self.S_max"}),
    "plausible",
    "You refuse the token that would exactly fill the cache: S_max tokens fit.",
)


@wrong(
    "ring buffers of sliding-window attention",
    "A full cache started again at 0: that is a ring buffer for sliding windows, and here it"
    " forgets the prompt.",
)
class WrapsAround(Right):
    def append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        if self.length + k.shape[1] > self.S_max:
            self.length = 0
        return super().append(k, v)


@wrong(
    "a blog's cache class",
    "The cache ignores dtype: torch.zeros is float32 unless told otherwise, twice the bytes of"
    " bfloat16.",
)
class AlwaysFloat32(Right):
    def __init__(self, B: int, S_max: int, K: int, H: int, dtype: str) -> None:
        super().__init__(B, S_max, K, H, "float32")


def observe(answer: Answer, case: Case) -> list[Any]:
    """What each step showed: the keys and values returned, or whether an append that does not fit
    was refused; the length."""
    sizes, steps = case.args
    cache = answer.new("KVCache", *sizes)
    S_max, filled, seen = sizes[1], 0, []
    for step in steps:
        seen.append(
            _step(cache, step, fits=step is not None and filled + step[0].shape[1] <= S_max)
        )
        if step is None:
            filled = 0
        elif filled + step[0].shape[1] <= S_max:
            filled += step[0].shape[1]
    return seen


def _step(cache: Handle, step: Pair | None, fits: bool) -> dict[str, Any]:
    if step is None:
        tell(cache, "reset")
        return {"length after reset": cache.get("length")}
    if not fits:
        refused = refuses(lambda: cache.call("append", *step))
        return {
            "an append that does not fit raises ValueError": refused,
            "length": cache.get("length"),
        }
    held = cache.call("append", *step)
    if not isinstance(held, list | tuple) or len(held) != 2:
        return {"append returned": "something that is not a pair (keys, values)"}
    return {"keys": held[0], "values": held[1], "length": cache.get("length")}


def _script(
    rng: random.Random, name: str, sizes: tuple[int, int, int, int, str], blocks: list[int]
) -> Case:
    """Appends of these many tokens; 0 stands for a reset."""
    B, _, K, H, dtype = sizes

    def block(T: int) -> Pair:
        return normal(rng, B, T, K, H, dtype=dtype), normal(rng, B, T, K, H, dtype=dtype)

    return Case(name, (sizes, [block(T) if T else None for T in blocks]))


def cases(rng: random.Random) -> list[Case]:
    """Filled to the brim, overfilled, refilled; sizes that differ from each other."""
    return [
        _script(rng, "room for 3 tokens: one append of 2", (1, 3, 1, 2, "float32"), [2]),
        _script(rng, "room for 3 tokens: append 1, 2 (now full)", (1, 3, 1, 2, "float32"), [1, 2]),
        _script(
            rng,
            "room for 3 tokens: append 2, 1, then one too many",
            (1, 3, 2, 2, "float32"),
            [2, 1, 1],
        ),
        _script(
            rng,
            "room for 7: append 3, 1, then 4 that do not fit, then 2",
            (2, 7, 3, 5, "float32"),
            [3, 1, 4, 2],
        ),
        _script(
            rng, "room for 5: append 4, reset, append 3, 1", (3, 5, 2, 4, "float32"), [4, 0, 3, 1]
        ),
        _script(
            rng,
            "room for 2: append 3 at once, then 2, reset, 2, 1",
            (1, 2, 3, 2, "float32"),
            [3, 2, 0, 2, 1],
        ),
        _script(rng, "float64, room for 4: append 2, 1", (2, 4, 1, 2, "float64"), [2, 1]),
        _script(
            rng,
            "bfloat16, room for 6: append 1, 4, then 2 that do not fit, 1",
            (2, 6, 1, 3, "bfloat16"),
            [1, 4, 2, 1],
        ),
    ]


EXERCISE = Exercise(
    id="kv_cache-cache",
    title="A KV cache that refuses to overflow",
    kind="kernel",
    points=5,
    minutes=20,
    entries=("KVCache",),
    cases=cases,
    observe=observe,
    reference=Right,
    compare=Tolerance(rtol=0.0, atol=0.0, dtype=True, why=SAME_NUMBERS),
    misconceptions=tuple(wrong),
    hints=(
        (
            "Two buffers [B, S_max, K, H] of the right dtype, and one number: how many tokens they"
            " hold."
        ),
        (
            "In append compute end = length + T first. Compare it with S_max before you touch a"
            " buffer."
        ),
        (
            "getattr(torch, dtype) is the dtype. Write to [:, length:end], then move the pointer,"
            " then return [:, :length]."
        ),
    ),
    recall=(
        "A slice assignment past the end of a torch buffer, one token long: what happens?",
        (
            "Nothing, and no error: the slice is empty and the token is lost. So a cache must check"
            " its room itself."
        ),
    ),
    withholds=("twophase.kernels.kv_cache.KVCache", "twophase.kernels.kv_cache.RaggedKVCache"),
)
