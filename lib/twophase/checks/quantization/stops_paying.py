"""quantization-stops_paying: the batch from which fewer bits save no time."""

from __future__ import annotations

import math  # noqa: F401 (wrong answers round up with it)
import random

from twophase.checks import edges
from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(bits: int, group: int, flops_per_s: int, bytes_per_s: int) -> int:
    """The right answer: B·2·n/C ≥ n·(bits + 16/group)/8/W, in whole numbers."""
    reading = (bits * group + 16) * flops_per_s
    return -(-reading // (16 * group * bytes_per_s))


def _change(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_change(
    "scales_left_out",
    {"(bits * group + 16)": "bits * group"},
    "“4 bits a weight”",
    "You left the scales out: they are read as well, so that a batch a little larger still gains.",
)
_change(
    "rounded_down",
    {"-(-reading // (16 * group * bytes_per_s))": "reading // (16 * group * bytes_per_s)"},
    "plausible",
    "You rounded down: one token fewer than asked for, reading still takes longer.",
)
_change(
    "one_more",
    {"-(-reading // (16 * group * bytes_per_s))": "reading // (16 * group * bytes_per_s) + 1"},
    "plausible",
    "Where both take equally long computing takes *at least* as long: no token more is needed.",
)
for _slug, _quotient in {
    "bits_in_floats": "(bits + 16 / group) * flops_per_s / (16 * bytes_per_s)",
    "rates_in_floats": "flops_per_s / bytes_per_s * (bits + 16 / group) / 16",
    "quotient_in_floats": "reading / (16 * group * bytes_per_s)",
}.items():
    _change(
        _slug,
        {"-(-reading // (16 * group * bytes_per_s))": f"math.ceil({_quotient})"},
        "math.ceil(a / b)",
        "You divided in floats, and a float may lie a little beside the quotient: rounded up that"
        " is a token more or fewer. All of it is whole numbers: -(-a // b) rounds a / b up.",
    )
_change(
    "one_flop",
    {"(16 * group": "(8 * group"},
    "plausible",
    "A product with a weight is a multiplication and an addition: 2 FLOPs.",
)
_change(
    "sixteen_bits",
    {"(bits * group + 16)": "16 * group"},
    "the critical batch of bf16",
    "That is where bf16 becomes compute bound. With fewer bits reading is over sooner.",
)
_change(
    "bits_for_bytes",
    {"(16 * group": "(2 * group"},
    "bits and bytes confused",
    "You took bits for bytes.",
)
_change(
    "never_below_two",
    {"return -(-": "return max(2, -(-", "bytes_per_s))": "bytes_per_s)))"},
    "plausible",
    "One token may be enough, on a machine that computes slowly.",
)


def cases(rng: random.Random) -> list[Case]:
    """Published chips; just even, one byte a second less and more; each argument changed; a machine
    for which one token is enough; sizes past any constant."""

    def case(name: str, bits: int, group: int, C: int, W: int, public: bool = True) -> Case:
        return Case(f"{name}: {bits} bits, groups of {group}", (bits, group, C, W), public=public)

    C, W = 989 * 10**12, 3350 * 10**9
    given = {"bits": 4, "group": 128, "flops_per_s": C, "bytes_per_s": W}
    others = {"bits": 8, "group": 32, "flops_per_s": 197 * 10**12, "bytes_per_s": 819 * 10**9}
    even = 2**47  # with 7 bits in groups of 16, and 2^40 bytes a second: 64 tokens
    return [
        *(case("the worked chip", bits, 128, C, W) for bits in range(2, 9)),
        *(
            Case(f"the worked chip {name}", tuple(values.values()))
            for name, values in edges.one_changed(given, **others)
        ),
        case("just even", 7, 16, even, 2**40),
        case("one byte a second less than even", 7, 16, even, 2**40 - 1),
        case("a little slower", 7, 16, even - 2**40, 2**40),
        case("a little quicker", 7, 16, even + 2**40, 2**40),
        case("even, a step above in floats", 2, 48, 6912 * 10**9, 112 * 10**9),
        case("one FLOP a second above even", 2, 48, 6912 * 10**9 + 1, 112 * 10**9),
        case("even, C/W a step above in floats", 4, 24, 1860 * 10**12, 140 * 10**9),
        case("one FLOP a second above even, past 2^53", 4, 64, 64 * 10**15 + 1, 10**12),
        case("one token is enough", 4, 64, 2**30, 2**40),
        case("two tokens", 4, 64, 2**40, 2**37),
        case("no weights shared", 4, 1, C, W),
        case("groups past any constant", 3, edges.past(2048), 2**52, 2**33),
        case(
            "fresh",
            rng.randrange(2, 9),
            rng.choice((32, 64, 128)),
            rng.randrange(100, 900) * 10**12 + 12345,
            rng.randrange(1000, 4000) * 10**9,
            public=False,
        ),
    ]


EXERCISE = Exercise(
    id="quantization-stops_paying",
    title="Where fewer bits stop paying",
    kind="formula",
    points=3,
    minutes=10,
    entries=("stops_paying",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Write both times for n weights: n drops out.",
        "2·B/C ≥ (bits + 16/group) / 8 / W: solve for B, and round up.",
        "B = ceil((bits·group + 16)·C / (16·group·W)); -(-a // b) rounds a / b up without floats.",
    ),
    ranges={"bits": (2, 8)},
    recall=(
        "Half the bits: what happens to the batch from which a step is compute bound?",
        "It halves as well: reading is over sooner, computing takes as long as before.",
    ),
)
