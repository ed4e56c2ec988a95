"""No answer may remember its results by what a list holds, in whatever order, where the order
counts: `cache[tuple(sorted(lengths))]`. In each of these exercises two fixed cases differ in
nothing but the order of an argument, at every seed."""

from __future__ import annotations

from typing import Any

import pytest
from exercise_tools import in_fixed_cases

from twophase.checks import registry
from twophase.checks.answer import Handle, LocalAnswer
from twophase.checks.judge import Bench

SEEDS = (0, 11)
ORDERED = {  # at which places arguments stand whose order counts
    "continuous_batching-chart": (0,),  # that of the steps of a slot
    "continuous_batching-finishing": (0,),
    "continuous_batching-pass_time": (0, 1),  # the one list's against the other's
    "continuous_batching-ragged": (3, 4),
    "continuous_batching-step": (0, 1),
    "paging-admit": (0,),
    "paging-attention": (3, 4),
    "paging-block_size": (0,),
    "paging-slots": (0, 1),
    "paging-snippet": (0, 2),
    "paging-waste": (0, 1),
}


def unordered(value: Any) -> Any:
    """What a cache by the sorted list keeps of an argument."""
    if isinstance(value, list):
        return sorted(repr(unordered(one)) for one in value)
    return value


class InAnyOrder:
    """The right answer, asked only once for arguments that are the same but for the order in which
    one of them, and each list in it, stands."""

    def __init__(self, right: LocalAnswer, name: str, at: int) -> None:
        self._right, self._name, self._at = right, name, at
        self._kept: dict[str, Any] = {}

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if name != self._name:
            return self._right.call(name, *args, **kwargs)
        known = [unordered(one) if at == self._at else one for at, one in enumerate(args)]
        key = repr((known, kwargs))
        if key not in self._kept:
            self._kept[key] = self._right.call(name, *args, **kwargs)
        return self._kept[key]

    def new(self, name: str, *args: Any, **kwargs: Any) -> Handle:
        return self._right.new(name, *args, **kwargs)


@pytest.mark.parametrize("exercise_id", ORDERED)
def test_whoever_remembers_by_a_sorted_list_is_refused_by_a_fixed_case(exercise_id: str) -> None:
    exercise = in_fixed_cases(registry.load(exercise_id))
    right = LocalAnswer(exercise.namespace(exercise.reference))
    for seed in SEEDS:
        bench = Bench(exercise, seed)
        for at in ORDERED[exercise_id]:
            answer = InAnyOrder(right, exercise.entries[-1], at)  # the last: others are inputs
            assert not bench.judge(answer, whole=False).right, f"argument {at + 1}, seed {seed}"
