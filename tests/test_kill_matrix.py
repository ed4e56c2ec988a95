"""The kill matrix: what every check rejects, names and accepts. Each test runs for every exercise
that exists."""

from __future__ import annotations

import random

import pytest
from exercise_tools import (
    ALL_IDS,
    namespace_of,
    right_answers,
)

from twophase.checks import prove, registry
from twophase.checks.judge import Bench
from twophase.checks.prove.standing import standing

UNSEEN = 7  # a seed that no notebook has; in the notebooks' own, 0, the solutions are run


@pytest.fixture(scope="module", params=ALL_IDS)
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(registry.load(request.param), UNSEEN)


def rejected_and_named(bench: Bench) -> None:
    assert not (wrong := prove.misconceptions(bench)), wrong
    assert not (wrong := prove.separated(bench)), wrong


def test_every_misconception_is_rejected_and_named_and_told_from_all_others(bench: Bench) -> None:
    rejected_and_named(bench)


@pytest.mark.more
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("exercise_id", ALL_IDS)
def test_every_misconception_has_its_name_at_seeds_drawn_afresh(exercise_id: str) -> None:
    """The same twenty would show nothing new the second time; `prove ID --seeds 20` tries them."""
    for seed in random.sample(range(100, 10**6), 6):  # conftest.py seeds it with --draws
        rejected_and_named(Bench(registry.load(exercise_id), seed))


def test_every_right_answer_is_accepted(bench: Bench) -> None:
    """At twenty seeds they are in tests/test_prove_exercises.py."""
    for path in right_answers(bench.exercise.id):
        assert not (wrong := prove.right(bench, namespace_of(path), path.name)), wrong


def test_the_stub_fails_and_is_called_not_written_yet(bench: Bench) -> None:
    assert not (wrong := prove.stub(bench, prove.untouched(bench.exercise))), wrong


@pytest.mark.parametrize("exercise_id", ALL_IDS)
def test_an_exercise_is_complete(exercise_id: str) -> None:
    exercise = registry.load(exercise_id)
    fewest = 3 if exercise.kind == "formula" else 5
    assert len(exercise.misconceptions) >= fewest
    assert not (wrong := prove.complete(exercise)), wrong
    assert len(right_answers(exercise_id)) >= 2
    assert all(m.seen for m in exercise.misconceptions)
    assert exercise.compare.why
    assert 5 <= exercise.minutes <= 40
    assert any(c.public for c in exercise.make_cases(0))


def test_cases_are_the_same_for_the_same_seed_and_fresh_for_another(bench: Bench) -> None:
    again, other = (repr(bench.exercise.make_cases(s)) for s in (UNSEEN, 0))
    assert repr(bench.cases) == again != other


def test_no_answer_passes_that_keeps_something_or_changes_what_it_is_given(bench: Bench) -> None:
    assert not (wrong := standing(bench)), wrong


@pytest.mark.parametrize("topic", registry.topics())
def test_no_two_answers_of_a_notebook_have_one_name(topic: str) -> None:
    """The second would take the first one's place in the kernel."""
    names = [name for i in registry.ids(topic) for name in registry.load(i).entries]
    assert len(names) == len(set(names)), sorted(n for n in set(names) if names.count(n) > 1)
