"""quantization-error_bound: how far a number can be moved by rounding it to a grid."""

from __future__ import annotations

import random

from twophase.checks import edges
from twophase.checks.compare import FORMULA
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(low: float, high: float, bits: int) -> dict[str, float]:
    """The right answer."""
    absmax = max(high, -low) / (2 ** (bits - 1) - 1) / 2
    affine = (max(high, 0) - min(low, 0)) / (2**bits - 1) / 2
    return {"absmax": absmax, "affine": affine}


def _change(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_change(
    "whole_steps",
    {"(2 ** (bits - 1) - 1) / 2": "(2 ** (bits - 1) - 1)", "(2**bits - 1) / 2": "(2**bits - 1)"},
    "plausible",
    "That is a step. A number is at most half a step from the nearest level.",
)
_change(
    "zero_left_out",
    {"max(high, 0) - min(low, 0)": "high - low"},
    "min-max grids that do not hold 0",
    "Your affine grid need not hold 0: numbers that lie on one side of it stretch it to 0.",
)
_change(
    "absmax_of_the_range",
    {"max(high, -low)": "(high - low) / 2"},
    "plausible",
    "You took half the range for the largest size: absmax is symmetric, and the larger end"
    " decides.",
)
_change(
    "absmax_of_the_upper_end",
    {"max(high, -low)": "high"},
    "plausible",
    "You looked at the upper end only: −low may be larger.",
)
_change(
    "levels_for_steps",
    {"(2**bits - 1)": "2**bits", "(2 ** (bits - 1) - 1)": "2 ** (bits - 1)"},
    "“2**b levels, so 2**b steps”",
    "Between 2**b levels lie 2**b − 1 steps; absmax has 2**(b − 1) − 1 on each side.",
)
_change(
    "absmax_with_all_steps",
    {"(2 ** (bits - 1) - 1)": "(2**bits - 1)"},
    "plausible",
    "You gave absmax 2**b − 1 steps from 0 to the largest size: half of the levels are negative.",
)


def cases(rng: random.Random) -> list[Case]:
    """Every width; both signs, one sign, zero at an end, one number, an outlier; fresh ones."""

    def case(low: float, high: float, bits: int, public: bool = True) -> Case:
        return Case(f"from {low:g} to {high:g}, {bits} bits", (low, high, bits), public=public)

    return [
        *(case(-1.0, 3.0, bits) for bits in range(2, 9)),
        case(-4.0, 3.0, 4),  # one end alone is another
        case(-1.0, 5.0, 4),
        case(-5.0, 2.0, 4),
        case(1.0, 3.0, 4),
        case(-3.0, -1.0, 4),
        case(0.0, 2.0, 3),
        case(-2.0, 0.0, 3),
        case(1.5, 1.5, 8),
        case(0.0, 0.0, 4),
        case(-0.5, 60.0, 8),
        case(-edges.past(2048) * 1.0, edges.past(4096) * 1.0, 5),
        case(1e-9, 3e-9, 6),
        case(-1e-10, 2e-10, 4),
        case(rng.uniform(-9, -5), rng.uniform(1, 4), 4, public=False),
        case(rng.uniform(1, 4), rng.uniform(5, 9), 3, public=False),
    ]


EXERCISE = Exercise(
    id="quantization-error_bound",
    title="How far rounding can move a number",
    kind="formula",
    points=2,
    minutes=8,
    entries=("error_bounds",),
    cases=cases,
    reference=reference,
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        "How far apart are two neighbors of each grid, and where does the worst number lie?",
        "Absmax: the larger of −low and high, over 2**(b − 1) − 1 steps. Affine: a range that holds"
        " 0, over 2**b − 1.",
        "Half a step each.",
    ),
    ranges={"bits": (2, 8)},
    recall=(
        "A group of weights within ±0.5 gets one weight of 8. What becomes of the error bound?",
        "It grows 16 times for all of them: the largest size sets the step.",
    ),
)
