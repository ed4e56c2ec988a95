"""Every exercise before the mutation prover: what its check lets through has a reason, written down
beside it. In `make test` a sample of mutants at one seed, in `make test-more` all of them at
twenty."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from exercise_tools import ALL_IDS, ANSWERS

import twophase.checks
from twophase.checks import registry
from twophase.checks.judge import Bench
from twophase.checks.prove.ranges import arguments, drawn
from twophase.checks.prove.trial import (
    accepted,
    all_mutants,
    benches,
    programs,
    reasons,
    try_all,
)

UNSEEN = 7  # a seed that no notebook has
SAMPLE = 6  # mutants of each exercise in `make test`


@pytest.fixture(scope="module", params=ALL_IDS)
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(registry.load(request.param), UNSEEN)


def test_a_sample_of_mutants_is_killed_or_has_a_reason(bench: Bench) -> None:
    whole = programs(bench.exercise, ANSWERS)
    mutants = next(found for one in whole if (found := all_mutants([one])))  # a table has none
    known = reasons(bench.exercise)
    sample = [m for m in mutants if m[1].key not in known][:: max(1, len(mutants) // SAMPLE)]
    assert sample
    assert not [t.key for t in try_all(sample, [bench]) if t.verdict != "killed"]


def test_both_ends_of_the_ranges_that_the_task_names_are_reached(bench: Bench) -> None:
    assert not [d.name for d in drawn(bench.exercise, [bench]) if d.short]


@pytest.mark.more
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("exercise_id", ALL_IDS)
def test_at_twenty_seeds_right_is_right_and_every_mutant_is_killed_or_has_a_reason(
    exercise_id: str,
) -> None:
    exercise = registry.load(exercise_id)
    made = list(benches(exercise, 20))
    found = programs(exercise, ANSWERS)
    assert accepted(found, made) == found, "a right answer is refused at some seed"
    known = reasons(exercise)
    mutants = all_mutants(found, arguments(made[0]))
    left = {t.key for t in try_all(mutants, made, known) if t.verdict != "killed"}
    assert not left - set(known), "to be killed by a case, or to get a reason"
    mistakes = {m.slug for m in exercise.misconceptions}  # not mutated here, for want of time
    needless = {key for key in set(known) - left if key.partition(":")[0] not in mistakes}
    assert not needless, "in equivalent.toml, and killed or gone"
    assert not [d.name for d in drawn(exercise, made) if d.short], "some seed does not reach"


def _tables() -> list[tuple[str, Path]]:
    root = Path(twophase.checks.__path__[0])
    return [(t, f) for t in registry.topics() if (f := root / t / "equivalent.toml").exists()]


@pytest.mark.parametrize(("topic", "file"), _tables(), ids=lambda x: str(x)[-12:])
def test_reasons_are_given_for_exercises_that_there_are(topic: str, file: Path) -> None:
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    assert set(tables) <= {i.partition("-")[2] for i in registry.ids(topic)}
    for slug, table in tables.items():
        keys = [key for keys in table.values() for key in keys]
        assert len(set(keys)) == len(keys) > 0, f"{slug}: a mutant has two reasons, or none"
        assert all(len(reason.split()) > 2 for reason in table), slug
