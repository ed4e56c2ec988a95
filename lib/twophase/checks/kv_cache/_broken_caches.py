"""The caches of kv_cache-cache_tests: two right ones, and one broken in each way that its scripts
must catch."""

from __future__ import annotations

Tokens = list[int]
Answered = Tokens | str  # what a cache says to an append: all it holds, or "refused"


class Cache:
    """A KV cache with the tensors left out: tokens are whole numbers."""

    def __init__(self, S_max: int) -> None:
        self.S_max = S_max
        self.held: Tokens = []

    def append(self, new: Tokens) -> Answered:
        if len(self.held) + len(new) > self.S_max:
            return "refused"
        self.held = self.held + new
        return self.held

    def reset(self) -> None:
        self.held = []


class Buffer(Cache):
    """The same the way a tensor cache does it: a buffer and a pointer."""

    def __init__(self, S_max: int) -> None:
        super().__init__(S_max)
        self.buffer = [0] * S_max
        self.length = 0

    def append(self, new: Tokens) -> Answered:
        if self.length + len(new) > self.S_max:
            return "refused"
        return self.write(new)

    def write(self, new: Tokens) -> Answered:
        self.buffer[self.length : self.length + len(new)] = new
        self.length += len(new)
        return self.buffer[: self.length]

    def reset(self) -> None:
        self.length = 0


class Truncates(Cache):
    def append(self, new: Tokens) -> Answered:
        return super().append(new[: self.S_max - len(self.held)])


class RefusesTheLastPlace(Cache):
    def append(self, new: Tokens) -> Answered:
        return "refused" if len(self.held) + len(new) >= self.S_max else super().append(new)


class OnePlaceTooMany(Cache):
    def append(self, new: Tokens) -> Answered:
        self.S_max += 1
        said = super().append(new)
        self.S_max -= 1
        return said


class LooksAtEachAlone(Cache):
    def append(self, new: Tokens) -> Answered:
        if max(len(self.held) + 1, len(new)) > self.S_max:
            return "refused"
        self.held = self.held + new
        return self.held


class PointerMovesBeforeRefusing(Buffer):
    def append(self, new: Tokens) -> Answered:
        if self.length + len(new) > self.S_max:
            self.length = self.S_max
            return "refused"
        return self.write(new)


class PointerMovesByOne(Buffer):
    def write(self, new: Tokens) -> Answered:
        self.buffer[self.length : self.length + len(new)] = new
        self.length += 1
        return self.buffer[: self.length - 1 + len(new)]


class BlockReversed(Cache):
    def append(self, new: Tokens) -> Answered:
        return super().append(new[::-1])


class OnlyNewTokens(Cache):
    def append(self, new: Tokens) -> Answered:
        return "refused" if super().append(new) == "refused" else new


class ResetKeepsPointer(Buffer):
    def reset(self) -> None:
        self.buffer = [0] * self.S_max


class RefusesForEver(Cache):
    def append(self, new: Tokens) -> Answered:
        said = super().append(new)
        if said == "refused":
            self.S_max = 0
        return said


MUTANTS: dict[str, type[Cache]] = {
    "stores what fits and drops the rest": Truncates,
    "refuses the token that would fill it": RefusesTheLastPlace,
    "takes one token too many": OnePlaceTooMany,
    "refuses only when it is full, or for a block that is longer than S_max": LooksAtEachAlone,
    "moves its pointer before it refuses": PointerMovesBeforeRefusing,
    "moves its pointer by one for a block": PointerMovesByOne,
    "stores a block in reverse": BlockReversed,
    "returns only the new tokens": OnlyNewTokens,
    "keeps its pointer at reset": ResetKeepsPointer,
    "refuses everything after one refusal": RefusesForEver,
}
