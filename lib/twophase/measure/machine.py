"""The reader's own machine as a `Hardware`: how fast it reads memory, how fast it multiplies
matrices.

Calibrated once in about 20 s and kept on disk. Shared machines drift from minute to minute, so
`probe()` asks again, in a third of a second, beside each measurement.

Read bandwidth is that of the fastest reader there is, over a buffer larger than the last-level
cache: torch's sum or maximum, or on a CPU the course's own matrix times vector or squares from
eight places. FLOP/s are those of a square GEMM that takes some tens of milliseconds. A calibrated
rate is the upper quartile of many samples, reached one time in four, so that interruptions do not
lower it; below the data sheet's. So a time computed from it is one that few runs undercut, torch's
and ours alike. A probe is a median: how things are now; its `best` is the fastest sample.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path

import torch

from twophase.theory.arithmetic_intensity import critical_intensity
from twophase.theory.hardware import Hardware

from .stopwatch import stopwatch
from .system import device_name, memory_bytes
from .yardsticks import Work, buffer_bytes, default_device, gemm, readers, supported_dtypes

SCHEMA = 8

Progress = Callable[[float], None]


@dataclass(frozen=True)
class Calibration:
    """A machine and how steadily it was measured: `spread` is the distance of the quartiles as a
    share of the median."""

    hardware: Hardware
    spread: dict[str, float]
    buffer_bytes: int
    threads: int
    device: str


@dataclass(frozen=True)
class Probe:
    """What the machine does at this minute: medians, and `best_...`, the fastest seen."""

    bytes_per_s: float
    flops_per_s: float
    dtype: str
    best_bytes_per_s: float
    best_flops_per_s: float

    @property
    def critical_intensity(self) -> float:
        """FLOPs per byte at which compute and memory take equally long, now."""
        return float(critical_intensity(self.flops_per_s, self.bytes_per_s))

    def hardware(self, base: Hardware | None = None) -> Hardware:
        """This machine with the probe's figures in place of the calibrated ones: other formats are
        scaled by the same drift."""
        known = base or machine()
        drift = self.flops_per_s / known.peak_flops_per_s(self.dtype)
        rates = {dtype: rate * drift for dtype, rate in known.flops_per_s.items()}
        return replace(
            known, flops_per_s=rates, hbm_bytes_per_s=self.bytes_per_s, source="probed here"
        )


def machine(fresh: bool = False) -> Hardware:
    """This machine, calibrated on first use and then read from disk; `fresh=True` calibrates it
    again (about 20 s)."""
    return calibration(fresh).hardware


def calibration(
    fresh: bool = False, budget_s: float = 20.0, progress: Progress | None = None
) -> Calibration:
    """As `machine`, with spreads. Another processor, thread count or torch release is another
    machine and is measured anew."""
    key = fingerprint()
    if not fresh:
        kept = _load(key)
        if kept is not None:
            return kept
    measured = calibrate(budget_s, progress=progress)
    _save(key, measured)
    return measured


def probe(dtype: str = "bf16", budget_s: float = 0.3, device: str | None = None) -> Probe:
    """Read bandwidth and GEMM rate now, from `budget_s` seconds (the first call also fills a
    buffer).

    Raises ValueError for a format that this machine's torch does not multiply.
    """
    device = device or default_device()
    reads, product = readers(buffer_bytes(device), device), gemm(dtype, device)

    def rates(work: Work, share: float) -> tuple[float, float]:
        function, amount = work
        timing = stopwatch(function, "probe", budget_s=budget_s * share, warmup=1, min_rounds=1)
        return amount / timing.median_s, amount / timing.fastest_s

    read = [rates(reader, 0.5 / len(reads)) for reader in reads.values()]
    flops_per_s, best_flops_per_s = rates(product, 0.5)
    bytes_per_s, best_bytes_per_s = map(max, zip(*read, strict=True))
    return Probe(bytes_per_s, flops_per_s, dtype, best_bytes_per_s, best_flops_per_s)


def calibrate(
    budget_s: float = 20.0,
    *,
    read_bytes: int | None = None,
    gemm_size: int | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Measure this machine now, for about `budget_s` seconds, without looking at the disk.

    `read_bytes` and `gemm_size` replace the sizes chosen for it. All rates are sampled in turn, so
    that they share the weather. `progress` is called with the share of the budget that is spent.
    Raises ValueError for a budget that is not positive.
    """
    if budget_s <= 0:
        raise ValueError(
            f"budget_s is {budget_s}; calibrating takes some seconds, give a positive number."
        )
    device = device or default_device()
    start = time.perf_counter()
    n_bytes = read_bytes or buffer_bytes(device)
    reads = readers(n_bytes, device)
    works = reads | {d: gemm(d, device, gemm_size) for d in supported_dtypes(device)}
    rates: dict[str, list[float]] = {name: [] for name in works}
    spent = 0.0
    while spent < budget_s or min(map(len, rates.values())) < 3:
        for name, (function, amount) in works.items():
            timing = stopwatch(function, name, budget_s=budget_s / 200, warmup=1, min_rounds=1)
            rates[name].append(amount / timing.median_s)
        spent = time.perf_counter() - start
        if progress:
            progress(min(1.0, spent / budget_s))
    reached = {name: _quartiles(seen)[1] for name, seen in rates.items()}
    fastest = max(reads, key=reached.__getitem__)
    hardware = Hardware(
        name=device_name(device),
        flops_per_s={name: rate for name, rate in reached.items() if name not in reads},
        hbm_bytes_per_s=reached[fastest],
        hbm_bytes=_capacity(device),
        source="measured here",
        date=date.today().isoformat(),
        measured=True,
    )
    spread = {name: _spread(seen) for name, seen in rates.items() if name not in reads}
    return Calibration(
        hardware,
        spread | {"read": _spread(rates[fastest])},
        n_bytes,
        torch.get_num_threads(),
        device,
    )


def cache_path() -> Path:
    """Where calibrations are kept: `twophase/machine.json` in the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "twophase" / "machine.json"


def fingerprint() -> str:
    """A digest of what a calibration depends on: device, threads, torch release, how it is
    measured."""
    facts = [
        SCHEMA,
        device_name(default_device()),
        os.cpu_count(),
        torch.get_num_threads(),
        torch.__version__,
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def _capacity(device: str) -> int:
    return (
        int(torch.cuda.get_device_properties(0).total_memory)
        if device == "cuda"
        else memory_bytes()
    )


def _quartiles(seen: list[float]) -> tuple[float, float]:
    low, _, high = statistics.quantiles(seen, n=4, method="inclusive")
    return low, high


def _spread(seen: list[float]) -> float:
    low, high = _quartiles(seen)
    return (high - low) / statistics.median(seen)


def _load(key: str) -> Calibration | None:
    """A kept calibration; None if there is none, or the file cannot be read."""
    try:
        entry = json.loads(cache_path().read_text())[key]
        return Calibration(**{**entry, "hardware": Hardware(**entry["hardware"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _save(key: str, measured: Calibration) -> None:
    """Keep a calibration beside those of other set-ups; a cache directory that cannot be written is
    no reason to stop."""
    path = cache_path()
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError):
        kept = {}
    kept = kept if isinstance(kept, dict) else {}
    kept[key] = asdict(measured)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False) as file:
            json.dump(kept, file, indent=1)
        os.replace(file.name, path)
    except OSError:
        return
