"""A prediction beside the clock: what the learner's answer says is recorded first, then this
machine is timed. Nothing is judged here: the clock earns no points and costs none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from twophase.lab import record
from twophase.lab.shown import LabError
from twophase.protocol import NotYet

if TYPE_CHECKING:
    from twophase.measure import Table

Predict = Callable[[], Mapping[str, float]]
Prepare = Callable[[], Callable[[], object]]
BUDGET_S = 0.6


def predict_then_time(
    exercise_id: str, predict: Predict, prepare: Mapping[str, Prepare]
) -> Table | None:
    """See `twophase.lab.timed`."""
    try:
        amounts = dict(predict())
    except NotYet:
        print(f"{exercise_id}: predict first. Write your answer, then run this cell again.")
        return None
    expected = _ratios(exercise_id, amounts, list(prepare))
    record.write("prediction", exercise_id, ratios=expected)
    measured, seconds = _times(prepare)
    record.write("timing", exercise_id, ratios=measured, seconds=seconds)
    return _table(expected, measured, seconds)


def _ratios(exercise_id: str, amounts: Mapping[str, Any], names: list[str]) -> dict[str, float]:
    if list(amounts) != names:
        raise LabError(
            f"{exercise_id}: predicted were {', '.join(amounts)}, but timed are {', '.join(names)};"
            " give both the same names in the same order."
        )
    # a tensor or an array of one number is one
    amounts = {n: x.item() if getattr(x, "ndim", None) == 0 else x for n, x in amounts.items()}
    for name, amount in amounts.items():
        known = isinstance(amount, (int, float)) and not isinstance(amount, bool)
        if not (known and math.isfinite(amount) and amount > 0):
            raise LabError(
                f"{exercise_id}: for {name} your answer gives {amount!r}, and a prediction must be"
                " a positive number. Run its check first."
            )
    first = amounts[names[0]]
    return {name: amounts[name] / first for name in names}


def _times(prepare: Mapping[str, Prepare]) -> tuple[dict[str, float], dict[str, float]]:
    """How many times as long as the first each one takes, and their medians in seconds."""
    from twophase.measure import race

    runs = race({name: make() for name, make in prepare.items()}, budget_s=BUDGET_S)
    first = next(iter(runs))
    ratios = {name: runs.ratio(name, first) for name in runs}
    return ratios, {name: timing.median_s for name, timing in runs.items()}


def _table(
    expected: Mapping[str, float], measured: Mapping[str, float], seconds: Mapping[str, float]
) -> Table:
    from twophase.measure import Table, si

    return Table(
        [[name, expected[name], measured[name], si(seconds[name], "s")] for name in expected],
        ["what", "your prediction", "measured", "median time"],
        "Times the first row: your prediction, and the clock of this machine",
        digits=3,
    )
