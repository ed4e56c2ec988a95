"""What `bench/card.py` measured on one accelerator, named and dated: its rates, products with one
matrix, decode steps and prefills of whole models, launches. Pages show it beside what they compute
from a data sheet.

Two files come with the package. `RECORDED` is of two H100, on one day, with one torch: runs whose
facts have `card` are of the second. All others were taken before the library chose a kernel of
attention (`kernels.attention_on_cards`): their steps took torch's choice, whatever their way.
`RECORDED_H200` is newer, of one H200: its steps took the library's choice, but for those whose way
ends with `TORCHS`. Runs with `card` were taken later, perhaps on another H200.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from twophase.theory.hardware import Hardware

RECORDED = Path(__file__).with_suffix(".json")
RECORDED_H200 = RECORDED.with_name("card_runs_h200.json")
FORMATS = ("fp32", "bf16", "int8")  # whose rates a calibration may have found
TORCHS = ", torch's kernel"  # ends the way of a step whose attention took torch's own choice

Fact = float | int | str


@dataclass(frozen=True)
class Card:
    """The device and the software, as they name themselves. `clock`: what the driver said of its
    clocks and its power limit, if it was asked; sizes in bytes, None where nobody says."""

    name: str
    day: str
    memory_bytes: int
    multiprocessors: int | None
    l2_bytes: int | None
    torch: str
    cuda: str | None
    clock: str | None


@dataclass(frozen=True)
class Run:
    """One thing that was timed, one way.

    `sizes`: by the letters of the notation page (B, T, S, D, F, K). `median_s` and the quartiles
    `low_s`, `high_s` are seconds for one call, of `count` samples; None where it failed, and then
    `error` is the sentence. `n_bytes` and `flops` of one call where the bench counts them; of a
    model's step they are for theory to say. `facts`: what else was seen (kernels of a call, rates).
    """

    part: str
    what: str
    way: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    median_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    count: int = 0
    n_bytes: float | None = None
    flops: float | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)
    error: str | None = None

    @property
    def seconds(self) -> float:
        """The median. ValueError, with the reason, for a run that failed."""
        if self.median_s is None:
            raise ValueError(f"{self.what}, {self.way}, {dict(self.sizes)}: {self.error}.")
        return self.median_s

    @property
    def bytes_per_s(self) -> float:
        """Bytes over the median. ValueError where bytes or time are not known."""
        if self.n_bytes is None:
            raise ValueError(f"{self.what}, {self.way}: its bytes were not counted.")
        return self.n_bytes / self.seconds

    @property
    def flops_per_s(self) -> float:
        """FLOPs over the median. ValueError where FLOPs or time are not known."""
        if self.flops is None:
            raise ValueError(f"{self.what}, {self.way}: its FLOPs were not counted.")
        return self.flops / self.seconds

    @property
    def same(self) -> tuple[object, ...]:
        """What a later run of the same takes the place of."""
        return self.part, self.what, self.way, tuple(sorted(self.sizes.items()))


@dataclass(frozen=True)
class Recorded:
    """A card and what was timed on it. `small`: with tiny sizes, which measure nothing."""

    card: Card
    runs: tuple[Run, ...] = ()
    small: bool = False

    def find(
        self, part: str, what: str | None = None, way: str | None = None, **sizes: int
    ) -> list[Run]:
        """The runs of a part that did not fail, in the order they were taken; of one thing, one way
        and of these sizes, where said."""
        return [
            run
            for run in self.runs
            if run.part == part
            and run.error is None
            and what in (None, run.what)
            and way in (None, run.way)
            and all(run.sizes.get(letter) == n for letter, n in sizes.items())
        ]

    def one(self, part: str, what: str, way: str, **sizes: int) -> Run:
        """The run of this name. ValueError where there is none, or it failed."""
        found = self.find(part, what, way, **sizes)
        if not found:
            known = sorted({(run.what, run.way) for run in self.runs if run.part == part})
            raise ValueError(f"no run of {part}: {what}, {way}, {sizes}; it has {known}.")
        return found[-1]

    def hardware(self) -> Hardware:
        """The card with the rates of its calibration. ValueError if it was not calibrated."""
        facts = self.one("calibration", "rates", "as `calibrate` finds them").facts
        rates = {
            f: float(facts[f"{f}_flops_per_s"]) for f in FORMATS if f"{f}_flops_per_s" in facts
        }
        return Hardware(
            name=self.card.name,
            flops_per_s=rates,
            hbm_bytes_per_s=float(facts["read_bytes_per_s"]),
            hbm_bytes=self.card.memory_bytes,
            source="measured, bench/card.py",
            date=self.card.day,
            measured=True,
        )

    def with_run(self, run: Run) -> Recorded:
        """The same with one more run, in place of an earlier one of the same."""
        kept = tuple(old for old in self.runs if old.same != run.same)
        return replace(self, runs=(*kept, run))


def recorded_card(path: Path = RECORDED) -> Recorded:
    """What a file holds, by default the package's of an H100. ValueError for a file of
    another making."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        runs = tuple(Run(**run) for run in found["runs"])
        made = Recorded(Card(**found["card"]), runs, found["small"])
        if not all(isinstance(run.sizes, dict) and isinstance(run.facts, dict) for run in runs):
            raise TypeError("sizes and facts are named")
    except (TypeError, KeyError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is no file that `bench/card.py --out` wrote: {error}") from None
    return made


def write_card(recorded: Recorded, path: Path) -> None:
    """Put it all into a file, which is the old one until the new one is whole."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(asdict(recorded), indent=1) + "\n", encoding="utf-8")
    part.replace(path)
