"""What the cards say of the family's quality: loss on held-out code, seed by seed, and which
differences the seeds allow one to believe."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, variance
from typing import Any

from twophase.models.checkpoints import FOLDER, card
from twophase.models.config import Config
from twophase.theory.architecture import Architecture


@dataclass(frozen=True)
class Quality:
    """One member of the family: its sizes, and its loss in bits per byte for each seed that it was
    trained with."""

    name: str
    architecture: Architecture
    bits: tuple[float, ...]
    is_upper_bound: bool = False

    @property
    def mean(self) -> float:
        """Mean loss over the seeds, bits per byte."""
        return mean(self.bits)

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest loss."""
        return min(self.bits), max(self.bits)

    def cache_bytes_per_token(self, S: int, bytes_per_kv: float = 2) -> float:
        """Cache bytes of a sequence of S tokens, for each of them: windows and states are shared
        out."""
        return self.architecture.cache_bytes(S, bytes_per_kv) / S  # type: ignore[no-any-return]


def quality(names: Iterable[str], folder: Path = FOLDER) -> dict[str, Quality]:
    """What the cards of these checkpoints say. ValueError as in `checkpoints.card`."""
    return {name: _from_card(name, card(name, folder)) for name in names}


def _from_card(name: str, known: Mapping[str, Any]) -> Quality:
    runs = known.get("seeds") or [known]
    return Quality(
        name,
        Config(**known["config"]).architecture(name),
        tuple(run["held_out_bits_per_byte"] for run in runs),
        bool(known.get("held_out_is_upper_bound")),
    )


def deviation(members: Iterable[Quality]) -> float:
    """The standard deviation of a run over seeds, in bits per byte, pooled over all members that
    have several: what another seed changes. ValueError if none has."""
    several = [m.bits for m in members if len(m.bits) > 1]
    if not several:
        raise ValueError(
            "no member was trained with more than one seed: nothing says how far apart."
        )
    freedom = sum(len(bits) - 1 for bits in several)
    return math.sqrt(sum((len(bits) - 1) * variance(bits) for bits in several) / freedom)


def apart(a: Quality, b: Quality, of_a_run: float) -> float:
    """How many standard errors lie between the means of two members, positive if `b` is worse, when
    every run has the deviation `of_a_run`."""
    error = of_a_run * math.sqrt(1 / len(a.bits) + 1 / len(b.bits))
    return (b.mean - a.mean) / error


def seeds_overlap(a: Quality, b: Quality) -> bool:
    """Whether some seed of each is no worse than some seed of the other. Three seeds each of two
    equal members do not overlap in one case of ten, so that they do not says less than
    `verdict`."""
    return max(min(a.bits), min(b.bits)) <= min(max(a.bits), max(b.bits))


def verdict(a: Quality, b: Quality, of_a_run: float, clear: float = 3) -> str:
    """ "better", "worse" or "no clear difference": a against b. Clear is a difference of at least
    `clear` standard errors; with a handful of runs anything less is found by chance too often. A
    member whose loss is an upper bound may be found better, never worse."""
    errors = apart(a, b, of_a_run)
    if abs(errors) < clear or (b if errors > 0 else a).is_upper_bound:
        return "no clear difference"
    return "better" if errors > 0 else "worse"
