"""local_attention-ring: a cache that goes round, whatever the chunks."""

from __future__ import annotations

from typing import ClassVar

import torch

from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Exercise
from twophase.checks.local_attention._ring_cases import LONGEST, MOST, Pair, cases, observe
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Tensor = torch.Tensor


class Right:
    """The right answer, in small methods that the wrong ones below replace."""

    def __init__(self, B: int, window: int, K: int, H: int) -> None:
        self.keys = torch.zeros(B, window, K, H)
        self.values = torch.zeros(B, window, K, H)
        self.length = 0

    def append(self, k: Tensor, v: Tensor) -> Pair:
        found = (
            torch.cat([self.before(self.keys), k], dim=1),
            torch.cat([self.before(self.values), v], dim=1),
        )
        self.store(self.keys, k)
        self.store(self.values, v)
        self.length += k.shape[1]
        return found

    def before(self, ring: Tensor) -> Tensor:
        """The tokens before the next, as many as its window has, in the order of the text."""
        window = ring.shape[1]
        first = max(0, self.length - (window - 1))
        return ring[:, [p % window for p in range(first, self.length)]]

    def store(self, ring: Tensor, new: Tensor) -> None:
        window = ring.shape[1]
        for t in range(new.shape[1]):
            ring[:, (self.length + t) % window] = new[:, t]


@wrong(
    "Lightning-AI/litgpt #2182: a prompt longer than the window overwrites what its queries need",
    "You stored the block first and returned the ring: its late tokens had overwritten what its"
    " early queries need. Gather before you store.",
)
class StoredFirst(Right):
    def append(self, k: Tensor, v: Tensor) -> Pair:
        self.store(self.keys, k)
        self.store(self.values, v)
        self.length += k.shape[1]
        held = min(self.length, self.keys.shape[1])
        return self.keys[:, :held], self.values[:, :held]


@wrong(
    "torch.cat and then the last `window` tokens (sliding-window caches)",
    "You cut what you return to `window` tokens. A block of T needs the window − 1 before it and"
    " all T of its own.",
)
class CutToTheWindow(Right):
    def append(self, k: Tensor, v: Tensor) -> Pair:
        window = self.keys.shape[1]
        keys, values = super().append(k, v)
        return keys[:, -window:], values[:, -window:]


@wrong(
    "rings read as they lie",
    "The old tokens come back in the order of their slots: they belong in the order of the text.",
)
class InTheOrderOfSlots(Right):
    def before(self, ring: Tensor) -> Tensor:
        window = ring.shape[1]
        first = max(0, self.length - (window - 1))
        return ring[:, sorted(p % window for p in range(first, self.length))]


wrong.add(
    "a_whole_window_before",
    replaced(Right, {"self.length - (window - 1)": "self.length - window"}),
    "plausible",
    "You returned `window` tokens before the block: its first query is one of its own window, so it"
    " needs window − 1.",
)
wrong.add(
    "two_short",
    replaced(Right, {"self.length - (window - 1)": "self.length - (window - 2)"}),
    "plausible",
    "You returned window − 2 tokens before the block: its first query sees window − 1 besides"
    " itself.",
)
wrong.add(
    "slots_from_zero",
    replaced(Right, {"(self.length + t) % window": "t % window"}),
    "positions that restart in every call",
    "Every block is stored from slot 0 on: the slot of a token is its position in the text, modulo"
    " the window.",
)


@wrong(
    "a slice assignment without the way round",
    "A block that passes the end of the ring was cut there: the rest of it belongs to slot 0 and"
    " on.",
)
class CutAtTheEnd(Right):
    def store(self, ring: Tensor, new: Tensor) -> None:
        window = ring.shape[1]
        slot = self.length % window
        n = min(new.shape[1], window - slot)
        ring[:, slot : slot + n] = new[:, :n]


@wrong(
    "plausible",
    "Of a block longer than the window the first tokens were kept: the last ones stay.",
)
class KeepsTheFirst(Right):
    def store(self, ring: Tensor, new: Tensor) -> None:
        window = ring.shape[1]
        for t in range(min(window, new.shape[1])):
            ring[:, (self.length + t) % window] = new[:, t]


@wrong(
    "shifted caches: the oldest token leaves at slot 0",
    "You shift the tokens, so that the oldest lies in slot 0. In a ring nothing moves: a token"
    " stays in slot p mod window.",
)
class Shifts(Right):
    def before(self, ring: Tensor) -> Tensor:
        window = ring.shape[1]
        held = min(self.length, window)
        return ring[:, max(0, held - (window - 1)) : held]

    def store(self, ring: Tensor, new: Tensor) -> None:
        window = ring.shape[1]
        held = min(self.length, window)
        kept = torch.cat([ring[:, :held], new], dim=1)[:, -window:]
        ring[:, : kept.shape[1]] = kept


@wrong("plausible", "The values that come back are the keys.")
class KeysTwice(Right):
    def append(self, k: Tensor, v: Tensor) -> Pair:
        return super().append(k, k)


@wrong(
    "plausible",
    "`length` stops at the window: it counts all tokens that ever came, or slots cannot be told.",
)
class LengthStops(Right):
    def append(self, k: Tensor, v: Tensor) -> Pair:
        found = super().append(k, v)
        self.length = min(self.length, self.keys.shape[1])
        return found


@wrong(
    "caches that grow",
    "Your buffers grow with the text: a ring has `window` slots, from the first token to the last.",
)
class Grows(Right):
    def store(self, ring: Tensor, new: Tensor) -> None:
        super().store(ring, new)
        if ring is self.values:
            more = torch.zeros_like(new)
            self.keys = torch.cat([self.keys, more], dim=1)
            self.values = torch.cat([self.values, more], dim=1)


@wrong(
    "tensors kept in class attributes or globals",
    "All your rings share one store. Each layer has a ring of its own: keep the tensors in self.",
)
class SharedByAllLayers(Right):
    shared: ClassVar[dict[str, Tensor]] = {}

    def __init__(self, B: int, window: int, K: int, H: int) -> None:
        super().__init__(B, window, K, H)
        self.shared.update(keys=self.keys, values=self.values)

    def append(self, k: Tensor, v: Tensor) -> Pair:
        self.keys, self.values = self.shared["keys"], self.shared["values"]
        return super().append(k, v)


EXERCISE = Exercise(
    id="local_attention-ring",
    title="A ring for the window",
    kind="kernel",
    points=6,
    minutes=25,
    entries=("RingCache",),
    cases=cases,
    observe=observe,
    reference=Right,
    compare=Tolerance(
        rtol=0.0,
        atol=0.0,
        dtype=True,
        why="numbers that are only stored come back bit for bit, in the dtype they had",
    ),
    misconceptions=tuple(wrong),
    hints=(
        (
            "Order matters: what the block's first query needs may lie where its last token goes."
            " Gather first, then store."
        ),
        (
            "Before the block the ring holds positions length − window to length − 1. You need the"
            " last window − 1 of them, at slots p % window."
        ),
        (
            "keys = torch.cat([self.keys[:, [p % window for p in range(first, length)]], k], 1)"
            " with first = max(0, length − window + 1); then token t goes to slot"
            " (length + t) % window."
        ),
    ),
    ranges={"append.k.shape[1]": (1, LONGEST), "window": (1, MOST)},
    recall=(
        "A block comes into a full ring. Why must its keys be gathered before they are stored?",
        (
            "Its last tokens overwrite slots whose old keys its first queries still have in their"
            " windows."
        ),
    ),
)
