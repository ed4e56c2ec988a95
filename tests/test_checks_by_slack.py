"""No answer may forgive a limit that is missed by a millionth, or take two of nearly the same cost
for equals: in each exercise that compares floats, fixed cases lie just beyond its limits."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from exercise_tools import ALL_IDS, ANSWERS, in_fixed_cases

from twophase.checks import registry
from twophase.checks.judge import Bench
from twophase.checks.prove.slack import near_misses, touched
from twophase.checks.prove.sources import Names, Program, answers
from twophase.checks.prove.trial import LONGEST_S, failed

SEED = 11

# near misses that are no errors: of an exercise, and for each reason their keys
REASONS: dict[str, dict[str, list[str]]] = tomllib.loads(
    (Path(__file__).parent / "near_misses.toml").read_text(encoding="utf-8")
)


def _accepted(bench: Bench, program: Program) -> Iterator[str]:
    """The near misses of a right answer that earn its points."""
    made: list[Names] = []

    def names(source: str) -> Names:
        made.append(program.names(source))
        return made[-1]

    seen = dataclasses.replace(program, names=names)
    for near in near_misses(program):
        if failed(seen, near.source, bench, LONGEST_S) is None and touched(made[-1]):
            yield near.key


@pytest.mark.parametrize("exercise_id", ALL_IDS)
def test_whoever_forgives_a_millionth_is_refused_by_a_fixed_case(exercise_id: str) -> None:
    exercise = registry.load(exercise_id)
    bench = Bench(in_fixed_cases(exercise), SEED)
    earns = [key for one in answers(exercise, ANSWERS) for key in _accepted(bench, one)]
    right = {key for keys in REASONS.get(exercise_id, {}).values() for key in keys}
    assert not set(earns) - right, "to be refused by a fixed case, or to get a reason"
    assert not right - set(earns), "in near_misses.toml, and refused or gone"
