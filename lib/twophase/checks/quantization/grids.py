"""quantization-grids: scales and codes of numbers on an absmax and on an affine grid."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks import edges
from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(numbers: list[float], bits: int) -> dict[str, Any]:
    """The right answer."""
    largest, low, high = max(map(abs, numbers)), min(0.0, *numbers), max(0.0, *numbers)
    s = largest / (2 ** (bits - 1) - 1) or 1.0
    step = (high - low) / (2**bits - 1) or 1.0
    z = round(-low / step)
    return {
        "absmax": [s, [round(x / s) for x in numbers]],
        "affine": [step, z, [round(x / step) + z for x in numbers]],
    }


def _change(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_change(
    "absmax_over_2_to_b_1",
    {"largest / (2 ** (bits - 1) - 1)": "largest / 2 ** (bits - 1)"},
    "scales written as max / 128",
    "You divided the largest size by 2**(b − 1), a level that the positive side does not have: the"
    " largest number belongs on the last level, 2**(b − 1) − 1.",
)
_change(
    "absmax_over_all_levels",
    {"largest / (2 ** (bits - 1) - 1)": "largest / (2**bits - 1)"},
    "plausible",
    "You divided by 2**b − 1: of these levels absmax has half on each side of zero.",
)
_change(
    "largest_without_its_size",
    {"max(map(abs, numbers))": "max(numbers)"},
    "max() for abs().max()",
    "You took the largest number, not the largest size: a group may be mostly negative.",
)
_change(
    "affine_without_zero",
    {"min(0.0, *numbers), max(0.0, *numbers)": "min(numbers), max(numbers) + 1e-12"},
    "min-max observers that do not hold 0",
    "Your affine grid goes from the least to the largest number also where 0 lies outside: then z"
    " is no code, and zeros (padding, relu) are not exact.",
)
_change(
    "affine_over_2_to_b",
    {"(2**bits - 1)": "2**bits"},
    "“2**b levels, so 2**b steps”",
    "You divided the range by 2**b: between 2**b levels lie 2**b − 1 steps.",
)
_change(
    "zero_point_not_rounded",
    {"round(-low / step)": "-low / step"},
    "plausible",
    "Your zero point is no whole number: it is stored as a code, so round it. Then 0 is exact.",
)
_change(
    "zero_point_forgotten",
    {"z = round(-low / step)": "z = 0"},
    "plausible",
    "Your affine grid has no zero point: negative numbers end at code 0.",
)
_change(
    "cut_off",
    {"round(x / s)": "int(x / s)", "round(x / step)": "int(x / step)"},
    ".to(torch.int8) without round",
    "You cut off instead of rounding: the error doubles, and pulls everything towards 0.",
)
_change(
    "mixture",
    {"(high - low) / (2**bits - 1)": "largest / (2 ** (bits - 1) - 1)"},
    "a symmetric scale with a zero point",
    "Your affine grid has the scale of absmax: levels lie unused on one side.",
)
_change(
    "zeros_divided_by_zero",
    {
        "(2 ** (bits - 1) - 1) or 1.0": "(2 ** (bits - 1) - 1)",
        "(2**bits - 1) or 1.0": "(2**bits - 1)",
    },
    "quantizers that never met a pruned row",
    "Numbers that are all 0 have a scale of 0, and you divide by it: give them scale 1.",
)
_change(
    "codes_without_zero_point",
    {"round(x / step) + z for": "round(x / step) for"},
    "plausible",
    "Your affine codes do not have the zero point added: a code goes from 0 to 2**b − 1.",
)
_change(
    "zero_point_of_the_other_end",
    {"round(-low / step)": "round(high / step)"},
    "plausible",
    "Your zero point comes from the largest number: z = round(−low / s), so that `low` becomes"
    " code 0.",
)
_change(
    "eight_bits",
    {"    largest, low": "    bits = 8\n    largest, low"},
    "plausible",
    "You have eight bits whatever `bits` says.",
)


def clear(numbers: list[float], bits: int) -> bool:
    """Whether every rounding is far from a middle, so that float32 rounds as float64 does."""
    largest, low, high = max(map(abs, numbers)), min(0.0, *numbers), max(0.0, *numbers)
    if largest == 0:
        return True
    step = (high - low) / (2**bits - 1)
    asked = [-low / step]
    asked += [x / s for x in numbers for s in (largest / (2 ** (bits - 1) - 1), step)]
    return all(abs(a % 1 - 0.5) > 1e-3 for a in asked)


def draw(rng: random.Random, n: int, bits: int, low: float, high: float) -> list[float]:
    """n numbers between low and high, every rounding clear."""
    while True:
        ends = [rng.uniform(low, high) for _ in range(2)]
        given = [rng.uniform(min(ends), max(ends)) for _ in range(n)]
        given[:2] = ends
        for i in range(2, n):  # move those that are not
            for _ in range(100):
                if clear([*ends, given[i]], bits):
                    break
                given[i] = rng.uniform(min(ends), max(ends))
        if clear(given, bits):
            return given


def cases(rng: random.Random) -> list[Case]:
    """Every width; all positive, all negative, both, zeros, one number, equal ones, an outlier;
    more numbers than any constant."""

    def case(name: str, numbers: list[float], bits: int, public: bool = True) -> Case:
        assert clear(numbers, bits), name
        return Case(f"{name}, {bits} bits", (numbers, bits), public=public)

    hand = [-1.0, 0.1, 0.01, 2.5]
    return [
        *(case("four numbers", hand, bits) for bits in range(2, 9)),
        case("all positive", [2.0, 3.1, 2.6], 4),
        case("all negative", [-2.0, -3.1, -2.6], 4),
        case("mostly negative", [-3.1, -0.6, 1.3], 3),
        case("zeros", [0.0, 0.0], 4),
        case("one number", [0.7], 3),
        case("one negative number", [-0.7], 3),
        case("equal numbers", [1.5, 1.5, 1.5], 8),
        case("with zeros", [0.0, -0.7, 0.0, 0.3], 2),
        case("an outlier", [60.0, 0.3, -0.2, 0.25, -0.4], 8),
        case("numbers below a billionth", [7e-10, -2.1e-10], 4),
        case("tiny numbers", [3e-9, -1e-9, 2.2e-9], 5),
        case("257 numbers", [*draw(rng, edges.past(256) - 1, 6, -2.0, 3.0), 0.0], 6),
        case("a thousand numbers", [0.3, -0.2, 0.1, 0.0] * 249 + [0.3, -0.6, 1.1, 0.0], 4),
        case("fresh", draw(rng, 12, 4, -1.0, 2.0), 4, public=False),
    ]


EXERCISE = Exercise(
    id="quantization-grids",
    title="Absmax against affine",
    kind="kernel",
    points=3,
    minutes=10,
    entries=("two_grids",),
    cases=cases,
    reference=reference,
    compare=Tolerance(
        rtol=1e-5, whole=True, why="scales in float32; no number lies near the middle of two levels"
    ),
    misconceptions=tuple(wrong),
    hints=(
        "Absmax: which scale brings the largest size to the last level, 2**(b − 1) − 1?",
        "Affine: the range from min(0, least) to max(0, largest) has 2**b − 1 steps; the zero point"
        " is the code of 0.",
        "z = round(−low / s), then q = round(x / s) + z. A scale of 0 becomes 1.",
    ),
    ranges={"bits": (2, 8)},
    recall=(
        "When is an affine grid finer than absmax, and by how much at most?",
        "When the numbers lie on one side of zero: then nearly twice as fine.",
    ),
)
