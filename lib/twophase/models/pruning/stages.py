"""A model pruned to asked sizes, one kind of unit after the other, each measured on what is
left."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from twophase.models.pruning.cut import Kept, cut
from twophase.models.pruning.importance import UNITS, importance
from twophase.models.pruning.select import keep_best
from twophase.models.transformer import Transformer

Progress = Callable[[str, int, int], None]  # the unit, passes done, passes in all


@dataclass(frozen=True)
class Stage:
    """What one kind of unit was cut to, by what measure, and which stayed."""

    unit: str
    n: int
    measure: str
    kept: Kept

    def facts(self) -> dict[str, Any]:
        """The same as plain data."""
        k = self.kept
        which = {"layers": k.layers, "width": k.width, "heads": k.heads, "channels": k.channels}
        found = which[self.unit]
        plain = {str(i): list(n) for i, n in found.items()} if isinstance(found, Mapping) else found
        return {"unit": self.unit, "n": self.n, "measure": self.measure, "kept": plain}


def prune(
    model: Transformer,
    keep: Mapping[str, int],
    measure: str | None,
    tokens: torch.Tensor,
    seed: int = 1,
    progress: Progress | None = None,
) -> tuple[Transformer, list[Stage]]:
    """A smaller model: layers first, then KV heads with all that read them, channels, and the
    width, as many of each (of every layer) as `keep` says by its name in UNITS.

    No measure: layers, of which there are few, by `leave_one_out`, and the others by the gradient,
    which has a poor opinion of layers. `leave_one_out`, which the width has no seam for, means the
    gradient there. ValueError for another unit or measure, more than there are, and parts that are
    not cut here.
    """
    if unknown := [unit for unit in keep if unit not in UNITS]:
        raise ValueError(f"a unit is one of {', '.join(UNITS)}; got {unknown[0]!r}.")
    stages = []
    for unit in UNITS:
        if unit not in keep:
            continue
        how = measure or ("leave_one_out" if unit == "layers" else "gradient")
        how = "gradient" if (unit, how) == ("width", "leave_one_out") else how

        def tell(done: int, total: int, unit: str = unit) -> None:
            if progress:
                progress(unit, done, total)

        scores = importance(model, tokens, unit, how, seed, tell)
        kept = keep_best(model, scores, unit, keep[unit])
        model = cut(model, kept)
        stages.append(Stage(unit, keep[unit], how, kept))
    return model, stages
