"""quantization-q4_0: the numbers of llama.cpp's blocks of 32, from their bytes."""

from __future__ import annotations

import random
import struct

from twophase.checks import edges
from twophase.checks.compare import FORMULA
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(data: list[int]) -> list[float]:
    """The right answer."""
    numbers: list[float] = []
    for start in range(0, len(data), 18):
        (scale,) = struct.unpack("<e", bytes(data[start : start + 2]))
        codes = data[start + 2 : start + 18]
        numbers += [scale * ((byte & 15) - 8) for byte in codes]
        numbers += [scale * ((byte >> 4) - 8) for byte in codes]
    return numbers


def _change(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_change(
    "neighbors_share_a_byte",
    {
        "numbers += [scale * ((byte & 15) - 8) for byte in codes]": "",
        "numbers += [scale * ((byte >> 4) - 8) for byte in codes]": (
            "numbers += [scale * (code - 8) for byte in codes for code in (byte & 15, byte >> 4)]"
        ),
    },
    "int4 packings in which two neighbors share a byte",
    "You take the two halves of a byte for neighbors: byte j holds numbers j and j + 16, so that"
    " vector instructions find 16 neighbors in the lower halves.",
)
_change(
    "upper_half_first",
    {"byte & 15": "byte >> 4 ", "(byte >> 4)": "(byte & 15)"},
    "NF4's order",
    "You exchanged the halves: the lower ones are numbers 0 to 15.",
)
_change(
    "two_s_complement",
    {
        "((byte & 15) - 8)": "(((byte & 15) ^ 8) - 8)",
        "((byte >> 4) - 8)": "(((byte >> 4) ^ 8) - 8)",
    },
    "int4 as two's complement",
    "You read the codes as two's complement: a code is the level plus 8.",
)
_change(
    "no_offset",
    {"((byte & 15) - 8)": "(byte & 15)", "((byte >> 4) - 8)": "(byte >> 4)"},
    "plausible",
    "You forgot to take 8 off: codes 0 to 15 stand for levels −8 to 7.",
)
_change(
    "offset_of_seven",
    {"15) - 8": "15) - 7", "4) - 8": "4) - 7"},
    "plausible",
    "You took 7 off a code: it is 8, code 8 is zero.",
)
_change(
    "half_steps",
    {"15) - 8": "15) - 7.5", "4) - 8": "4) - 7.5"},
    "grids without a zero",
    "Your levels lie between the whole numbers, and none is 0: code 8 stands for 0.",
)
_change(
    "scale_big_endian",
    {'"<e"': '">e"'},
    "plausible",
    "You read the scale's two bytes in the wrong order: the lower one comes first.",
)
_change(
    "scale_last",
    {
        "start : start + 2]": "start + 16 : start + 18]",
        "start + 2 : start + 18": "start : start + 16",
    },
    "plausible",
    "You look for the scale behind the codes: its two bytes come first.",
)
_change(
    "scale_in_bf16",
    {
        'struct.unpack("<e", bytes(data[start : start + 2]))': (
            'struct.unpack("<f", bytes([0, 0, *data[start : start + 2]]))'
        )
    },
    "plausible",
    "You read the scale as bf16: it is fp16, with five bits of exponent.",
)
_change(
    "first_block_only",
    {"range(0, len(data), 18)": "range(0, 18, 18)"},
    "plausible",
    "You decoded one block: there may be more, each with its own scale.",
)
_change(
    "scale_of_the_first_block",
    {"bytes(data[start : start + 2])": "bytes(data[:2])"},
    "plausible",
    "You used the first block's scale for all of them.",
)


def block(scale: float, codes: list[int]) -> list[int]:
    """The 18 bytes of a block with these codes, number by number."""
    halves = zip(codes[:16], codes[16:], strict=True)
    return [*struct.pack("<e", scale), *(low | high << 4 for low, high in halves)]


def cases(rng: random.Random) -> list[Case]:
    """One block with every code twice; scales that are negative, tiny, zero, large; several blocks;
    more than any constant."""

    def codes() -> list[int]:
        return [rng.randrange(16) for _ in range(32)]

    every = [(5 * i + 3) % 16 for i in range(16)] + [*range(16)]
    scales = {
        "negative": -0.37,
        "subnormal": 2.0**-23,
        "negative subnormal": -(2.0**-23),
        "zero": 0.0,
        "large": 60000.0,
    }
    many = [x for _ in range(edges.past(64)) for x in block(rng.uniform(-1, 1), codes())]
    return [
        Case("one block, scale 0.5", (block(0.5, every),)),
        *(Case(f"a {name} scale", (block(s, every),)) for name, s in scales.items()),
        Case("two blocks", (block(1.25, every) + block(-0.75, every[::-1]),)),
        Case("no block", ([],)),
        Case("67 blocks", (many,)),
        Case("fresh", (block(rng.uniform(0.1, 2), codes()) * 3,), public=False),
    ]


EXERCISE = Exercise(
    id="quantization-q4_0",
    title="A block of q4_0",
    kind="kernel",
    points=3,
    minutes=12,
    entries=("decode_q4_0",),
    cases=cases,
    reference=reference,
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        "Cut the bytes into blocks of 18: two of scale, sixteen of codes.",
        'struct.unpack("<e", two_bytes) reads fp16. Byte j holds numbers j (lower half) and'
        " j + 16.",
        "A number is scale · (code − 8): first the 16 lower halves, then the 16 upper ones.",
    ),
    recall=(
        "How many bits does a weight take in q4_0, and where is the half bit?",
        "4.5: blocks of 32 share an fp16 scale, 16/32 of a bit each.",
    ),
)
