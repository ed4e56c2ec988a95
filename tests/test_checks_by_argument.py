"""No answer may remember its results by all of its arguments but one: `cache[q, k]`, and v is
forgotten. In each exercise two fixed cases differ in nothing but that argument, at every seed."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from typing import Any

import numpy as np
import pytest
import torch
from exercise_tools import ALL_IDS, in_fixed_cases

from twophase.checks import registry
from twophase.checks.answer import Handle, LocalAnswer
from twophase.checks.exercise import Exercise
from twophase.checks.judge import Bench

SEEDS = (0, 11)
UNKNOWN = "a function or an object"
PLAIN = int | float | str | bool | None
NEEDLESS = "the right result does not depend on it: it is given to those who think so"
Place = tuple[str, int | str]  # a function's name, and where or by which keyword an argument comes

# what changes no right result, by exercise, function and argument, with the reason
UNSEEN: dict[tuple[str, str, str], str] = {
    ("arithmetic_intensity-critical_batch", "critical_batch", "bits_per_activation"): NEEDLESS,
    ("grouped_query_attention-intensity", "intensity", "H"): "it cancels: every term has it once",
    ("kv_cache-kv_bytes", "kv_bytes", "D"): NEEDLESS,
    ("kv_cache-kv_bytes", "kv_bytes", "N"): NEEDLESS,
    ("kv_cache-step_bytes", "step_bytes", "S_max"): NEEDLESS,
    (
        "paging-snippet",
        "reorder",
        "unused",
    ): "these are the blocks that nobody counts, as counts say",
}


def contents(value: Any) -> Any:
    """What a cache keeps of an argument: all of it."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), contents(value.detach().double().numpy())
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype), hashlib.sha256(value.tobytes()).hexdigest()
    if isinstance(value, dict):
        return sorted((repr(key), repr(contents(one))) for key, one in value.items())
    if isinstance(value, list | tuple):
        return type(value).__name__, *map(contents, value)
    return value if isinstance(value, PLAIN) or dataclasses.is_dataclass(value) else UNKNOWN


class Recorded:
    """The right answer. `places`: of each function that is called, which arguments it is given."""

    def __init__(self, right: LocalAnswer) -> None:
        self._right, self.places = right, set[Place]()

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        given = [*range(len(args)), *kwargs]
        self.places |= {(name, place) for place in given if len(given) > 1}
        return self._right.call(name, *args, **kwargs)

    def new(self, name: str, *args: Any, **kwargs: Any) -> Handle:
        return self._right.new(name, *args, **kwargs)


class WithoutOne:
    """The right answer, asked only once for arguments that are the same but for one of them.
    `keeps`: whether it could keep anything, since the others were no functions."""

    def __init__(self, right: LocalAnswer, place: Place) -> None:
        self._right, self._place = right, place
        self._kept: dict[str, Any] = {}
        self.keeps = False

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        given: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
        if name == self._place[0]:
            given.pop(self._place[1], None)
        key = repr((name, contents(given)))
        if name != self._place[0] or UNKNOWN in key:
            return self._right.call(name, *args, **kwargs)
        self.keeps = True
        if key not in self._kept:
            self._kept[key] = self._right.call(name, *args, **kwargs)
        return self._kept[key]

    def new(self, name: str, *args: Any, **kwargs: Any) -> Handle:
        return self._right.new(name, *args, **kwargs)


def right(exercise: Exercise) -> LocalAnswer:
    return LocalAnswer(exercise.namespace(exercise.reference))


def argument_name(exercise: Exercise, place: Place) -> str:
    name, at = place
    if isinstance(at, str):
        return at
    parameters = list(inspect.signature(exercise.namespace(exercise.reference)[name]).parameters)
    return parameters[min(at, len(parameters) - 1)]


@pytest.mark.parametrize("exercise_id", ALL_IDS)
def test_whoever_remembers_by_all_arguments_but_one_is_refused_by_a_fixed_case(
    exercise_id: str,
) -> None:
    exercise = in_fixed_cases(registry.load(exercise_id))
    earns = []
    for seed in SEEDS:
        bench, recorded = Bench(exercise, seed), Recorded(right(exercise))
        assert bench.judge(recorded, whole=False).right
        for place in sorted(recorded.places, key=str):
            answer, argument = WithoutOne(right(exercise), place), argument_name(exercise, place)
            accepted = bench.judge(answer, whole=False).right
            if accepted and answer.keeps and (exercise_id, place[0], argument) not in UNSEEN:
                earns.append(f"{place[0]} without {argument}, seed {seed}")
    assert not earns
