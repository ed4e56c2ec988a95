"""Decode steps of whole models as `bench/decode.py` timed them: in one run on one machine, which is
named. `--json` of that script writes them; pages show them as recorded, beside what runs there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

RECORDED = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class Step:
    """What one way took: the median in seconds, what theory predicts, its share of the fastest
    read; and its time over the peer's, within a round: median, first and third quartile."""

    way: str
    median_s: float
    predicted_s: float
    share: float
    over_peer: tuple[float, float, float] | None


@dataclass(frozen=True)
class Case:
    """One model, context and batch, and what all ways took, in one run on one machine."""

    machine: str
    day: str
    threads: int
    dtype: str
    parameters: int
    layers: int
    B: int
    S: int
    rounds: int
    read_bytes_per_s: float
    product_flops_per_s: float
    peer: str | None
    steps: list[Step]
    T: int = 1  # tokens of each sequence in a pass

    def ours(self) -> Step:
        """Our compiled step in the case's dtype. ValueError where it was not timed."""
        names = (f"ours, compiled, {self.dtype}", "ours, compiled")
        found = {step.way: step for step in self.steps}
        for name in names:
            if name in found:
                return found[name]
        raise ValueError(f"no compiled step of ours was timed in this case: {sorted(found)}.")


def recorded_steps(path: Path = RECORDED) -> list[Case]:
    """The cases in a file, by default in the one that comes with the package. ValueError for a
    file of another making."""
    try:
        return [_case(**found) for found in json.loads(path.read_text(encoding="utf-8"))]
    except (TypeError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path} is no file that `bench/decode.py --json` wrote: {error}"
        ) from None


def _case(steps: Sequence[dict], **rest: object) -> Case:  # type: ignore[type-arg]
    """A case as it was before it was written; a tuple comes back as a list."""
    made = []
    for step in steps:
        over = step["over_peer"]
        made.append(Step(**step | {"over_peer": None if over is None else tuple(over)}))
    return Case(steps=made, **rest)  # type: ignore[arg-type]


def record(case: Case, path: Path) -> None:
    """Put a case into a file of cases, in place of an earlier one of the same."""
    same = ("machine", "threads", "dtype", "layers", "B", "S", "T")
    kept = [
        old
        for old in (recorded_steps(path) if path.exists() else [])
        if any(getattr(old, key) != getattr(case, key) for key in same)
    ]
    text = json.dumps([asdict(each) for each in [*kept, case]], indent=1)
    path.write_text(text + "\n", encoding="utf-8")
