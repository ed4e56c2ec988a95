"""The law of a random answer, by walking every branch of its choices: exact, no sampling, no
tolerance for luck."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from twophase.checks.compare import few
from twophase.protocol import AnswerError

MAX_PATHS = 5_000
MAX_DRAWS = 1_000  # on one path
MAX_OPTIONS = 100_000  # of one draw
TOO_MANY = f"choose was called in more than {MAX_PATHS} different ways; one call per draw is enough"

Choose = Callable[[Any], int]


def law(run: Callable[[Choose], Hashable]) -> dict[Hashable, float]:
    """The probability of every outcome of `run(choose)`.

    `choose(probs)` gives the index that was drawn; the answer may call it any number of times.
    `run` is replayed once for each way the choices can fall, and the probabilities along a path
    multiply. They need not sum to 1: a law that was never normalized shows as one.
    """
    found: dict[Hashable, float] = {}
    pending: list[tuple[int, ...]] = [()]
    for _ in range(MAX_PATHS + 1):
        if not pending:
            return found
        start = pending.pop()
        taken: list[int] = []
        weight = 1.0

        def choose(probs: Any, start: tuple[int, ...] = start, taken: list[int] = taken) -> int:
            nonlocal weight
            mass = _as_floats(probs)
            options = [i for i, p in enumerate(mass) if p > 0]
            if not options:
                raise ValueError("choose was given no probability above zero")
            depth = len(taken)
            if depth < len(start):
                index = start[depth]
            else:
                index = options[0]
                if depth >= MAX_DRAWS or len(pending) + len(options) > MAX_PATHS:
                    raise ValueError(TOO_MANY)
                pending.extend((*taken, other) for other in options[1:])
            taken.append(index)
            weight *= mass[index]
            return index

        outcome = run(choose)
        found[outcome] = found.get(outcome, 0.0) + weight
    raise AnswerError("raised", TOO_MANY)


def _as_floats(probs: Any) -> list[float]:
    try:
        mass = [float(p) for p in few(probs, MAX_OPTIONS)]
    except (TypeError, ValueError):
        raise ValueError(
            "choose(probs) wants a one-dimensional list, array or tensor of probabilities"
        ) from None
    if any(p < 0 or p != p for p in mass):
        raise ValueError(
            "choose was given a negative probability or NaN (inf / inf, after an overflow, is NaN)"
        )
    return mass
