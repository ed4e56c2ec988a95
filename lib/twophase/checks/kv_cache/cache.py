"""kv_cache-cache: a cache that appends, returns what it holds, and refuses to overflow."""

from __future__ import annotations

from typing import ClassVar

import torch

from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Exercise
from twophase.checks.kv_cache._cache_cases import Pair, cases, observe
from twophase.checks.kv_cache._data import SAME_NUMBERS
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


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


@wrong(
    "plausible",
    "After reset the cache is float32 again: torch.zeros needs the dtype there, too. Moving the"
    " pointer back to 0 is enough.",
)
class Float32AfterReset(Right):
    def reset(self) -> None:
        self.keys, self.values = torch.zeros(self.keys.shape), torch.zeros(self.values.shape)
        self.length = 0


@wrong(
    "tensors kept in class attributes or globals",
    "All your caches share one store. Each layer has a cache of its own: keep the tensors in self.",
)
class SharedByAllLayers(Right):
    shared: ClassVar[dict[str, torch.Tensor]] = {}

    def __init__(self, B: int, S_max: int, K: int, H: int, dtype: str) -> None:
        super().__init__(B, S_max, K, H, dtype)
        self.shared.update(keys=self.keys, values=self.values)

    def append(self, k: torch.Tensor, v: torch.Tensor) -> Pair:
        self.keys, self.values = self.shared["keys"], self.shared["values"]
        return super().append(k, v)


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
    ranges={"append.k.shape[1]": (1, 4098), "S_max": (1, 4099)},
    recall=(
        "A slice assignment past the end of a torch buffer, one token long: what happens?",
        (
            "Nothing, and no error: the slice is empty and the token is lost. So a cache must check"
            " its room itself."
        ),
    ),
)
