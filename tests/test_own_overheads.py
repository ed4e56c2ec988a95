"""The constants of the reader's own machine: fitted from runs of the course's engine, kept in a
card, used by a plan."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from typer.testing import CliRunner

from twophase.cli.main import build
from twophase.serving import own_overheads as own
from twophase.serving.own_overheads import CASES, LEFT_OUT, Case, OwnOverheads, shape
from twophase.theory import catalog, expected
from twophase.theory.hardware import Hardware

CHIP = Hardware("here", {"fp32": 6e10}, 1e10, 16e9)
SAID = {"layer_s": 3e-4, "layer_s_per_sequence": 7e-5, "prompt_factor": 1.8}


def by_formula(said: dict[str, float]) -> dict[Case, float]:
    """What the formula says that each case takes, from its own terms."""
    found = {}
    for case in (*CASES, LEFT_OUT):
        d, L, B = case.deployment(CHIP), case.config.L, case.batch
        prompts = B / own.N_OUTPUT * expected.prompt_at_peak_s(d)
        added = L * (said["layer_s"] + B * said["layer_s_per_sequence"])
        found[case] = d.mean_step(B).overlapped_s + said["prompt_factor"] * prompts + added
    return found


def test_a_machine_that_obeys_the_formula_gives_its_constants_back() -> None:
    found = own.fitted(CHIP, by_formula(SAID))
    for name, value in SAID.items():
        assert found.overheads[name] == pytest.approx(value, rel=1e-3), name
    assert found.held_out_miss < 1e-3
    assert found.n_runs == len(CASES)


def test_a_run_that_the_formula_misses_is_missed_by_as_much_as_is_said() -> None:
    seconds = by_formula(SAID)
    seconds[LEFT_OUT] *= 2
    found = own.fitted(CHIP, seconds)
    assert found.held_out_miss == pytest.approx(0.5, abs=1e-3)
    assert found.overheads["layer_s"] == pytest.approx(SAID["layer_s"], rel=1e-3)


def test_a_prompt_is_never_said_to_be_quicker_than_the_peak() -> None:
    found = own.fitted(CHIP, by_formula(SAID | {"prompt_factor": 0.4}))
    assert found.overheads["prompt_factor"] == 1.0
    replace(CHIP, overheads=found.overheads)  # a card takes them


def test_no_run_of_the_fit_has_the_model_or_the_batch_of_the_one_that_is_left_out() -> None:
    assert LEFT_OUT.config not in {case.config for case in CASES}
    assert LEFT_OUT.batch not in {case.batch for case in CASES}


def test_a_run_times_requests_while_as_many_are_in_flight() -> None:
    """With a clock that counts its readings the time is the same on every machine."""
    model = own.random_model(shape(2, 128))
    ticks = [
        own.run_s(model, Case(shape(2, 128), B, 8), 6, itertools.count().__next__)
        for B in (1, 1, 3)
    ]
    assert ticks[0] == ticks[1] > 0


def test_running_the_engine_gives_constants_that_a_card_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = tuple(Case(shape(2, 128), B, n) for B, n in ((1, 16), (2, 16), (2, 48), (1, 48)))
    monkeypatch.setattr(own, "CASES", small)
    monkeypatch.setattr(own, "LEFT_OUT", Case(shape(3, 128), 3, 24))
    shares: list[float] = []
    found = own.own_overheads(CHIP, 0.2, shares.append)
    assert replace(CHIP, overheads=found.overheads).overheads == found.overheads
    assert found.measured_s > 0
    assert shares == sorted(shares)
    assert 0 < shares[-1] <= 1


@pytest.mark.parametrize("round_s", [0.02, 0.3, 0.45, 0.7, 3.0])
def test_the_share_that_is_done_never_falls_however_fast_the_machine_is(
    monkeypatch: pytest.MonkeyPatch, round_s: float
) -> None:
    """Of a budget of a second; a clock of its own, that each run moves on."""
    now, step = [0.0], round_s / len((*CASES, LEFT_OUT))

    def run_s(*_: object) -> float:
        now[0] += step
        return 0.1

    monkeypatch.setattr(own, "run_s", run_s)
    monkeypatch.setattr(own, "random_model", lambda config: None)
    monkeypatch.setattr(own, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    shares: list[float] = []
    own.own_overheads(CHIP, 1.0, shares.append)
    assert shares == sorted(shares)
    assert 0.9 < shares[-1] <= 1


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(build(list(arguments)), list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is measured in no time."""
    from twophase.measure import machine as _  # noqa: F401 (the module behind the function)
    from twophase.measure.machine import Calibration

    kept = Calibration(
        replace(CHIP, source="measured here"), {"fp32": 0.0, "read": 0.0}, 1, 1, "cpu"
    )
    monkeypatch.setattr("twophase.cli.measure._calibrate", lambda fresh, quiet: kept)
    said = OwnOverheads(SAID, 0.1, 0.02, 0.021, 12)
    monkeypatch.setattr(own, "own_overheads", lambda chip, progress: said)


@pytest.mark.usefixtures("measured")
def test_a_card_has_the_engine_s_constants_and_plan_uses_them(tmp_path: Path) -> None:
    card = tmp_path / "mine.yaml"
    shown = " ".join(invoke("measure", "--out", str(card)).split())
    assert "missed by 5%" in shown
    kept = yaml.safe_load(card.read_text())
    assert kept["overheads"] == SAID
    assert kept["source"].endswith("12 runs of the course's engine, another missed by 5%")
    asked = ["plan", "--model", "qwen3-0.6b", "--weights", "fp32", "--compute", "fp32", "--json"]
    asked += ["--prompt", "100", "--output", "50", "--batch", "3", "--chip", str(card)]
    found = json.loads(invoke(*asked))
    arch = catalog.model("qwen3-0.6b")
    floor = found["tpot_floor_s"]
    added = arch.L * (SAID["layer_s"] + 3 * SAID["layer_s_per_sequence"])
    prompt_s = arch.prefill_flops(1, 100, head_at_last_only=True) / 6e10
    by_hand = floor + added + SAID["prompt_factor"] * 3 / 50 * prompt_s
    assert found["expected_tpot_s"] == pytest.approx(by_hand)


@pytest.mark.usefixtures("measured")
def test_without_the_engine_a_card_has_rates_alone(tmp_path: Path) -> None:
    card = tmp_path / "mine.yaml"
    invoke("measure", "--out", str(card), "--no-engine")
    assert "overheads" not in yaml.safe_load(card.read_text())
    assert json.loads(invoke("measure", "--json"))["engine"] is None
    assert json.loads(invoke("measure", "--json", "--engine"))["engine"]["prompt_factor"] == 1.8
