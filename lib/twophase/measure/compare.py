"""Predicted beside measured: as a table, and as a line with points."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .tables import Table, si

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Comparison:
    """What was predicted and what was measured, at the same points, in one unit."""

    def __init__(
        self,
        x: Sequence[Any],
        predicted: Sequence[float],
        measured: Sequence[float],
        what: str,
        unit: str,
        at: str,
    ):
        self.x, self.predicted, self.measured = list(x), list(predicted), list(measured)
        self.what, self.unit, self.at = what, unit, at

    @property
    def ratios(self) -> list[float]:
        """measured / predicted at each point; NaN where the prediction is 0 and the measurement is
        not, 1 where both are 0."""
        return [_ratio(m, p) for p, m in zip(self.predicted, self.measured, strict=True)]

    @property
    def worst(self) -> float:
        """The ratio furthest from 1, either way."""
        return max(self.ratios, key=lambda ratio: abs(ratio - 1))

    @property
    def median_ratio(self) -> float:
        """The median of measured / predicted."""
        return statistics.median(self.ratios)

    @property
    def exact(self) -> bool:
        """Whether every measured value is the predicted one, to the last digit."""
        return self.predicted == self.measured

    def table(self) -> Table:
        """One row per point."""
        rows = [
            [x, si(p, self.unit, 4), si(m, self.unit, 4), r]
            for x, p, m, r in zip(self.x, self.predicted, self.measured, self.ratios, strict=True)
        ]
        return Table(rows, [self.at, "predicted", "measured", "measured / predicted"], self.what)

    def draw(self, ax: Axes | None = None, **labels: str) -> Axes:
        """The prediction as a line, the measurement as points. `x` values must be numbers.
        `labels`: `xlabel`, `ylabel`."""
        from . import plots

        axes = ax if ax is not None else plots.figure()[1]
        ylabel = labels.get("ylabel", f"{self.what} [{self.unit}]" if self.unit else self.what)
        plots.line_and_points(
            axes,
            self.x,
            self.predicted,
            self.measured,
            xlabel=labels.get("xlabel", self.at),
            ylabel=ylabel,
        )
        return axes

    def __str__(self) -> str:
        return str(self.table())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def compare(
    predicted: Mapping[Any, float] | Sequence[float] | float,
    measured: Mapping[Any, float] | Sequence[float] | float,
    *,
    x: Sequence[Any] | None = None,
    what: str = "predicted and measured",
    unit: str = "",
    at: str = "case",
) -> Comparison:
    """Lay a prediction beside a measurement.

    Both are mappings with the same keys, sequences of the same length (`x` names the points), or
    single numbers. `what` is the caption, `unit` the values' unit ("s", "B", "FLOP"), `at` says
    what the points are. Raises ValueError if they do not match.
    """
    if isinstance(predicted, Mapping) and isinstance(measured, Mapping):
        if set(predicted) != set(measured):
            odd = sorted(map(str, set(predicted) ^ set(measured)))
            raise ValueError(
                "Predicted and measured must have the same keys; only one of them has"
                f" {', '.join(odd)}."
            )
        return Comparison(
            list(predicted),
            list(predicted.values()),
            [measured[k] for k in predicted],
            what,
            unit,
            at,
        )
    if isinstance(predicted, Mapping) or isinstance(measured, Mapping):
        raise ValueError(
            "Predicted and measured must be two mappings, two sequences or two numbers."
        )
    left = [predicted] if isinstance(predicted, (int, float)) else list(predicted)
    right = [measured] if isinstance(measured, (int, float)) else list(measured)
    points = list(x) if x is not None else list(range(1, len(left) + 1))
    if not len(left) == len(right) == len(points) or not left:
        raise ValueError(
            f"Lengths differ or are 0: {len(left)} predicted, {len(right)} measured, {len(points)}"
            " points."
        )
    return Comparison(points, left, right, what, unit, at)


def _ratio(measured: float, predicted: float) -> float:
    if predicted == 0:
        return 1.0 if measured == 0 else float("nan")
    return measured / predicted
