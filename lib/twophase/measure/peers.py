"""The expected time per token beside aiconfigurator's, on the same runs.

`aiconfigurator.csv`: what aiconfigurator 0.12.0 (NVIDIA, Apache-2.0; the release on PyPI, run on
2026-11-22) says that runs of `serving_runs.csv` take, by the number of their line in it. It was
asked as that file's own source describes a run (parallel sizes, formats of products), all else at
its defaults: it answers for TensorRT-LLM 1.3.0rc20, vLLM 0.24.0 and SGLang 0.5.14, newer than what
most runs used. Lines that are missing either are not in the copy of the runs that comes with this
release, or it refused them: they do not fit its memory, or their parallel sizes do not agree.

It looks a run up in tables measured for each operation of each engine on each card. Ours has six
constants, and here those that were fitted without any run on the same card.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from twophase.measure import serving_runs
from twophase.measure.serving_runs import Run
from twophase.theory.expected import kind

ANSWERS = Path(__file__).with_name("aiconfigurator.csv")
VERSION, DATE = "0.12.0", "2026-11-22"


@dataclass(frozen=True)
class Beside:
    """The median misses of the time per token over the same runs of one kind on one chip."""

    chip: str
    kind: str
    n_runs: int
    ours: float
    theirs: float


def read(path: Path = ANSWERS) -> dict[int, float]:
    """Seconds per output token that aiconfigurator expects, by line of `serving_runs.csv`."""
    with path.open(encoding="utf-8", newline="") as file:
        return {int(row["line"]): float(row["tpot_s"]) for row in csv.DictReader(file)}


def compared(runs: Sequence[Run], answers: dict[int, float]) -> list[Beside]:
    """A row for each chip and kind, and one of all chips for each kind."""
    pairs = serving_runs.held_out(runs, serving_runs.LEFT_OUT["chip"])
    misses: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for run, constants in pairs:
        if run.line in answers:
            ours = abs(1 / serving_runs.step_ratio(run, constants) - 1)
            theirs = abs(answers[run.line] / run.tpot_s - 1)
            for chip in (run.hardware, "all"):
                misses.setdefault((chip, kind(run.deployment)), []).append((ours, theirs))
    return [
        Beside(chip, name, len(found), *(median(one) for one in zip(*found, strict=True)))
        for (chip, name), found in sorted(misses.items())
    ]


def main() -> None:
    """Print the table."""
    for row in compared(serving_runs.read(), read()):
        print(
            f"{row.chip:10} {row.kind:8} {row.n_runs:4} runs  ours {row.ours:.0%}"
            f"  aiconfigurator {row.theirs:.0%}"
        )


if __name__ == "__main__":
    main()
