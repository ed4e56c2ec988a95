"""Recorded decode steps come back as they were measured."""

from dataclasses import replace

import pytest

from twophase.measure.decode_steps import RECORDED, Case, Step, record, recorded_steps

STEPS = [
    Step("ours, compiled", 2e-2, 1.8e-2, 0.9, (0.95, 0.9, 1.0)),
    Step("ours, compiled, int4", 1e-2, 0.7e-2, 0.7, (0.8, 0.75, 0.85)),
    Step("read, sum", 1e-2, 1e-2, 1.0, None),
]
CASE = Case("a CPU", "2026-01-02", 2, "int4", 10, 3, 1, 256, 9, 4e10, 2e11, "llama.cpp", STEPS)


def test_a_case_comes_back_and_takes_the_place_of_an_earlier_one_of_the_same(tmp_path):
    path = tmp_path / "steps.json"
    other, later = replace(CASE, B=16), replace(CASE, rounds=10)
    for case in (CASE, other, later):
        record(case, path)
    assert recorded_steps(path) == [other, later]


def test_our_step_is_the_one_in_the_dtype_of_the_case():
    assert CASE.ours().way == "ours, compiled, int4"
    assert replace(CASE, dtype="bf16").ours().way == "ours, compiled"
    with pytest.raises(ValueError, match="no compiled step"):
        replace(CASE, steps=STEPS[2:]).ours()


@pytest.mark.parametrize("text", ["no json", "[{}]", '[{"steps": 3}]', '[{"steps": []}]'])
def test_another_file_is_refused_in_a_sentence(tmp_path, text):
    path = tmp_path / "steps.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"decode\.py --json"):
        recorded_steps(path)


def test_the_package_brings_steps_whose_quartiles_hold_their_median():
    cases = recorded_steps(RECORDED)
    assert {(case.dtype, case.B) for case in cases} >= {("bf16", 1), ("int4", 1)}
    for case in cases:
        median, low, high = case.ours().over_peer
        assert 0 < low <= median <= high
        assert case.rounds >= 5
