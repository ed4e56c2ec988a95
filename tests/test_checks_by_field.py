"""No answer may remember its results by all but one field of a dict that it is given:
`cache[config["hidden_size"]]`, and the number of layers is forgotten. In each exercise two fixed
cases differ in nothing but that field, at every seed."""

from __future__ import annotations

from collections import Counter

import pytest
from exercise_tools import ALL_IDS, in_fixed_cases
from memory_tools import NEEDLESS, Place, Recorded, WithoutOne, argument_name, right

from twophase.checks import registry
from twophase.checks.judge import Bench

SEEDS = (0, 11)
MOST = 40  # fields of a dict; what has more keys is a table, and its keys are data

# what changes no right result, by exercise, argument and field, with the reason
UNSEEN: dict[tuple[str, str, str], str] = {
    ("latent_attention-cache_bytes", "config", "qk_nope_head_dim"): NEEDLESS,
    ("latent_attention-cache_bytes", "config", "v_head_dim"): NEEDLESS,
    ("latent_attention-cache_bytes", "config", "q_lora_rank"): NEEDLESS,
    ("latent_attention-cache_bytes", "config", "model_type"): NEEDLESS,
    **{("sharding-which_layout", "m", field): NEEDLESS for field in ("F", "H", "K", "N", "V", "n")},
    ("sharding-which_layout", "m", "L"): "the log says of each event in which layer it was",
}


def few_fields(fields: set[Place]) -> list[Place]:
    """In order, without the keys of tables."""
    n_fields = Counter(place[:2] for place in fields)
    return sorted((place for place in fields if n_fields[place[:2]] <= MOST), key=str)


@pytest.mark.parametrize("exercise_id", ALL_IDS)
def test_whoever_remembers_by_all_fields_of_a_dict_but_one_is_refused_by_a_fixed_case(
    exercise_id: str,
) -> None:
    exercise = in_fixed_cases(registry.load(exercise_id))
    earns = []
    for seed in SEEDS:
        bench, recorded = Bench(exercise, seed), Recorded(right(exercise))
        assert bench.judge(recorded, whole=False).right
        for place in few_fields(recorded.fields):
            answer, argument = WithoutOne(right(exercise), place), argument_name(exercise, place)
            accepted = bench.judge(answer, whole=False).right
            if accepted and answer.keeps and (exercise_id, argument, place.field) not in UNSEEN:
                earns.append(f"{argument} without {place.field!r}, seed {seed}")
    assert not earns
