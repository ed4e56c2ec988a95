"""quantization-nf4: weights from NF4 with double quantization."""

from __future__ import annotations

import random
from statistics import NormalDist
from typing import Any

from twophase.checks import edges
from twophase.checks.compare import FORMULA
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Quantized = dict[str, Any]


def reference(stored: Quantized, levels: list[float], table: list[float]) -> list[float]:
    """The right answer."""
    weights = []
    for i in range(stored["n"]):
        byte = stored["codes"][i // 2]
        block = i // 64
        largest = table[stored["maxima"][block]] * stored["outer"][block // 256] + stored["mean"]
        weights.append(levels[byte & 15 if i % 2 else byte >> 4] * largest)
    return weights


def _change(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_change(
    "lower_half_first",
    {"byte & 15 if i % 2 else byte >> 4": "byte >> 4 if i % 2 else byte & 15"},
    "the order of most int4 packings",
    "You took the lower half of a byte first: NF4's first weight lies in the upper half.",
)
_change(
    "codes_as_integers",
    {"levels[byte & 15 if i % 2 else byte >> 4]": "((byte & 15 if i % 2 else byte >> 4) - 8) / 7"},
    "int4's grid",
    "You read the codes as integers: a code is a place in the list of levels, which are no even"
    " steps.",
)
_change(
    "mean_left_out",
    {' + stored["mean"]': ""},
    "plausible",
    "The mean of the maxima was taken off before they were rounded: add it again.",
)
_change(
    "mean_added_first",
    {
        'table[stored["maxima"][block]] * stored["outer"][block // 256] + stored["mean"]': (
            '(table[stored["maxima"][block]] + stored["mean"]) * stored["outer"][block // 256]'
        )
    },
    "plausible",
    "You added the mean before you multiplied by the outer maximum: it comes last.",
)
_change(
    "outer_left_out",
    {' * stored["outer"][block // 256]': ""},
    "plausible",
    "A maximum's code gives a share of the outer maximum of its 256: multiply.",
)
_change(
    "one_outer_block",
    {"block // 256": "0"},
    "plausible",
    "You used the first outer maximum for all: each 256 blocks have their own.",
)
_change(
    "outer_by_weights",
    {"block // 256": 'min(i // 256, len(stored["outer"]) - 1)'},
    "plausible",
    "Outer blocks hold 256 *maxima*, so 256·64 weights.",
)
_change(
    "maxima_as_integers",
    {'table[stored["maxima"][block]]': 'stored["maxima"][block] / 255'},
    "int8 taken for the second quantization, too",
    "You read the maxima's codes as integers: they are places in the table.",
)
_change(
    "blocks_of_128",
    {"i // 64": "i // 128"},
    "GPTQ's groups",
    "NF4's blocks hold 64 weights.",
)
_change(
    "levels_alone",
    {" * largest": ""},
    "plausible",
    "You did not multiply by the block's maximum: levels go from −1 to 1.",
)
_change(
    "filled_up",
    {'range(stored["n"])': 'range(2 * len(stored["codes"]))'},
    "plausible",
    "There are n weights: with an odd n half of the last byte means nothing.",
)


def nf4_levels() -> list[float]:
    """Quantiles of the normal distribution, eight above zero, zero, seven below, the largest 1."""
    end = 1 - (1 / 30 + 1 / 32) / 2
    quantile = NormalDist().inv_cdf
    above = [quantile(end + (0.5 - end) * i / 8) for i in range(8)]
    below = [-quantile(end + (0.5 - end) * i / 7) for i in range(7)]
    return sorted(x / above[0] for x in (*above, 0.0, *below))


def quantized(n: int) -> Quantized:
    """n weights, all bytes other ones."""
    blocks = -(-n // 64)
    return {
        "n": n,
        "codes": [(37 * i + 5 + i // 7) % 256 for i in range(-(-n // 2))],
        "maxima": [(91 * b + 200) % 256 for b in range(blocks)],
        "outer": [0.02 + 0.05 * j for j in range(-(-blocks // 256))],
        "mean": 0.11,
    }


def but_for_one(levels: list[float], table: list[float]) -> list[Case]:
    """Three weights with one thing changed: whoever keeps results by the others is wrong."""
    three = quantized(3)
    others = {"n": 4, "codes": [160, 27], "maxima": [17], "outer": [0.5], "mean": 0.2}
    return [
        *(
            Case(f"3 weights {name}", (stored, levels, table))
            for name, stored in edges.one_changed(three, **others)
        ),
        Case("3 weights, other levels", (three, [i / 8 - 1 for i in range(16)], table)),
        Case("3 weights, another table", (three, levels, [(i / 255) ** 2 for i in range(256)])),
    ]


def cases(rng: random.Random) -> list[Case]:
    """One weight, two, an odd number; just a block and one more; two blocks; more than 256 blocks;
    every code; other levels."""
    levels = nf4_levels()
    table = [((i - 127) / 128) ** 3 for i in range(255)] + [1.0]
    other = [rng.uniform(-1, 1) for _ in range(16)], [rng.uniform(-1, 1) for _ in range(256)]
    many = 64 * edges.past(256) - 5
    fresh = rng.randrange(200, 400)
    return [
        *(
            Case(f"{n} weights", (quantized(n), levels, table))
            for n in (1, 2, 3, 63, 64, 65, 127, 128, 129, 640)
        ),
        # of the same length: whoever keeps results by that is wrong here
        Case("one weight, another code", ({**quantized(1), "codes": [0xA0]}, levels, table)),
        *but_for_one(levels, table),
        Case(f"{many} weights", (quantized(many), levels, table)),
        Case("other levels and another table", (quantized(200), *other)),
        Case("maxima above all levels", ({**quantized(70), "mean": 3.0}, levels, table)),
        Case(
            "fresh",
            (
                quantized(fresh) | {"codes": [rng.randrange(256) for _ in range(-(-fresh // 2))]},
                levels,
                table,
            ),
            public=False,
        ),
    ]


EXERCISE = Exercise(
    id="quantization-nf4",
    title="Weights from NF4",
    kind="kernel",
    points=4,
    minutes=15,
    entries=("decode_nf4",),
    cases=cases,
    reference=reference,
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        "Two lookups: a code's level, and the maximum of its block.",
        "Weight i lies in byte i // 2, the upper half if i is even, and in block i // 64.",
        "maximum = table[maxima[block]] · outer[block // 256] + mean; the weight is level ·"
        " maximum.",
    ),
    recall=(
        "What does double quantization save, in bits a weight?",
        "32/64 = 0.5 become 8/64 + 32/(64·256), about 0.127: 0.373 bits.",
    ),
)
