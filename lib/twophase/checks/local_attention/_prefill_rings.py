"""The rings of local_attention-prefill: the printed one, the repaired one, and repairs that go
wrong. Tokens are whole numbers, and a ring says which of them each new one sees."""

from __future__ import annotations

Tokens = list[int]


class Printed:
    """The code of the notebook, word for word."""

    def __init__(self, window):  # type: ignore[no-untyped-def]
        self.slots = [None] * window
        self.length = 0

    def feed(self, tokens):  # type: ignore[no-untyped-def]
        window = len(self.slots)
        for t, token in enumerate(tokens):
            self.slots[(self.length + t) % window] = token
        seen = []
        for t in range(len(tokens)):
            n = min(self.length + t + 1, window)
            seen.append(self.slots[:n])
        self.length += len(tokens)
        return seen


class Right:
    """The repaired ring, in small methods that the wrong ones below replace."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.slots: Tokens = [0] * window
        self.length = 0

    def feed(self, tokens: Tokens) -> list[Tokens]:
        seen = self.sees(tokens)
        for t, token in enumerate(tokens):
            self.slots[(self.length + t) % self.window] = token
        self.length += len(tokens)
        return seen

    def sees(self, tokens: Tokens) -> list[Tokens]:
        """Gathered before the block is stored."""
        before = self.before()
        text = [*before, *tokens]
        ends = range(len(before) + 1, len(text) + 1)
        return [text[max(0, end - self.window) : end] for end in ends]

    def before(self) -> Tokens:
        first = max(0, self.length - self.window + 1)
        return [self.slots[p % self.window] for p in range(first, self.length)]

    def what_is_left(self, tokens: Tokens) -> list[Tokens]:
        """What each token sees if the block was stored first: what it still finds in its window."""
        start, end = self.length, self.length + len(tokens)
        left = range(max(0, end - self.window), end)
        kept = [
            [p for p in left if query - self.window < p <= query] for query in range(start, end)
        ]
        return [
            [tokens[p - start] if p >= start else self.slots[p % self.window] for p in row]
            for row in kept
        ]


class LongPromptStillOverwrites(Right):
    """A block longer than the window is stored before its queries have looked."""

    def sees(self, tokens: Tokens) -> list[Tokens]:
        return self.what_is_left(tokens) if len(tokens) > self.window else super().sees(tokens)


class LaterBlockStillOverwrites(Right):
    """A block that comes behind others, and fits, is stored before its queries have looked."""

    def sees(self, tokens: Tokens) -> list[Tokens]:
        later = self.length > 0 and 1 < len(tokens) <= self.window
        return self.what_is_left(tokens) if later else super().sees(tokens)


class FutureStillSeen(Right):
    """Nothing is lost, but what lies in the first slots is seen, of later tokens, too."""

    def sees(self, tokens: Tokens) -> list[Tokens]:
        rows = super().sees(tokens)
        slots: list[int | None] = [None] * self.window  # which of the new tokens lies there
        for t in range(len(tokens)):
            slots[(self.length + t) % self.window] = t
        for t, row in enumerate(rows):
            n = min(self.length + t + 1, self.window)
            row += [tokens[later] for later in slots[:n] if later is not None and later > t]
        return rows


class OneTooMany(Right):
    def before(self) -> Tokens:
        first = max(0, self.length - self.window)
        return [self.slots[p % self.window] for p in range(first, self.length)]

    def sees(self, tokens: Tokens) -> list[Tokens]:
        before = self.before()
        text = [*before, *tokens]
        ends = range(len(before) + 1, len(text) + 1)
        return [text[max(0, end - self.window - 1) : end] for end in ends]


class WholeTextOfTheBlock(Right):
    def sees(self, tokens: Tokens) -> list[Tokens]:
        before = self.before()
        text = [*before, *tokens]
        return [text[:end] for end in range(len(before) + 1, len(text) + 1)]


class CutToTheWindow(Right):
    def sees(self, tokens: Tokens) -> list[Tokens]:
        """The first tokens of a long block see nothing: they were dropped with their keys."""
        rows = super().sees(tokens)
        dropped = max(0, len(tokens) - self.window)
        return [[] for _ in range(dropped)] + rows[dropped:]


class ForgetsWhatWasBefore(Right):
    def before(self) -> Tokens:
        return []


class OwnTokenLeftOut(Right):
    def sees(self, tokens: Tokens) -> list[Tokens]:
        return [row[:-1] for row in super().sees(tokens)]


class StoredFromSlotZero(Right):
    def feed(self, tokens: Tokens) -> list[Tokens]:
        seen = self.sees(tokens)
        for t, token in enumerate(tokens):
            self.slots[t % self.window] = token
        self.length += len(tokens)
        return seen


FAULTS: dict[str, type[Right]] = {
    "a prompt longer than the window overwrites what its first tokens need": (
        LongPromptStillOverwrites
    ),
    "a block behind others overwrites what its first tokens need": LaterBlockStillOverwrites,
    "slots of later tokens are seen": FutureStillSeen,
}
