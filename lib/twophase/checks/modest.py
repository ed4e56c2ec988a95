"""Whether what an answer gave is small enough to be kept until the verdict."""

from __future__ import annotations

from typing import Any

LARGEST_KEPT = 100_000  # parts of a value: many times what any misconception shows


def modest(value: Any) -> bool:
    """Whether a value is small enough to be kept until the verdict: there may be dozens of
    cases."""
    left, todo = LARGEST_KEPT, [value]
    while todo and left > 0:
        one = todo.pop()
        left -= (
            1
            + getattr(one, "nbytes", 0) // 64
            + (len(one) // 64 if isinstance(one, str | bytes) else 0)
        )
        if isinstance(one, dict):
            todo += one.values()
            left -= len(one)
        elif isinstance(one, list | tuple | set):
            todo += one
    return left > 0
