"""What vLLM said of its own caches when it started, and what that says of the memory it sets aside.

`cache_reports.csv`: fifteen starts that people published with their logs, addresses beside them. An
engine prints the tokens of cache that it has, or the GiB that it has for them; most also print what
its weights take once they are loaded, which is more than the checkpoint where a kernel wants them
padded (gpt-oss). `chunk` and `sequences` are what the command said, else that version's defaults;
before 2025 a step held whole prompts, hence the model's context. What messages cost rests on three
set-ups only, and gpt-oss takes nearly twice what is expected of it.

`python -m twophase.measure.cache_reports` fits the constants in a second, says how far reports lie
that were left out, and writes `theory/engine_memory.json`.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from twophase.theory import catalog, engine_memory
from twophase.theory.deployment import Deployment
from twophase.theory.engine_memory import FITTED, Limits, SetAside
from twophase.theory.hardware import Hardware
from twophase.theory.plan import deployment
from twophase.theory.workload import Workload

REPORTS = Path(__file__).with_name("cache_reports.csv")
GIB, MIB = 2**30, 2**20
LOGIT_BYTES = np.arange(2.0, 61.0)
RUNTIME_GIB = np.arange(0.0, 3.01, 0.1)
MESSAGES_GIB = np.arange(0.0, 8.01, 0.1)


@dataclass(frozen=True)
class Report:
    """One start of an engine: what it was asked for, and the bytes on a chip that it then had for
    caches (below zero: it refused to start)."""

    deployment: Deployment
    limits: Limits
    weight_bytes: float  # as loaded
    cache_bytes: float
    engine: str
    address: str

    @property
    def aside_bytes(self) -> float:
        """What it had set aside."""
        return float(self.deployment.usable_bytes) - self.weight_bytes - self.cache_bytes

    @property
    def activation_bytes(self) -> float:
        """The activations of its largest chunk, by formula."""
        d = self.deployment
        return engine_memory.step_activation_bytes(d.arch, d.w.n_chips, self.limits.chunk)


def read(path: Path = REPORTS) -> list[Report]:
    """The reports of a file with the columns of `cache_reports.csv`."""
    with path.open(encoding="utf-8", newline="") as file:
        return [_report(row) for row in csv.DictReader(file)]


def _report(row: dict[str, str]) -> Report:
    chip = _chip(row["chip"], float(row["memory_mib"]) * MIB)
    w = Workload(
        context=100_000,
        n_chips=int(row["n_chips"]),
        weights=row["weights"],
        attention=row["attention"] or None,
        usable_fraction=float(row["usable"]),
    )
    d = deployment(catalog.model(row["model"]), chip, w)
    tokens = int(row["cache_tokens"] or 0)
    of_tokens = tokens * float(d.cache_bytes(w.context)) / w.context
    return Report(
        deployment=d,
        limits=Limits(int(row["chunk"]), int(row["sequences"])),
        weight_bytes=float(row["weights_gib"] or 0) * GIB or float(d.weight_bytes),
        cache_bytes=float(row["cache_gib"]) * GIB if row["cache_gib"] else of_tokens,
        engine=row["engine"],
        address=row["address"],
    )


def _chip(name: str, memory_bytes: float) -> Hardware:
    """The catalog's chip, or one of which only the memory is known."""
    try:
        return catalog.hardware(name)
    except ValueError:
        like = catalog.hardware("rtx 4090")
        return replace(like, name=name, hbm_bytes=memory_bytes)


def fit(reports: Sequence[Report]) -> tuple[float, float, float]:
    """Bytes for a logit, of the runtime, and for messages, with which what is set aside is missed
    least: the least mean of relative misses over a grid, so that a report far off does not pull
    the others."""
    aside = np.array([r.aside_bytes for r in reports])
    held = np.array([r.activation_bytes for r in reports])
    logits = np.array([r.limits.sequences * r.deployment.arch.V for r in reports])
    several = np.array([r.deployment.w.n_chips > 1 for r in reports])
    step = np.maximum(held, LOGIT_BYTES[:, None] * logits)  # [logit, report]
    fixed = RUNTIME_GIB[:, None] + MESSAGES_GIB[:, None, None] * several[None, None] * [1.0]
    found = step[:, None, None] + fixed[None] * GIB  # [logit, messages, runtime, report]
    misses = np.abs(np.log(found / aside)).mean(axis=-1)
    i, j, k = np.unravel_index(misses.argmin(), misses.shape)
    return float(LOGIT_BYTES[i]), float(RUNTIME_GIB[k] * GIB), float(MESSAGES_GIB[j] * GIB)


def expected_aside(r: Report, constants: tuple[float, float, float]) -> float:
    """What these constants expect that a report's engine set aside."""
    logit, runtime, messages = constants
    runtime += messages if r.deployment.w.n_chips > 1 else 0.0
    sequences, V = r.limits.sequences, r.deployment.arch.V
    return float(engine_memory.set_aside_bytes(r.activation_bytes, sequences, V, logit, runtime))


def held_out(reports: Sequence[Report]) -> list[tuple[Report, float]]:
    """Each report, and the bytes for caches that constants expect which were fitted without any
    report of the same address; weights by formula."""
    found = []
    for address in dict.fromkeys(r.address for r in reports):
        own = fit([r for r in reports if r.address != address])
        for r in (r for r in reports if r.address == address):
            d = r.deployment
            left = float(d.usable_bytes - d.weight_bytes) - expected_aside(r, own)
            found.append((r, max(0.0, left)))
    return found


def fit_all(reports: Sequence[Report]) -> SetAside:
    """The constants of all reports, and how far they are from what they had not seen."""
    logit, runtime, messages = fit(reports)
    pairs = held_out(reports)
    served = [(r, left) for r, left in pairs if r.cache_bytes > 0]
    without = [
        float(r.deployment.usable_bytes - r.deployment.weight_bytes) / r.cache_bytes - 1
        for r, _ in served
    ]
    return SetAside(
        logit_bytes=logit,
        runtime_bytes=runtime,
        messages_bytes=messages,
        missed_of_usable=median(
            abs(left - r.cache_bytes) / float(r.deployment.usable_bytes) for r, left in pairs
        ),
        missed_of_cache=median(abs(left / r.cache_bytes - 1) for r, left in served),
        missed_without=median(without),
        n_reports=len(served),
    )


def main() -> None:
    """Fit, write, and print each report beside what is expected of it."""
    reports = read()
    found = fit_all(reports)
    rounded = {
        k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in asdict(found).items()
    }
    FITTED.write_text(json.dumps(rounded, indent=2) + "\n", encoding="utf-8")
    for r, left in held_out(reports):
        d = r.deployment
        print(
            f"{d.w.n_chips} x {d.chip.name:14} {d.arch.name:16} caches {r.cache_bytes / GIB:6.2f}"
            f" GiB, expected {left / GIB:6.2f} GiB   {r.engine}"
        )
    print(json.dumps(rounded))


if __name__ == "__main__":
    main()
