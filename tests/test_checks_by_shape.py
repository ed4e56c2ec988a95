"""No answer may remember its results by the sizes of what it is given: `cache[x.shape]`,
`cache[len(layers)]`. In each exercise two cases have the same sizes and other contents, and that
at every seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from exercise_tools import ALL_IDS, in_fixed_cases

from twophase.checks import registry
from twophase.checks.answer import Handle, LocalAnswer
from twophase.checks.judge import Bench

SEEDS = (0, 11)
LOST, UNKNOWN = "what was in it is lost", "a function or an object"
PLAIN = int | float | str | bool | None
NESTED: Any = list | tuple | dict | torch.Tensor | np.ndarray
ALL, SCALARS, NOTHING = "all that is in lists", "the scalars in a list of such", "nothing"


def sizes(value: Any, lose: str) -> Any:
    """What a cache by shape keeps of an argument: scalars, the keys of dicts, lengths. What is in
    lists is lost if `lose` says so."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return tuple(value.shape), str(value.dtype), LOST
    if isinstance(value, dict):
        return sorted((str(key), repr(sizes(one, lose))) for key, one in value.items())
    if isinstance(value, list | tuple):
        flat = not any(isinstance(one, NESTED) for one in value)
        loses = isinstance(value, list) and (lose == ALL or (lose == SCALARS and flat))
        kept = [LOST] if loses and value else [sizes(one, lose) for one in value]
        return type(value).__name__, len(value), *kept
    return value if isinstance(value, PLAIN) else UNKNOWN


class BySizes:
    """The right answer, asked only once for arguments of the same sizes. `loses`: whether it was
    asked anything of which the sizes are not all."""

    def __init__(self, right: LocalAnswer, lose: str) -> None:
        self._right, self._lose = right, lose
        self._kept: dict[str, Any] = {}
        self.loses = False

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        key = repr((name, sizes(args, self._lose), sizes(kwargs, self._lose)))
        if UNKNOWN in key:
            return self._right.call(name, *args, **kwargs)
        self.loses |= LOST in key
        if key not in self._kept:
            self._kept[key] = self._right.call(name, *args, **kwargs)
        return self._kept[key]

    def new(self, name: str, *args: Any, **kwargs: Any) -> Handle:
        return self._right.new(name, *args, **kwargs)


@pytest.mark.parametrize("exercise_id", ALL_IDS)
def test_whoever_remembers_by_sizes_is_refused_by_a_fixed_case(exercise_id: str) -> None:
    exercise = in_fixed_cases(registry.load(exercise_id))
    for seed in SEEDS:
        bench = Bench(exercise, seed)
        for lose in (ALL, SCALARS, NOTHING):
            answer = BySizes(LocalAnswer(exercise.namespace(exercise.reference)), lose)
            assert bench.judge(answer, whole=False).right is not answer.loses
            if not answer.loses:
                break  # sizes and scalars are all that it is asked
