"""The caches of kv_cache-snippet: the printed one, the repaired one, and repairs that go wrong."""

from __future__ import annotations

import torch

Tensor = torch.Tensor


class Printed:
    """The code of the notebook, word for word: all three faults."""

    def __init__(self, n_sequences, S_max, K, H, dtype):  # type: ignore[no-untyped-def]
        self.k = torch.zeros(n_sequences, S_max, K, H)
        self.v = torch.zeros(n_sequences, S_max, K, H)
        self.length = 0

    def update(self, rows, k, v):  # type: ignore[no-untyped-def]
        end = self.length + k.shape[1]
        self.k[rows, self.length : end] = k
        self.v[rows, self.length : end] = v
        self.length = end

    def read(self, b):  # type: ignore[no-untyped-def]
        return self.k[b, : self.length], self.v[b, : self.length]


class Right:
    """The repaired cache, in small methods that the wrong ones below replace."""

    def __init__(self, n_sequences: int, S_max: int, K: int, H: int, dtype: str) -> None:
        self.k = torch.zeros(n_sequences, S_max, K, H, dtype=getattr(torch, dtype))
        self.v = torch.zeros_like(self.k)
        self.lengths = [0] * n_sequences

    def update(self, rows: list[int], k: Tensor, v: Tensor) -> None:
        self.check(rows, k.shape[1])
        for i, b in enumerate(rows):
            self.store(b, k[i], v[i])

    def check(self, rows: list[int], T: int) -> None:
        if max(self.lengths[b] for b in rows) + T > self.k.shape[1]:
            raise ValueError("full")

    def store(self, b: int, k: Tensor, v: Tensor) -> None:
        start = self.lengths[b]
        self.k[b, start : start + len(k)], self.v[b, start : start + len(k)] = k, v
        self.lengths[b] += len(k)

    def read(self, b: int) -> tuple[Tensor, Tensor]:
        return self.k[b, : self.lengths[b]], self.v[b, : self.lengths[b]]


class LengthStillShared(Right):
    """Fault 1 alone: one length for all sequences."""

    def update(self, rows: list[int], k: Tensor, v: Tensor) -> None:
        super().update(rows, k, v)
        self.lengths = [self.lengths[rows[0]]] * len(self.lengths)


class OverflowStillLost(Right):
    """Fault 2 alone: nobody looks whether there is room."""

    def check(self, rows: list[int], T: int) -> None:
        pass


class StillFloat32(Right):
    """Fault 3 alone: the dtype is ignored."""

    def __init__(self, n_sequences: int, S_max: int, K: int, H: int, dtype: str) -> None:
        super().__init__(n_sequences, S_max, K, H, "float32")


class Truncates(Right):
    def update(self, rows: list[int], k: Tensor, v: Tensor) -> None:
        for i, b in enumerate(rows):
            room = self.k.shape[1] - self.lengths[b]
            self.store(b, k[i, :room], v[i, :room])


class HalfRefused(Right):
    def check(self, rows: list[int], T: int) -> None:
        pass

    def store(self, b: int, k: Tensor, v: Tensor) -> None:
        if self.lengths[b] + len(k) > self.k.shape[1]:
            raise ValueError("full")
        super().store(b, k, v)


class AllMustHaveRoom(Right):
    def check(self, rows: list[int], T: int) -> None:
        super().check(list(range(len(self.lengths))), T)


class FirstMustHaveRoom(Right):
    def check(self, rows: list[int], T: int) -> None:
        super().check(rows[:1], T)


class FirstRowsWritten(Right):
    def update(self, rows: list[int], k: Tensor, v: Tensor) -> None:
        super().update(list(range(len(rows))), k, v)


FAULTS: dict[str, type[Right]] = {
    "one length for all sequences": LengthStillShared,
    "no look at the room": OverflowStillLost,
    "the dtype is ignored": StillFloat32,
}
