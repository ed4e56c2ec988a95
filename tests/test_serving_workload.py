"""Traces come as they were asked for, and are summed up as they went."""

import math
from pathlib import Path

import numpy as np
import pytest

from twophase.models.transformer import Config, Transformer
from twophase.serving import EngineConfig, record
from twophase.serving.engine import Engine
from twophase.serving.simulation import SimulatedRunner, VirtualClock, replay
from twophase.serving.workload import (
    Arrival,
    Lengths,
    arrivals,
    load_trace,
    percentiles,
    recorded,
    save_trace,
    stretched,
    summarize,
)

TINY = Config(L=1, D=8, F=8, N=1, K=1, H=8, V=256)

PROMPTS, OUTPUTS = Lengths(20, 2.0, 100), Lengths(10, 1.5, 40)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_rate_and_the_burstiness_that_were_asked_for(burstiness: float) -> None:
    """20,000 of them: within 5 % and 15 %, some five standard errors each."""
    trace = arrivals(5.0, 20_000, Lengths(1, 1.0, 1), Lengths(1, 1.0, 1), burstiness=burstiness)
    gaps = np.diff([0.0, *(one.at_s for one in trace)])
    assert gaps.mean() == pytest.approx(1 / 5, rel=0.05)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(burstiness, rel=0.15)


def test_lengths_lie_about_their_median() -> None:
    trace = arrivals(1.0, 4000, PROMPTS, OUTPUTS)
    found = np.array([len(one.prompt) for one in trace])
    assert np.median(found) == pytest.approx(20, abs=1)
    assert np.mean((found >= 10) & (found <= 40)) == pytest.approx(0.68, abs=0.04)
    assert found.min() >= 1
    assert found.max() == 100
    assert arrivals(1.0, 9, PROMPTS, OUTPUTS) == trace[:9]


@pytest.mark.parametrize(
    ("median", "spread", "longest"),
    [(0, 2.0, 5), (1.5, 2.0, 5), (6, 2.0, 5), (3, 0.5, 5), (3, math.nan, 5), (3, math.inf, 5)],
)
def test_lengths_that_no_log_normal_law_has_are_refused(
    median: int, spread: float, longest: int
) -> None:
    with pytest.raises(ValueError, match="at least"):
        Lengths(median, spread, longest)


def test_a_percentile_of_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN is among them"):
        percentiles([1.0, math.nan, 2.0])


def test_a_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    trace = arrivals(1.0, 9, PROMPTS, OUTPUTS)
    save_trace(trace, tmp_path / "trace.jsonl")
    assert load_trace(tmp_path / "trace.jsonl") == trace
    (tmp_path / "short.jsonl").write_text('{"at_s": 1, "n_prompt": 3, "n_output": 2}')
    assert load_trace(tmp_path / "short.jsonl") == [Arrival(1.0, (0, 0, 0), 2)]


@pytest.mark.parametrize("line", ["{}", "7", "{", '{"at_s": 1, "n_prompt": 0, "n_output": 1}'])
def test_a_line_that_is_no_arrival_is_refused_by_its_number(tmp_path: Path, line: str) -> None:
    (tmp_path / "t.jsonl").write_text('{"at_s": 1, "n_prompt": 3, "n_output": 2}\n' + line)
    with pytest.raises(ValueError, match=r"line 2 of t\.jsonl is no arrival"):
        load_trace(tmp_path / "t.jsonl")


def test_percentiles_are_values_that_occurred() -> None:
    assert percentiles(list(range(1, 101))) == {50: 50, 95: 95, 99: 99}
    assert percentiles([3.0]) == {50: 3.0, 95: 3.0, 99: 3.0}
    assert percentiles([2.0, 1.0]) == {50: 1.0, 95: 2.0, 99: 2.0}
    assert all(math.isnan(value) for value in percentiles([]).values())
    values = np.random.default_rng(0).normal(size=997)
    for p, found in percentiles(values.tolist()).items():
        assert found == np.percentile(values, p, method="inverted_cdf")


def test_a_summary_is_what_a_person_would_count() -> None:
    clock = VirtualClock()
    engine = Engine(SimulatedRunner(lambda s, n: 1.0, clock), EngineConfig(8, 4, 2, 8), clock=clock)
    requests = replay(engine, [Arrival(0.0, (0,), 3), Arrival(0.0, (0,), 1)], clock)
    found = summarize(requests)
    assert (found.tokens_per_s, found.requests_per_s) == (4 / 3, 2 / 3)
    assert found.ttft_s[99] == 1.0
    assert found.latency_s[99] == 3.0
    with pytest.raises(ValueError, match="no request has a token"):
        summarize([])


@pytest.mark.parametrize("wrong", [{"per_s": 0.0}, {"per_s": 1.0, "burstiness": 0.0}])
def test_a_rate_that_is_none_is_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match="a rate and a burstiness are positive"):
        arrivals(n=3, prompts=PROMPTS, outputs=OUTPUTS, **wrong)


def test_in_the_recorded_trace_users_ask_again_with_what_was_answered() -> None:
    trace = recorded()
    assert len(trace) == 36
    assert [one.at_s for one in trace] == sorted(one.at_s for one in trace)
    begins = [
        any(one.prompt[: len(b.prompt)] == b.prompt for b in trace[:i])
        for i, one in enumerate(trace)
    ]
    assert 16 <= sum(begins) <= 24  # a text that has grown too long is begun anew
    assert max(len(one.prompt) for one in trace) <= 480
    assert len({one.n_output for one in trace}) > 10


def test_a_stretched_trace_has_the_same_requests_at_other_times() -> None:
    trace = recorded()
    slower = stretched(trace, 2.0)
    assert [one.at_s for one in slower] == [2 * one.at_s for one in trace]
    assert [one.prompt for one in slower] == [one.prompt for one in trace]
    with pytest.raises(ValueError, match="positive factor"):
        stretched(trace, 0.0)


def test_a_recording_is_the_same_each_time_and_nobody_asks_before_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record, "USERS", 2)
    monkeypatch.setattr(record, "TURNS", 2)
    model = Transformer(TINY)
    first, second = record.record(model), record.record(model)
    assert first == second
    assert len(first) == 4
    assert first[-1].at_s > first[0].at_s
