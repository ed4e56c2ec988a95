"""What was measured on a card comes back as it was, and `bench/card.py` writes it case by case."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from patience import PATIENCE_S

from twophase.measure.card_runs import (
    RECORDED,
    RECORDED_H200,
    TORCHS,
    Card,
    Recorded,
    Run,
    recorded_card,
    write_card,
)
from twophase.theory.catalog import hardware

ROOT = Path(__file__).parents[1]
CARD = Card("a card", "2026-01-02", 80 * 10**9, 132, 50 * 10**6, "2.11", "13.0", None)
RATES = {"read_bytes_per_s": 3e12, "bf16_flops_per_s": 7e14, "bf16_spread": 0.01}
CALIBRATED = Run("calibration", "rates", "as `calibrate` finds them", facts=RATES)
PRODUCT = Run("rows", "a matrix", "captured", {"B": 4, "D": 8}, 2e-5, 1e-5, 3e-5, 9, 6e7, 8e9)
FAILED = Run("step", "llama", "eager", {"B": 9}, error="OutOfMemoryError: too much")
MADE = Recorded(CARD, (CALIBRATED, PRODUCT, FAILED))


def run_bench(path, *options, small=True):
    """The script on the CPU in tiny sizes, on one thread."""
    command = [sys.executable, str(ROOT / "bench" / "card.py"), "--device", "cpu"]
    command += ["--small"] if small else []
    env = os.environ | {"PYTHONPATH": str(ROOT / "lib"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, "--out", str(path), *options],
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_what_is_written_comes_back(tmp_path):
    path = tmp_path / "card.json"
    write_card(MADE, path)
    assert recorded_card(path) == MADE


def test_rates_are_amounts_over_the_median_and_a_failed_run_says_why():
    assert PRODUCT.bytes_per_s == pytest.approx(3e12)
    assert PRODUCT.flops_per_s == pytest.approx(4e14)
    with pytest.raises(ValueError, match="too much"):
        _ = FAILED.seconds
    with pytest.raises(ValueError, match="bytes were not counted"):
        _ = CALIBRATED.bytes_per_s
    with pytest.raises(ValueError, match="FLOPs were not counted"):
        _ = FAILED.flops_per_s


def test_runs_are_found_by_their_names_and_sizes_without_those_that_failed():
    assert MADE.find("rows") == MADE.find("rows", "a matrix", "captured", B=4) == [PRODUCT]
    assert MADE.find("rows", B=5) == MADE.find("step") == []
    assert MADE.one("rows", "a matrix", "captured", D=8) == PRODUCT
    with pytest.raises(ValueError, match="no run of rows"):
        MADE.one("rows", "a matrix", "eager")


def test_a_later_run_takes_the_place_of_the_same_one():
    later = replace(PRODUCT, median_s=1e-5)
    assert MADE.with_run(later).find("rows") == [later]
    assert len(MADE.with_run(replace(PRODUCT, sizes={"B": 8})).runs) == 4


def test_a_calibrated_card_is_hardware():
    chip = MADE.hardware()
    assert (chip.name, chip.date, chip.measured) == ("a card", "2026-01-02", True)
    assert chip.hbm_bytes_per_s == 3e12
    assert chip.flops_per_s == {"bf16": 7e14}
    with pytest.raises(ValueError, match="no run of calibration"):
        replace(MADE, runs=()).hardware()


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "[]",
        "{}",
        '{"card": {}, "runs": [], "small": false}',
        '{"runs": [3]}',
        '{"runs": [{"part": "a", "what": "b", "way": "c", "sizes": 3}]}',
    ],
)
def test_another_file_is_refused_in_a_sentence(tmp_path, text):
    path = tmp_path / "card.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"card\.py --out"):
        recorded_card(path)


def test_the_script_writes_all_parts_on_a_cpu_in_tiny_sizes(tmp_path):
    path = tmp_path / "card.json"
    done = run_bench(path)
    assert done.returncode == 0, done.stderr
    found = recorded_card(path)
    assert found.small
    assert {run.part for run in found.runs} == {
        *("calibration", "rows", "step", "launches", "prefill", "formats", "attention")
    }
    for run in found.runs:
        assert run.error is None or run.part == "formats", run  # not every processor has these
        if run.median_s is not None:
            assert 0 < run.low_s <= run.median_s <= run.high_s
            assert run.count >= 3
    assert found.hardware().hbm_bytes_per_s > 0
    assert {run.sizes["B"] for run in found.find("step", "llama-2-13b", "eager", S=16)} == {1, 4, 8}
    contexts = {
        way: {run.sizes["S"] for run in found.find("prefill", way=way) if "S" in run.sizes}
        for way in ("eager", "eager" + TORCHS)
    }
    assert contexts == {"eager": {8, 16}, "eager" + TORCHS: {8, 16}}


def test_a_part_is_taken_again_into_the_same_file_but_not_into_one_of_another_card(tmp_path):
    path = tmp_path / "card.json"
    assert run_bench(path, "--only", "rows").returncode == 0
    first = recorded_card(path)
    assert run_bench(path, "--only", "rows").returncode == 0
    assert len(recorded_card(path).runs) == len(first.runs)
    write_card(MADE, path)
    refused = run_bench(path, "--only", "rows")
    assert (refused.returncode, recorded_card(path)) == (1, MADE)
    assert "give another" in refused.stderr


def test_a_file_that_cannot_be_written_or_read_is_said_before_anything_runs(tmp_path):
    (tmp_path / "damaged").write_text('{"card"')
    for path in (tmp_path / "nowhere" / "card.json", tmp_path, tmp_path / "damaged"):
        refused = run_bench(path, "--only", "rows")
        assert refused.returncode == 1
        assert refused.stderr.startswith(str(path))
        assert refused.stderr.count("\n") == 1


def test_a_cpu_runs_the_script_in_tiny_sizes_only(tmp_path):
    path = tmp_path / "card.json"
    refused = run_bench(path, "--only", "rows", small=False)
    assert refused.returncode == 2
    assert "--small" in refused.stderr.splitlines()[-1]
    assert not path.exists()


@pytest.mark.skipif(not RECORDED.exists(), reason="no card was lent yet")
def test_the_package_brings_a_card_whose_rates_are_possible():
    found = recorded_card()
    assert not found.small
    assert json.loads(RECORDED.read_text())["card"]["name"] == found.hardware().name
    assert 1e11 < found.hardware().hbm_bytes_per_s < 1e14
    for run in found.find("rows"):
        assert run.bytes_per_s < 1e14


def test_the_second_card_of_the_package_ran_what_the_library_chooses_and_nothing_else():
    second = [run for run in recorded_card().runs if "card" in run.facts]
    steps = [run for run in recorded_card().find("prefill") if "S" in run.sizes]
    assert {run.same for run in second if run.part == "prefill"} == {
        run.same for run in steps if not run.way.endswith(TORCHS)
    }
    assert [run.way for run in second if run.part != "prefill"] == ["as we choose"]
    kernels = {(run in second, str(run.facts.get("attention_kernel", ""))[:5]) for run in steps}
    assert kernels == {(True, "void "), (True, ""), (False, "cudnn"), (False, "")}


def test_every_step_over_a_long_context_was_timed_with_both_kernels():
    steps = [run for run in recorded_card().find("prefill", "llama-3-8b") if "S" in run.sizes]
    both = {(run.way, run.sizes["S"]) for run in steps}
    ours = {(way, S) for way, S in both if not way.endswith(TORCHS)}
    assert len(ours) == 3 * 6
    assert both == ours | {(way + TORCHS, S) for way, S in ours}


def test_steps_of_the_other_card_took_the_librarys_choice_unless_their_name_says_torchs():
    """The kernel that is called by its name ran on a card; from 4,000 tokens on it won by ever more
    (at 1,000 it lost a little)."""
    card = recorded_card(RECORDED_H200)
    counted = {
        (run.what, run.way): str(run.facts["attention_kernel"])
        for run in card.find("prefill", "llama-3-8b", S=1000) + card.find("step", B=1)
        if "attention_kernel" in run.facts
    }
    assert {way for _, way in counted} >= {"eager", "eager" + TORCHS, "fused, captured"}
    for (_, way), kernel in counted.items():
        assert ("flash_fwd_splitkv" in kernel) != way.endswith(TORCHS), (way, kernel)
    gains = [
        card.one("prefill", "llama-3-8b", "captured" + TORCHS, S=S).seconds
        / card.one("prefill", "llama-3-8b", "captured", S=S).seconds
        for S in (4000, 16_000, 32_000, 64_000, 128_000)
    ]
    assert gains == sorted(gains)
    assert gains[0] > 1


def test_on_the_other_card_the_librarys_choice_of_a_kernel_wins_where_heads_are_few():
    """And is torch's own where they are many."""
    took = {
        (run.sizes["B"], run.sizes["T"], run.way): run.seconds
        for run in recorded_card(RECORDED_H200).find("attention")
    }
    gains = {
        (B, T): took[B, T, "as torch chooses"] / took[B, T, "as we choose"]
        for B, T in {(B, T) for B, T, _ in took}
    }
    assert gains[1, 1] > 5
    others = [gain for at, gain in gains.items() if at != (1, 1)]
    assert len(others) == 3
    assert others == pytest.approx([1.0] * 3, rel=0.03)


def test_two_cards_of_one_torch_have_rates_that_differ_as_their_data_sheets_do():
    """By the sheets only memory differs: reads gain what they promise, products nothing."""
    first, other = recorded_card(), recorded_card(RECORDED_H200)
    assert (first.card.torch, first.card.cuda) == (other.card.torch, other.card.cuda)
    promised = hardware("h200").hbm_bytes_per_s / hardware("h100").hbm_bytes_per_s
    rates = [card.hardware() for card in (first, other)]
    assert rates[1].hbm_bytes_per_s / rates[0].hbm_bytes_per_s == pytest.approx(promised, rel=0.05)
    squares = [
        card.one("calibration", "square product", "bf16, random numbers").flops_per_s
        for card in (first, other)
    ]
    assert squares[1] / squares[0] == pytest.approx(1.0, rel=0.1)
    assert all(run.error is None for run in other.runs)
