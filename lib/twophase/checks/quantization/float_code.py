"""quantization-float_code: the numbers that the codes of a floating-point format stand for."""

from __future__ import annotations

import math
import random

from twophase.checks import edges
from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(codes: list[int], exponent_bits: int, mantissa_bits: int, top: str) -> list[float]:
    """The right answer."""
    bias, last = 2 ** (exponent_bits - 1) - 1, 2**exponent_bits - 1
    numbers = []
    for code in codes:
        exponent = (code >> mantissa_bits) % 2**exponent_bits
        fraction = code % 2**mantissa_bits
        size = 2.0 ** (exponent - bias) * (1 + fraction / 2**mantissa_bits)
        if exponent == 0:
            size = 2.0 ** (1 - bias) * fraction / 2**mantissa_bits
        if top == "inf" and exponent == last:
            size = math.nan if fraction else math.inf
        if top == "nan" and exponent == last and fraction == 2**mantissa_bits - 1:
            size = math.nan
        numbers.append(-size if code >> exponent_bits + mantissa_bits else size)
    return numbers


def _change(slug: str, old: str, new: str, seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, {old: new}), seen, says)


_change(
    "no_subnormals",
    "if exponent == 0:",
    "if exponent == 0 and fraction == 0:",
    "decoders that know normal numbers only",
    "You give exponent 0 the hidden 1. With exponent 0 there is none: the number is"
    " 2**(1 − bias)·f / 2**m, and so zero has a code.",
)
_change(
    "subnormals_one_lower",
    "2.0 ** (1 - bias)",
    "2.0 ** -bias",
    "the exponent taken as it is stored",
    "Your subnormal numbers are half as large as they should be: they have the exponent 1 − bias of"
    " the smallest normal ones, so that the steps go on evenly to zero.",
)
_change(
    "bias_of_half",
    "2 ** (exponent_bits - 1) - 1, 2**exponent_bits - 1",
    "2 ** (exponent_bits - 1), 2**exponent_bits - 1",
    "plausible",
    "Your bias is 2**(e − 1): it is one less, 127 for eight bits, 7 for four.",
)
_change(
    "bias_of_fp32",
    "2 ** (exponent_bits - 1) - 1, 2**exponent_bits - 1",
    "127, 2**exponent_bits - 1",
    "code that was written for bf16",
    "Your bias is 127 whatever the format: it is 2**(e − 1) − 1.",
)
_change(
    "no_sign",
    "-size if code >> exponent_bits + mantissa_bits else size",
    "size",
    "plausible",
    "None of your numbers is negative: the highest bit is the sign.",
)
_change(
    "like_ieee",
    'if top == "inf" and exponent == last:',
    "if exponent == last:",
    "e4m3 taken for an IEEE format, whose largest number would be 240",
    "You keep the last exponent for infinity and NaN in every format. e4m3 has no infinity, and one"
    " NaN of each sign: its largest number is 448. e2m1 has neither: its largest is 6.",
)
_change(
    "no_infinity",
    'if top == "inf" and exponent == last:',
    "if False:",
    "plausible",
    'Your formats with "inf" go on counting at the last exponent: there lie infinity (fraction 0)'
    " and NaN.",
)
_change(
    "top_is_all_infinity",
    "math.nan if fraction else math.inf",
    "math.inf",
    "plausible",
    "At the last exponent only the fraction 0 is infinity: the others are NaN.",
)
_change(
    "nan_for_the_whole_exponent",
    "exponent == last and fraction == 2**mantissa_bits - 1",
    "exponent == last",
    "plausible",
    'With "nan" only the very last code is NaN: the others of that exponent are numbers.',
)
_change(
    "nothing_at_the_top",
    'if top == "nan" and exponent == last and fraction == 2**mantissa_bits - 1:',
    "if False:",
    "plausible",
    'With "nan" the very last code is no number: e4m3\'s code 127 is NaN, not 480.',
)
_change(
    "fraction_without_the_one",
    "(1 + fraction / 2**mantissa_bits)",
    "(fraction / 2**mantissa_bits)",
    "the hidden bit forgotten",
    "You left out the hidden 1 of normal numbers: 2**(e − bias)·(1 + f / 2**m).",
)


