"""quantization-pack: codes of a few bits into bytes, and back."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def pack(codes: list[int], bits: int) -> list[int]:
    """The right answer."""
    stream = sum(code << i * bits for i, code in enumerate(codes))
    n_bytes = (len(codes) * bits + 7) // 8
    return [stream >> 8 * i & 255 for i in range(n_bytes)]


def unpack(data: list[int], bits: int, n: int) -> list[int]:
    """The right answer."""
    stream = sum(byte << 8 * i for i, byte in enumerate(data))
    return [stream >> bits * i & (1 << bits) - 1 for i in range(n)]


Pair = tuple[Callable[[list[int], int], list[int]], Callable[[list[int], int, int], list[int]]]


def _both(make: Callable[[], Pair], seen: str, says: str) -> None:
    packs, unpacks = make()
    wrong.add(make.__name__, {"pack": packs, "unpack": unpacks}, seen, says)


def a_byte_each() -> Pair:
    return (lambda codes, bits: list(codes)), (lambda data, bits, n: list(data[:n]))


def first_code_on_top() -> Pair:
    def turn(data: list[int]) -> list[int]:
        return [int(f"{byte:08b}"[::-1], 2) for byte in data]

    def flip(codes: list[int], bits: int) -> list[int]:
        return [int(f"{code:0{bits}b}"[::-1], 2) for code in codes]

    return (
        lambda codes, bits: turn(pack(flip(codes, bits), bits)),
        lambda data, bits, n: flip(unpack(turn(data), bits, n), bits),
    )


def none_across_bytes() -> Pair:
    def packs(codes: list[int], bits: int) -> list[int]:
        each = 8 // bits
        return [
            sum(code << j * bits for j, code in enumerate(codes[i : i + each]))
            for i in range(0, len(codes), each)
        ]

    def unpacks(data: list[int], bits: int, n: int) -> list[int]:
        each, last = 8 // bits, (1 << bits) - 1
        padded = [*data, *[0] * n]
        return [padded[i // each] >> i % each * bits & last for i in range(n)]

    return packs, unpacks


def nibbles_for_everything() -> Pair:
    return (
        lambda codes, bits: pack(codes, 4) if bits < 5 else pack(codes, 8),
        lambda data, bits, n: unpack(data, 4 if bits < 5 else 8, n),
    )


def words_of_32_bits() -> Pair:
    def packs(codes: list[int], bits: int) -> list[int]:
        found = pack(codes, bits)
        return [*found, *[0] * (-len(found) % 4)]

    return packs, unpack


def bytes_backwards() -> Pair:
    return (
        lambda codes, bits: pack(codes, bits)[::-1],
        lambda data, bits, n: unpack(data[::-1], bits, n),
    )


def last_codes_cut_off() -> Pair:
    return (
        lambda codes, bits: pack(codes, bits)[: len(codes) * bits // 8],
        lambda data, bits, n: unpack(data, bits, n),
    )


def halves_apart() -> Pair:
    def order(n: int) -> list[int]:
        half = (n + 1) // 2
        return [i // 2 + half * (i % 2) for i in range(n)]

    def packs(codes: list[int], bits: int) -> list[int]:
        return pack([codes[i] for i in order(len(codes))], bits)

    def unpacks(data: list[int], bits: int, n: int) -> list[int]:
        found = dict(zip(order(n), unpack(data, bits, n), strict=True))
        return [found[i] for i in range(n)]

    return packs, unpacks


_both(
    a_byte_each,
    "tensors of int4 that take a byte a number",
    "You keep a byte for each code: nothing has become smaller.",
)
_both(
    first_code_on_top,
    "bitsandbytes, which has the first of two codes in the upper half",
    "Your first code lies in the highest bits of its byte: here it begins at the lowest.",
)
_both(
    none_across_bytes,
    "“eight bits hold two codes of three”",
    "You put as many whole codes into a byte as fit. Here nothing is left free: a code may lie in"
    " two bytes, and eight of three bits fill three bytes.",
)
_both(
    nibbles_for_everything,
    "int3 stored as int4",
    "You give every code of up to four bits half a byte, and the others a whole one: each takes"
    " exactly `bits` bits.",
)
_both(
    words_of_32_bits,
    "GPTQ's int32 words",
    "You fill up to whole words of 32 bits: here the last byte is filled up, no more.",
)
_both(
    bytes_backwards,
    "big-endian numbers",
    "Your bytes come in the opposite order: the first codes lie in the first byte.",
)
_both(
    last_codes_cut_off,
    "a division rounded down",
    "You rounded the number of bytes down: where codes do not fill the last byte, it is there,"
    " too.",
)
_both(
    halves_apart,
    "q4_0, whose byte j holds numbers j and j + 16",
    "You share a byte between codes that lie half a row apart, as q4_0 does: here neighbors do.",
)
wrong.add(
    "not_masked",
    {"unpack": replaced(unpack, {"& (1 << bits) - 1": "& 255"})},
    "plausible",
    "Your unpack leaves the neighbors' bits in: cut each code off with & (1 << bits) − 1.",
)


def observe(answer: Answer, case: Case) -> Any:
    """What one of the two returns, as a list of whole numbers."""
    return {case.args[0]: plain(answer.call(*case.args))}


def cases(rng: random.Random) -> list[Case]:
    """Each width from 1 to 8: none, one, a byte less one code and more; five thousand; then the
    same back; bits of a last byte that mean nothing."""

    def codes(n: int, bits: int) -> list[int]:
        """Every bit of a code is met, the last code is not 0."""
        last = (1 << bits) - 1
        return [(5 * i + 3 * i // 7 + 1) & last for i in range(n - 1)] + [last] * (n > 0)

    def both(name: str, given: list[int], bits: int, public: bool = True) -> list[Case]:
        return [
            Case(f"pack {name}", ("pack", given, bits), public=public),
            Case(
                f"unpack {name}",
                ("unpack", pack(given, bits), bits, len(given)),
                public=public,
            ),
        ]

    made = both("1 and 2 in 4 bits", [1, 2], 4)
    made += [  # but for one argument the same: whoever keeps results by the others is wrong here
        Case("unpack the same byte as 3 bits", ("unpack", [0b100001], 3, 2)),
        Case("unpack 1 of the same byte", ("unpack", [0b100001], 4, 1)),
    ]
    made += both("1 and 2 in 3 bits", [1, 2], 3) + both("3 and 2 in 4 bits", [3, 2], 4)
    made += both("8 of 3 bits", [*range(8)], 3)
    for bits in range(1, 9):
        for n in (0, 1, 7, 9):
            made += both(f"{n} of {bits} bits", codes(n, bits), bits)
    for bits in (3, 4):
        given = [rng.randrange(1 << bits) for _ in range(4999)] + [(1 << bits) - 1]
        made += both(f"5000 of {bits} bits", given, bits)
    made += both("8 in 3 bits, and three zeros", [5, 0, 0, 0], 3) + both("three zeros", [0] * 3, 5)
    made += [
        Case("unpack 1 of 5 bits, the rest of the byte set", ("unpack", [0b10100110], 5, 1)),
        Case("unpack 4 of 5 bits, the rest set", ("unpack", [0b111, 0b10010, 0b11100111], 5, 4)),
        *both("fresh of 5 bits", [rng.randrange(32) for _ in range(13)], 5, public=False),
    ]
    # what one returns must not change when it is called again: its calls follow one another
    return sorted(made, key=lambda case: case.args[0])


EXERCISE = Exercise(
    id="quantization-pack",
    title="Codes side by side",
    kind="kernel",
    points=4,
    minutes=15,
    entries=("pack", "unpack"),
    cases=cases,
    observe=observe,
    reference={"pack": pack, "unpack": unpack},
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Think of a row as one stream of bits. Where does code i begin, and where byte j?",
        "Code i begins at bit i·bits. Python's whole numbers are as long as you like: the stream"
        " may be one number.",
        "stream = sum(code << i·bits); byte j is stream >> 8·j & 255. Back: stream >> i·bits, and"
        " cut off with & (1 << bits) − 1.",
    ),
    ranges={"pack.bits": (1, 8), "unpack.bits": (1, 8)},
    recall=(
        "How many bytes do 100 codes of three bits take, and how many lie in two bytes?",
        "38 (300 bits); of every eight codes two do: the third and the sixth.",
    ),
)
