"""No answer may remember its results by all of its arguments but one: `cache[q, k]`, and v is
forgotten. In each exercise two fixed cases differ in nothing but that argument, at every seed."""

from __future__ import annotations

import pytest
from exercise_tools import ALL_IDS, in_fixed_cases
from memory_tools import NEEDLESS, Recorded, WithoutOne, argument_name, right

from twophase.checks import registry
from twophase.checks.judge import Bench

SEEDS = (0, 11)

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


@pytest.mark.parametrize("exercise_id", ALL_IDS)
def test_whoever_remembers_by_all_arguments_but_one_is_refused_by_a_fixed_case(
    exercise_id: str,
) -> None:
    exercise = in_fixed_cases(registry.load(exercise_id))
    earns = []
    for seed in SEEDS:
        bench, recorded = Bench(exercise, seed), Recorded(right(exercise))
        assert bench.judge(recorded, whole=False).right
        for place in sorted(recorded.arguments, key=str):
            answer, argument = WithoutOne(right(exercise), place), argument_name(exercise, place)
            accepted = bench.judge(answer, whole=False).right
            if accepted and answer.keeps and (exercise_id, place.function, argument) not in UNSEEN:
                earns.append(f"{place.function} without {argument}, seed {seed}")
    assert not earns