def twos_complement(
    codes: list[int], exponent_bits: int, mantissa_bits: int, top: str
) -> list[float]:
    half = 2 ** (exponent_bits + mantissa_bits)
    sizes = [code if code < half else min(2 * half - code, half - 1) for code in codes]
    numbers = reference(sizes, exponent_bits, mantissa_bits, top)
    return [-x if code >= half else x for x, code in zip(numbers, codes, strict=True)]


wrong.add(
    "twos_complement",
    twos_complement,
    "integers and floats confused",
    "You read negative codes as two's complement. A float is sign and magnitude: the same lower"
    " bits stand for the same size.",
)

FORMATS = {
    "fp4 e2m1": (2, 1, "finite"),
    "fp8 e4m3": (4, 3, "nan"),
    "fp8 e5m2": (5, 2, "inf"),
    "fp6 e3m2": (3, 2, "finite"),
    "fp6 e2m3": (2, 3, "finite"),
    "fp16": (5, 10, "inf"),
    "bf16": (8, 7, "inf"),
    "fp32": (8, 23, "inf"),
}


def told(exponent_bits: int, mantissa_bits: int) -> list[int]:
    """The codes around every border, with both signs."""
    end = 2 ** (exponent_bits + mantissa_bits)
    step = 2**mantissa_bits
    borders = (0, step, end // 2, end - 2 * step, end - step, end)
    near = {b + i for b in borders for i in (-1, 0, 1) if 0 <= b + i < end}
    return sorted(near | {end + n for n in near})


def cases(rng: random.Random) -> list[Case]:
    """Every code of the formats of up to eight bits; of the others the borders and some between; a
    list longer than any constant; widths of no published format."""
    made = []
    for name, (e, m, top) in FORMATS.items():
        every = list(range(2 ** (1 + e + m))) if e + m < 8 else told(e, m)
        made.append(Case(f"{name}, {len(every)} codes", (every, e, m, top)))
    many = [(7919 * i) % 65536 for i in range(edges.past(256))]
    last = 2**31 - 1
    four = [1, 60, 121, 127]
    return [
        Case("1.5 in e2m1", ([3], 2, 1, "finite")),
        # of the same length: whoever keeps results by that is wrong here
        Case("2 in e2m1", ([4], 2, 1, "finite")),
        # of the same codes: whoever keeps results by some of the arguments is wrong here
        *(
            Case(f"four codes of e{e}m{m}, “{top}”", (four, e, m, top))
            for e, m, top in ((4, 3, "nan"), (3, 3, "nan"), (4, 4, "nan"), (4, 3, "inf"))
        ),
        *made,
        Case("no codes", ([], 4, 3, "nan")),
        Case("many codes of fp16", (many, 5, 10, "inf")),
        Case("a thousand codes of e4m3", ([i % 251 for i in range(1000)], 4, 3, "nan")),
        *(
            Case(f"e{e}m{m}, “{top}”", (told(e, m), e, m, top))
            for e, m, top in (
                (2, 1, "inf"),
                (3, 1, "nan"),
                (2, 23, "nan"),
                (8, 1, "finite"),
                (6, 9, "inf"),
                (7, 4, "nan"),
            )
        ),
        Case(
            "fresh codes of fp32",
            ([rng.randrange(last) for _ in range(20)], 8, 23, "inf"),
            public=False,
        ),
    ]


EXERCISE = Exercise(
    id="quantization-float_code",
    title="What a float's bits stand for",
    kind="kernel",
    points=4,
    minutes=15,
    entries=("decode",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Cut the code into three: sign, exponent, fraction, from the top. A shift and a remainder"
        " do it.",
        "bias = 2**(e − 1) − 1. Exponent 0 has no hidden 1, and the exponent 1 − bias.",
        "Then the top: “inf”, fraction 0 of the last exponent is infinity, the rest NaN; “nan”, the"
        " very last code of each sign is NaN; “finite”, nothing.",
    ),
    ranges={"exponent_bits": (2, 8), "mantissa_bits": (1, 23)},
    recall=(
        "What is the largest number of e4m3, and why is it not 240?",
        "448: the last exponent is used for numbers, too; only its very last code is NaN.",
    ),
)
