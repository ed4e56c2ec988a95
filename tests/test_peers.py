"""The expected column beside another planner's, on the same runs."""

import csv

import pytest

from twophase.measure import peers, serving_runs
from twophase.measure.peers import Beside
from twophase.measure.serving_runs import Run


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return serving_runs.read()


@pytest.fixture(scope="module")
def table(runs: list[Run]) -> list[Beside]:
    return peers.compared(runs, peers.read())


def test_answers_belong_to_lines_of_the_runs(runs: list[Run]) -> None:
    with serving_runs.RUNS.open(encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file))
    answers = peers.read()
    assert len(answers) > 850
    assert min(answers) >= 2
    assert max(answers) <= len(lines)
    heads = lines[0]
    for run in runs[::50]:
        own = dict(zip(heads, lines[run.line - 1], strict=True))
        assert float(own["tpot_s"]) == run.tpot_s
        assert int(own["input_tokens"]) == run.n_prompt


def test_the_expected_column_is_no_farther_off_than_tables_of_every_operation(
    table: list[Beside],
) -> None:
    """Over all chips; the constants had seen no run of the same chip."""
    overall = {row.kind: row for row in table if row.chip == "all"}
    assert overall["dense"].ours < 0.10 < overall["dense"].theirs < 0.20
    assert overall["experts"].ours < 0.20 < overall["experts"].theirs < 0.30
    for kind, row in overall.items():
        assert row.n_runs == sum(r.n_runs for r in table if r.kind == kind and r.chip != "all")


def test_a_chip_s_misses_are_those_of_its_own_runs(runs: list[Run]) -> None:
    own = [run for run in runs if run.hardware == "H100 SXM"][:40]
    others = [run for run in runs if run.hardware != "H100 SXM"]
    answers = {run.line: run.tpot_s * 1.5 for run in own}
    found = peers.compared(own + others, answers)
    assert {row.chip for row in found} == {"H100 SXM", "all"}
    constants = serving_runs.fit(others)
    for row in found:
        assert row.theirs == pytest.approx(0.5)
        pairs = [(run, constants) for run in own]
        miss = serving_runs.median_miss(pairs, row.kind, serving_runs.step_ratio)
        assert row.ours == pytest.approx(miss)
