"""Formulas of chapters 3 and 4: no answer may remember results by some of its arguments."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

from twophase.checks import registry
from twophase.checks.judge import Bench

INDEPENDENT = {  # of these arguments the right answer knows nothing
    "kv_cache-kv_bytes": {"1", "2"},  # D and N
    "kv_cache-max_batch": set(),
    "kv_cache-budget": set(),
    "kv_cache-step_bytes": {"2"},  # S_max
    "latency_throughput-bytes_read": set(),
    "latency_throughput-decode_point": set(),
    "latency_throughput-calculator": set(),
    "latency_throughput-cost": set(),
    "latency_throughput-step_time": set(),
}


def _flat(args: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    for i, value in enumerate(args):
        if isinstance(value, dict):
            yield from ((f"{i}.{key}", one) for key, one in value.items())
        else:
            yield str(i), value


@pytest.mark.parametrize("exercise_id", INDEPENDENT)
def test_each_argument_alone_tells_two_cases_with_other_answers_apart(exercise_id: str) -> None:
    bench = Bench(registry.load(exercise_id), 7)
    asked = [
        (dict(_flat(case.args)), expected)
        for case, expected in zip(bench.cases, bench.expected, strict=True)
        if not isinstance(case.args[0], str)  # which asks for `expose`
    ]
    alone = set()
    for (one, said), (other, also) in combinations(asked, 2):
        differ = {k for k in one.keys() | other.keys() if one.get(k) != other.get(k)}
        if len(differ) == 1 and said != also:
            alone |= differ
    assert alone == {key for one, _ in asked for key in one} - INDEPENDENT[exercise_id]
