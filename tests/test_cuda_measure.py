"""Meter and stopwatch of what runs on a card, and the card as a machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from device_tools import CARD, needs_a_card

from twophase.measure import Meter, calibrate, machine, probe, race, stopwatch, yardsticks
from twophase.measure.machine import calibration
from twophase.models import checkpoints

pytestmark = needs_a_card
COUNTED = ["mha", "gqa", "mla", "sliding", "cross_layer", "linear", "moe"]


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize(("T", "cached"), [(40, 0), (1, 40)])
def test_the_meter_counts_the_same_for_a_model_on_the_card(name: str, T: int, cached: int) -> None:
    counts = []
    for device in ("cpu", CARD):
        torch.manual_seed(0)
        model = checkpoints.load(name, device=device)
        cache = model.new_cache(2, cached + T)
        tokens = (torch.arange(2 * cached).view(2, cached) % 256).to(device)
        with torch.inference_mode():
            if cached:
                model(tokens, cache)
            new = torch.arange(2 * T).view(2, T).to(device)
            with Meter() as meter:
                model(new, cache)
        counts.append(meter)
    on_cpu, on_card = counts
    assert on_card.matmul_flops == on_cpu.matmul_flops > 0
    # each device has attention kernels of its own, which take masks, strides and widths in ways of
    # their own: copies and paddings of keys and queries differ, and weights do not
    assert on_card.flops == pytest.approx(on_cpu.flops, rel=0.05)
    assert on_card.bytes == pytest.approx(on_cpu.bytes, rel=0.35)


def test_the_meter_counts_what_a_product_on_the_card_moves() -> None:
    w, x = torch.ones(64, 32, device=CARD), torch.ones(8, 32, device=CARD)
    with Meter() as meter:
        x @ w.T
    assert meter.matmul_flops == 2 * 8 * 32 * 64
    assert meter.bytes == 4 * (64 * 32 + 8 * 32 + 8 * 64)


def test_the_stopwatch_waits_for_the_card() -> None:
    a = torch.ones(8192, 8192, device=CARD)
    timing = stopwatch(lambda: a @ a, "a product", budget_s=0.3, warmup=2)
    own_s = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        a @ a
        end.record()
        torch.cuda.synchronize()
        own_s.append(begin.elapsed_time(end) / 1e3)
    # what merely hands the product over returns in microseconds
    assert 0.5 * min(own_s) < timing.median_s < 3 * max(own_s)
    assert timing.fastest_s > 2 * 8192**3 / 2e15  # faster than any card multiplies fp32


def test_a_race_of_small_and_large_tells_them_apart() -> None:
    a, b = torch.ones(256, 256, device=CARD), torch.ones(8192, 8192, device=CARD)
    found = race({"small": lambda: a @ a, "large": lambda: b @ b}, budget_s=0.3)
    assert found.ratio("large", "small") > 10


def test_the_card_is_calibrated_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = calibrate(budget_s=1, device=CARD)
    assert measured.device == CARD
    found = measured.hardware
    assert found.name == torch.cuda.get_device_name()
    assert found.hbm_bytes == torch.cuda.get_device_properties(0).total_memory
    # any card of this decade, and none of the next
    assert 1e11 < found.hbm_bytes_per_s < 2e13
    assert {"fp32", "bf16"} <= found.flops_per_s.keys()
    assert 1e12 < found.flops_per_s["fp32"] < found.flops_per_s["bf16"] < 1e16
    assert yardsticks.default_device() == CARD
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = calibration(budget_s=0.2)
    assert kept.device == CARD
    assert machine() == kept.hardware  # read from disk


def test_a_probe_is_near_the_calibration() -> None:
    seen = probe(device=CARD)
    assert 1e11 < seen.bytes_per_s <= seen.best_bytes_per_s < 2e13
    assert 1e12 < seen.flops_per_s <= seen.best_flops_per_s < 1e16
