"""Nothing but a right answer is right: no constant, no echo, no value that compares oddly, in any
exercise of the course."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from exercise_tools import ALL_IDS

from twophase.checks import registry
from twophase.checks.answer import LocalAnswer, LocalHandle
from twophase.checks.judge import LONGEST_MESSAGE, Bench, Verdict
from twophase.protocol import AnswerError, ProtocolError, roundtrip

Give = Callable[..., Any]


@cache
def bench(exercise_id: str) -> Bench:
    return Bench(registry.load(exercise_id), 7)


class Giving:
    """An answer that returns `give(name, *args)` to whatever it is asked, as it would come over the
    wire."""

    def __init__(self, give: Give) -> None:
        self.give = give

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return roundtrip(self.give(name, *args))

    def get(self, attribute: str) -> Any:
        return roundtrip(self.give(attribute))

    def new(self, name: str, *args: Any, **kwargs: Any) -> Giving:
        return self


def nest(depth: int) -> Any:
    return [nest(depth - 1)] if depth else 0


CONSTANTS: dict[str, Any] = {
    "0": 0,
    "1": 1,
    "-1": -1,
    "-0.0": -0.0,
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "True": True,
    "False": False,
    "None": None,
    "an empty string": "",
    "digits": "0123456789",
    "a label": "healthy",
    "bytes": b"\0" * 9,
    "an empty list": [],
    "an empty tuple": (),
    "an empty dict": {},
    "an empty set": set(),
    "a list of an empty list": [[]],
    "a list of nan": [math.nan],
    "a pair of nan": (math.nan, math.nan),
    "a triple of zeros": [0, 0, 0],
    "ten empty dicts": [{}] * 10,
    "many zeros": [0] * 20_000,
    "a deep nest": nest(30),
    "a dict with odd keys": {None: 1, (1, 2): 2, 1.5: 3, "": 4, True: 5},
    "a huge whole number": 2**4000,
    "1e308": 1e308,
    "a numpy nan": np.float32(math.nan),
    "a numpy truth value": np.bool_(True),
    "a zero-dimensional array": np.zeros((), dtype=np.int8),
    "an empty array": np.zeros(0),
    "rows without columns": np.zeros((10**9, 0)),
    "a wide array": np.zeros((2_000_000, 1), dtype=np.bool_),
    "nan as an array": np.full((3, 3), math.nan),
    "an empty tensor": torch.empty(0),
    "a whole tensor": torch.zeros(2, 2, dtype=torch.int64),
    "nan as tensors": [torch.full((2, 2), math.nan)] * 2,
    "nan as wide tensors": [torch.full((1, 2, 1, 2), math.nan)] * 3,
}


def _raise(*args: Any) -> Any:
    raise AnswerError("raised", "ValueError: no", ("ValueError", "Exception"))


ECHOES: dict[str, Give] = {
    "the first argument": lambda name, *args: _plain(args[0]) if args else None,
    "the last argument": lambda name, *args: _plain(args[-1]) if args else None,
    "all arguments": lambda name, *args: [_plain(a) for a in args],
    "its own name": lambda name, *args: name,
    "always ValueError": _raise,
}


def _plain(value: Any) -> Any:
    return None if callable(value) else value


def judged(exercise_id: str, answer: Any, whole: bool = True) -> Verdict:
    seen = bench(exercise_id).judge(answer, whole)
    assert all(type(o.message) is str and len(o.message) <= LONGEST_MESSAGE for o in seen.outcomes)
    assert seen.points in (0, seen.out_of)
    return seen


until_wrong_or_all = pytest.mark.parametrize(
    "whole", [False, pytest.param(True, marks=pytest.mark.more)], ids=["until wrong", "all cases"]
)


@until_wrong_or_all
@pytest.mark.parametrize("exercise_id", ALL_IDS)
def test_no_constant_is_right(exercise_id: str, whole: bool) -> None:
    for name, constant in CONSTANTS.items():
        answer = Giving(lambda *a, constant=constant: constant)
        assert not judged(exercise_id, answer, whole).right, name


@until_wrong_or_all
@pytest.mark.parametrize("exercise_id", ALL_IDS)
def test_no_echo_is_right(exercise_id: str, whole: bool) -> None:
    assert not [n for n, give in ECHOES.items() if judged(exercise_id, Giving(give), whole).right]


@until_wrong_or_all
@pytest.mark.parametrize("exercise_id", [i for i in ALL_IDS if registry.load(i).observe is None])
def test_the_right_value_of_one_case_is_not_right_for_all(exercise_id: str, whole: bool) -> None:
    for value in bench(exercise_id).expected:
        assert not judged(exercise_id, Giving(lambda *a, value=value: value), whole).right


def _leaf(rng: random.Random) -> Any:
    return rng.choice(list(CONSTANTS.values()))


def hostile(rng: random.Random, depth: int = 3) -> Any:
    """Some value or other: mostly a small collection of odd ones."""
    if depth == 0 or rng.random() < 0.3:
        return _leaf(rng)
    inside = [hostile(rng, depth - 1) for _ in range(rng.randrange(5))]
    return rng.choice(
        (
            inside,
            tuple(inside),
            dict(zip(("m", "S_max", "batch", "kept", ""), inside, strict=False)),
        )
    )


@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.more)])
@pytest.mark.parametrize("exercise_id", ALL_IDS)
def test_values_that_change_from_call_to_call_neither_pass_nor_stop_the_judge(
    exercise_id: str, rounds: int
) -> None:
    rng = random.Random(exercise_id)

    def give(*args: Any) -> Any:
        try:
            return roundtrip(hostile(rng))
        except ProtocolError as e:
            raise AnswerError("not_plain", str(e)) from None

    for _ in range(rounds):  # one round ends at the first wrong case
        assert not judged(exercise_id, Giving(give), whole=rounds > 1).right


def changed(value: Any, how: Callable[[Any], Any]) -> Any:
    """`value` with every number in it replaced by how(number)."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return how(value)
    if isinstance(value, dict):
        return {k: changed(v, how) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(changed(v, how) for v in value)
    if (
        hasattr(value, "dtype")
        and "int" not in str(value.dtype)
        and callable(getattr(value, "tolist", None))
    ):
        return value * math.nan if math.isnan(how(1.0)) else value
    return value


class Spoiled(LocalAnswer):
    """The right answer, of whose numbers none arrives as it was."""

    def __init__(self, namespace: Any, how: Callable[[Any], Any]) -> None:
        super().__init__(namespace)
        self.how = how

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return changed(super().call(name, *args, **kwargs), self.how)

    def new(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return SpoiledHandle(super().new(name, *args, **kwargs), self.how)


class SpoiledHandle:
    def __init__(self, handle: LocalHandle, how: Callable[[Any], Any]) -> None:
        self.handle = handle
        self.how = how

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return changed(self.handle.call(method, *args, **kwargs), self.how)

    def get(self, attribute: str) -> Any:
        return changed(self.handle.get(attribute), self.how)


LABELS = (  # no number in them
    "two_phases-slow_log",
    "latency_throughput-step_log",
    "mixture_of_experts-load_log",
    "local_attention-ring_log",
    "sharding-which_layout",
    "quantization-activation_log",
    "quantization-choose",
    "pruning-healing_log",
    "speculative_decoding-slower",
    "continuous_batching-chart",
    "continuous_batching-p99",
    "paging-counts_log",
)


@pytest.mark.parametrize("exercise_id", [i for i in ALL_IDS if i not in LABELS])
def test_a_right_answer_whose_numbers_are_all_nan_is_wrong(exercise_id: str) -> None:
    exercise = registry.load(exercise_id)
    names = exercise.namespace(exercise.reference)
    assert not judged(exercise_id, Spoiled(names, lambda x: math.nan), whole=False).right
    assert judged(exercise_id, Spoiled(names, lambda x: x)).right


@until_wrong_or_all
@pytest.mark.parametrize("exercise_id", [i for i in ALL_IDS if i not in LABELS])
@pytest.mark.parametrize(
    "how",
    [str, lambda x: None, lambda x: [x], lambda x: 2**4000],
    ids=["str", "None", "[x]", "huge"],
)
def test_a_right_answer_whose_numbers_are_something_else_is_wrong(
    exercise_id: str, how: Callable[[Any], Any], whole: bool
) -> None:
    exercise = registry.load(exercise_id)
    if not _has_numbers(exercise_id):
        pytest.skip("it returns arrays only")
    answer = Spoiled(exercise.namespace(exercise.reference), how)
    assert not judged(exercise_id, answer, whole).right


@cache
def _has_numbers(exercise_id: str) -> bool:
    met: list[Any] = []
    exercise = registry.load(exercise_id)
    judged(
        exercise_id, Spoiled(exercise.namespace(exercise.reference), lambda x: met.append(x) or x)
    )
    return bool(met)
