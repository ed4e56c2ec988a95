"""Properties of chapter 4's checks beyond the kill matrix: labels far from thresholds, the best
choice really the best."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from twophase.checks import registry
from twophase.checks.answer import LocalAnswer
from twophase.checks.judge import judge
from twophase.checks.latency_throughput import (
    _calculators,
    _edges_of_choices,
    _edges_of_logs,
    _logs,
    _serving,
    bytes_read,
    calculator,
    deployment,
    step_log,
)
from twophase.measure.meter import Meter
from twophase.models.transformer import Config, Transformer

LABELS = {
    "preempting": "preempting",
    "preempting, slow as well": "preempting",
    "preempting in one step of twelve": "preempting",
    "overhead": "overhead-bound",
    "overhead of one and a half times": "overhead-bound",
    "overhead after a good start": "overhead-bound",
    "overhead where reading and computing take equally long": "overhead-bound",
    "overhead, and a cap on the batch": "overhead-bound",
    "a cap on the batch": "underfilled",
    "a cap on the batch, felt in two thirds of the steps": "underfilled",
    "a cap on the batch, long prompts": "underfilled",
    "large chunks of prompts": "compute-bound",
    "large chunks in two thirds, long contexts in the others": "compute-bound",
    "short contexts, a large batch": "compute-bound",
}


def more(seed: int) -> Any:
    """A seed that `make test-more` tries as well."""
    return pytest.param(seed, marks=pytest.mark.more)


@pytest.mark.parametrize("seed", range(20))
def test_every_scene_of_the_log_has_the_label_it_was_made_for(seed: int) -> None:
    rng = random.Random(seed)
    for name, scene in _logs.SCENES.items():
        server = _logs.fresh_server(rng)
        events = _logs.fresh_log(rng, server, 24 + seed, **scene)
        assert step_log.EXERCISE.reference(events, server) == LABELS.get(name, "healthy"), name


@pytest.mark.parametrize("edge", _edges_of_logs.EDGES)
def test_every_edge_of_the_log_has_the_label_it_was_made_for(edge: str) -> None:
    label, events, server = _edges_of_logs.EDGES[edge]
    assert step_log.EXERCISE.reference(events, server) == label


@pytest.mark.parametrize("seed", range(20))
def test_no_log_is_near_a_threshold(seed: int) -> None:
    rng = random.Random(seed)
    for name, scene in _logs.SCENES.items():
        server = _logs.fresh_server(rng)
        events = _logs.fresh_log(rng, server, 30, **scene)
        ratios = sorted(step_log._ratios(events, server))
        share = sum(e["preempted"] > 0 for e in events) / len(events)
        assert not 1.7 < ratios[len(ratios) // 2] < 2.3, name
        assert not 0.045 < share < 0.08, name
        for e in events:
            assert not 0.4 < _logs.free(e, server) < 0.6 or e["waiting"] == 0, name
            balance = _logs.compute_s(e, server) / _logs.memory_s(e, server)
            assert not 0.85 < balance < 1.2 or "equally long" in name, name


@pytest.mark.parametrize("seed", range(4))
def test_no_deployment_is_cheaper_than_the_one_called_best(seed: int) -> None:
    fresh = deployment.EXERCISE.make_cases(seed)[len(_edges_of_choices.EDGES) :]
    for case in fresh[:6]:
        w, machines = case.args
        chosen = deployment.best(w, machines)
        m = next(m for m in machines if m["name"] == chosen["machine"])
        least = _serving.price(w, m, chosen["n_chips"], chosen["format"], chosen["batch"])
        for machine in machines:
            for n in range(1, machine["max_chips"] + 1, 2):
                for fmt in w["formats"]:
                    for batch in range(1, w["max_batch"] + 1, 7):
                        if (
                            _serving.fits(w, machine, n, fmt, batch)
                            and _serving.step_s(w, machine, n, fmt, batch) <= w["tpot_limit_s"]
                        ):
                            assert _serving.price(w, machine, n, fmt, batch) >= least * (1 - 1e-12)


@pytest.mark.parametrize("seed", [*range(3), *(more(s) for s in range(3, 25))])
def test_cases_of_the_deployment_can_be_made_from_any_seed(seed: int) -> None:
    assert (
        len(deployment.EXERCISE.make_cases(seed))
        == len(_edges_of_choices.EDGES) + len(deployment.WRONG) + len(deployment.TRAPS) + 4
    )


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        (None, "dict"),
        ({"machine": "plain"}, "keys"),
        ({"machine": "none", "n_chips": 1, "format": "bf16", "batch": 1}, "no machine"),
        ({"machine": "plain", "n_chips": 1, "format": "fp4", "batch": 1}, "does not allow"),
        (
            {"machine": "plain", "n_chips": 9, "format": "bf16", "batch": 1},
            "n_chips must be a whole number",
        ),
        (
            {"machine": "plain", "n_chips": 1, "format": "bf16", "batch": True},
            "batch must be a whole number",
        ),
        (
            {"machine": "plain", "n_chips": 1, "format": "bf16", "batch": 1.0},
            "batch must be a whole number",
        ),
    ],
)
def test_a_choice_that_is_none_is_refused_with_the_reason(choice: object, why: str) -> None:
    verdict = judge(registry.load("latency_throughput-deployment"), {"choose": lambda w, m: choice})
    assert not verdict.right
    assert why in verdict.message


def test_a_choice_within_five_percent_of_the_best_is_right_and_one_beyond_is_not() -> None:
    case = deployment.EXERCISE.make_cases(0)[0]
    w, machines = case.args
    best = deployment.best(w, machines)
    m = next(m for m in machines if m["name"] == best["machine"])
    least = _serving.price(w, m, best["n_chips"], best["format"], best["batch"])
    for batch in range(1, best["batch"] + 1):
        near = _serving.price(w, m, best["n_chips"], best["format"], batch) <= 1.05 * least
        seen = deployment.observe(
            LocalAnswer({"choose": lambda w, m, b=batch: {**best, "batch": b}}), case
        )
        assert (seen["price"] == "within 5% of the best") == near


@pytest.mark.parametrize(
    ("calls", "why"),
    [
        ([], "1 to 10 calls"),
        ([[{}, 1, 1]], "a config is a dict"),
        ([[{**calculator.expose()[0][0], "torch_dtype": "int8"}, 1, 1]], "torch_dtype"),
        ([[{**calculator.expose()[0][0], "hidden_size": 0}, 1, 1]], "sizes"),
        ([[{**calculator.expose()[0][0], "head_dim": None, "hidden_size": 63}, 1, 1]], "multiple"),
        ([[calculator.expose()[0][0], 0, 1]], "B and S"),
        ([[calculator.expose()[0][0], 1]], "triple"),
    ],
)
def test_an_invalid_input_exposes_nothing(calls: object, why: str) -> None:
    assert why in _calculators.problem(calls)


def test_the_printed_calculator_is_eight_times_too_big_for_llama_3_70b() -> None:
    config = calculator._config(80, 8192, 64, "float16", num_key_value_heads=8)
    assert _calculators.PRINTED(config, 1, 8192) == 8 * _calculators.RIGHT(config, 1, 8192)


def metered(model: dict[str, Any], B: int, S: int, bytes_per_value: int) -> int:
    """What the meter counts while a transformer runs one step as if it were one kernel."""
    dtype = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}[bytes_per_value]
    transformer = Transformer(Config(**model)).to(dtype).eval()
    cache = transformer.new_cache(B, S + 3)
    with torch.inference_mode():
        if S:
            transformer(torch.zeros(B, S, dtype=torch.long), cache)
        with Meter() as meter, meter.fused("step"):
            transformer(torch.arange(B).view(B, 1), cache)
    return int(meter.bytes_read)


@pytest.mark.parametrize("seed", [0, more(1)])
def test_the_reference_of_bytes_read_is_what_the_meter_counts(seed: int) -> None:
    run = 0
    for case in bytes_read.EXERCISE.make_cases(seed):
        *_, S, width = case.args
        if width > 1 and S < 1000:  # torch has no transformer in eight bits
            assert bytes_read.reference(*case.args) == metered(*case.args), case.name
            run += 1
    assert run >= 8


def test_the_largest_bytes_need_whole_numbers() -> None:
    large = _calculators.RIGHT(calculator.LARGE, 999_999, 999_983)
    for count in (bytes_read.reference(*bytes_read.BEYOND_FLOATS), large):
        assert count < 2**63
        assert int(float(count)) != count
