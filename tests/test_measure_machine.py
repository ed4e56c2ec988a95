"""The machine's figures, kept on disk for as long as they describe it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial

import pytest
import torch
from patience import PATIENCE_S
from typer import Typer
from typer.testing import CliRunner

import twophase.measure
from twophase.cli.measure import measure
from twophase.measure import calibrate, probe, stopwatch, yardsticks
from twophase.theory.hardware import Hardware

machine_module = sys.modules[
    "twophase.measure.machine"
]  # the package's attribute of that name is the function


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """A calibration of milliseconds, kept in a folder of its own; yields how often it ran."""
    runs = []

    def tiny(budget_s, progress=None):
        runs.append(budget_s)
        return calibrate(0.02, read_bytes=2**20, gemm_size=64, progress=progress)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine_module, "calibrate", tiny)
    return runs


def test_figures_are_physically_possible():
    shares = []
    found = calibrate(0.05, read_bytes=2**22, gemm_size=128, progress=shares.append)
    assert isinstance(found.hardware, Hardware)
    assert 1e7 < found.hardware.hbm_bytes_per_s < 1e14
    assert {"fp32", "bf16"} <= set(found.hardware.flops_per_s)
    assert all(1e6 < rate < 1e16 for rate in found.hardware.flops_per_s.values())
    assert 1e8 < found.hardware.hbm_bytes < 1e14
    assert found.hardware.measured
    assert found.hardware.critical_intensity("fp32") > 0
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_the_second_call_reads_the_disk_and_fresh_measures_again(quick):
    first = twophase.measure.machine()
    assert twophase.measure.machine() == first
    assert len(quick) == 1
    twophase.measure.machine(fresh=True)
    assert len(quick) == 2


@pytest.mark.parametrize("change", ["threads", "torch", "processor"])
def test_another_machine_is_measured_anew_and_the_old_figures_stay(quick, monkeypatch, change):
    twophase.measure.machine()
    with monkeypatch.context() as patch:
        if change == "threads":
            patch.setattr(torch, "get_num_threads", lambda: 99)
            patch.setattr(torch, "set_num_threads", lambda n: None)  # nor start so many
        elif change == "torch":
            patch.setattr(torch, "__version__", "0.0")
        else:
            patch.setattr(machine_module, "device_name", lambda device: "another processor")
        twophase.measure.machine()
        assert len(quick) == 2
    twophase.measure.machine()
    assert len(quick) == 2


@pytest.mark.parametrize(
    "content", ["", "no json", "[]", '{"KEY": {"hardware": {}}}', '{"KEY": 3}']
)
def test_a_damaged_file_is_measured_over(quick, content):
    path = machine_module.cache_path()
    path.parent.mkdir(parents=True)
    path.write_text(content.replace("KEY", machine_module.fingerprint()))
    first = twophase.measure.machine()
    assert (len(quick), twophase.measure.machine()) == (1, first)


def test_a_cache_that_cannot_be_written_does_not_stop_anyone(quick, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert twophase.measure.machine().measured


def test_a_probe_gives_this_minutes_figures_in_the_same_type(quick, monkeypatch):
    monkeypatch.setattr(machine_module, "buffer_bytes", lambda device: 2**20)
    monkeypatch.setattr(yardsticks, "_gemm_size", lambda dtype, device: 64)
    seen = probe("fp32", budget_s=0.01)
    assert seen.critical_intensity == seen.flops_per_s / seen.bytes_per_s
    assert seen.best_bytes_per_s >= seen.bytes_per_s
    assert seen.best_flops_per_s >= seen.flops_per_s
    now = seen.hardware(twophase.measure.machine())
    assert now.hbm_bytes_per_s == seen.bytes_per_s
    assert now.peak_flops_per_s("fp32") == pytest.approx(seen.flops_per_s)
    with pytest.raises(ValueError, match="known formats: fp32, bf16, int8"):
        probe("fp3")


def test_bandwidth_is_that_of_the_fastest_reader(monkeypatch):
    """Two readers of the same bytes, one of which dawdles, on a clock that only work moves."""
    now = 0.0

    def taking(seconds):
        def work():
            nonlocal now
            now += seconds

        return work, 1e6

    ways = {"slow": taking(4.0), "quick": taking(1.0)}
    by_this_clock = partial(stopwatch, clock=lambda: now)
    with monkeypatch.context() as patch:
        patch.setattr(machine_module, "stopwatch", by_this_clock)
        patch.setattr(machine_module, "gemm", lambda dtype, device: taking(2.0))
        for order in (ways, dict(reversed(ways.items()))):
            patch.setattr(machine_module, "readers", lambda n_bytes, device, o=order: o)
            seen = probe("fp32", budget_s=8.0)
            assert (seen.bytes_per_s, seen.best_bytes_per_s) == (1e6, 1e6)
            assert seen.flops_per_s == 1e6 / 2
    monkeypatch.setattr(yardsticks, "_gemm_size", lambda dtype, device: 64)
    assert set(calibrate(0.02, gemm_size=64).spread) == {
        "read",
        *yardsticks.supported_dtypes("cpu"),
    }


def test_every_reader_reads_the_whole_buffer():
    ways = yardsticks.readers(2**20, "cpu")
    assert set(ways) == {"sum", "max", "matvec", "eight places"}
    for read, n_bytes in ways.values():
        read()
        assert n_bytes == 2**20


def test_the_buffer_is_larger_than_the_cache_and_leaves_memory_free(monkeypatch):
    monkeypatch.setattr(yardsticks, "available_bytes", lambda: 64 * 2**30)
    monkeypatch.setattr(yardsticks, "last_level_cache_bytes", lambda: 300 * 2**20)
    assert yardsticks.buffer_bytes() == 600 * 2**20
    monkeypatch.setattr(yardsticks, "last_level_cache_bytes", lambda: 2**20)
    assert yardsticks.buffer_bytes() == 256 * 2**20
    monkeypatch.setattr(yardsticks, "available_bytes", lambda: 2**30)
    assert yardsticks.buffer_bytes() == 2**27


def test_a_budget_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="budget_s"):
        calibrate(0)


def test_the_command_prints_a_table_or_json(quick):
    app = Typer()
    app.command()(measure)
    shown = CliRunner().invoke(app, ["--fresh"], env={"COLUMNS": "120"})
    assert shown.exit_code == 0, shown.output
    assert "critical intensity" in shown.output
    facts = json.loads(CliRunner().invoke(app, ["--json", "--cached"]).stdout)
    assert len(quick) == 1
    bf16 = facts["formats"]["bf16"]
    assert bf16["critical_intensity_flops_per_byte"] == pytest.approx(
        bf16["flops_per_s"] / facts["read_bytes_per_s"]
    )
    assert bf16["critical_batch_tokens"] == pytest.approx(bf16["critical_intensity_flops_per_byte"])
    fp32 = facts["formats"]["fp32"]
    assert fp32["critical_batch_tokens"] == pytest.approx(
        2 * fp32["critical_intensity_flops_per_byte"]
    )


def test_a_probe_leaves_torch_its_number_of_threads() -> None:
    code = (
        "import torch; torch.set_num_threads(1); from twophase.measure import probe;"
        " probe('fp32', budget_s=0.02); assert torch.get_num_threads() == 1"
    )
    # a fresh process: numba starts its threads once
    free = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_S, env=free)
