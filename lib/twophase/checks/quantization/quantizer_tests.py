"""quantization-quantizer_tests: write the cases that find every wrong quantizer."""

from __future__ import annotations

from typing import Any

from twophase.checks.compare import EXACT
from twophase.checks.exercise import Exercise
from twophase.checks.misconceptions import Misconceptions
from twophase.checks.quantization._quantizers import MUTANTS, RIGHT, Quantizer
from twophase.checks.written_cases import WrittenCases

wrong = Misconceptions()

MOST_CASES, MOST_NUMBERS, LARGEST = 20, 16, 1000.0
Trial = tuple[list[float], int, list[int]]  # numbers, bits, codes


def passes(quantizer: Quantizer, trial: Trial) -> bool:
    """Whether a quantizer gives what the case expects."""
    numbers, bits, codes = trial
    try:
        return quantizer(list(map(float, numbers)), bits) == list(codes)
    except ArithmeticError:
        return False


def problem(trials: Any) -> str:
    """What makes the cases no cases, in one sentence; empty if nothing does."""
    if not isinstance(trials, list | tuple) or not 1 <= len(trials) <= MOST_CASES:
        return f"quantizer_tests() must return a list of 1 to {MOST_CASES} cases"
    for trial in trials:
        if not isinstance(trial, list | tuple) or len(trial) != 3:
            return "a case is a triple (numbers, bits, codes)"
        numbers, bits, codes = trial
        if type(bits) is not int or not 2 <= bits <= 8:
            return "bits must be a whole number from 2 to 8"
        if not isinstance(numbers, list | tuple) or not 1 <= len(numbers) <= MOST_NUMBERS:
            return f"a case has 1 to {MOST_NUMBERS} numbers"
        if any(type(x) not in (int, float) or not abs(x) <= LARGEST for x in numbers):
            return "numbers lie between −1000 and 1000"
        if not isinstance(codes, list | tuple) or any(type(q) is not int for q in codes):
            return "codes must be a list of whole numbers"
        largest, last = max(map(abs, numbers)), 2 ** (bits - 1) - 1
        if largest and any(abs(x / largest * last % 1 - 0.5) < 0.01 for x in numbers):
            return "a number lies within 0.01 steps of the middle of two levels"
    return ""


def _expectation(trial: Trial) -> str:
    """What a case that a right quantizer fails is; empty if it passes."""
    if all(passes(quantizer, trial) for quantizer in RIGHT):
        return ""
    return f"a right quantizer fails ({trial[0]}, {trial[1]} bits)"


WRITTEN = WrittenCases(
    "quantizer_tests", "each right quantizer", "one that", MUTANTS, problem, passes, _expectation
)


ZEROS = ([0.0, 0.0], 4, [0, 0])
MIXED = ([1.0, 2.7, -7.0, 4.3], 4, [1, 3, -7, 4])
RISING = ([-1.3, 0.0, 3.0], 3, [-1, 0, 3])
EIGHT = ([127.0, 3.2, -60.7], 8, [127, 3, -61])
TINY = ([0.0003, -0.0001], 3, [3, -1])
LONG = ([7.0] + [0.8] * 9, 4, [7] + [1] * 9)


def reference() -> list[Trial]:
    """The right answer (one of many)."""
    return [ZEROS, MIXED, RISING, EIGHT, TINY, LONG]


@wrong(
    "a quantizer that met its first pruned row in production",
    "No case is all zeros: whoever divides by the scale fails only there.",
)
def no_zeros() -> list[Trial]:
    return [MIXED, RISING, EIGHT, TINY, LONG]


@wrong(
    "plausible",
    "In all your cases the largest size is 0.001 or more: a scale that is kept above that passes.",
)
def no_tiny_numbers() -> list[Trial]:
    return [ZEROS, MIXED, RISING, EIGHT, ([0.3, -0.1], 3, [3, -1]), LONG]


@wrong(
    "plausible",
    "No case has more than eight numbers: a new scale after eight stays hidden.",
)
def short_ones() -> list[Trial]:
    return [ZEROS, MIXED, RISING, EIGHT, TINY]


@wrong(
    "plausible",
    "All your cases have four bits: one that has four always passes.",
)
def four_bits_only() -> list[Trial]:
    return [ZEROS, MIXED, ([-1.3, 0.0, 7.0], 4, [-1, 0, 7]), ([0.0007, -0.0001], 4, [7, -1]), LONG]


@wrong(
    "plausible",
    "In no case is the last number the largest: a scale that leaves it out passes.",
)
def largest_never_last() -> list[Trial]:
    return [ZEROS, MIXED, ([-1.3, 3.0, 0.0], 3, [-1, 3, 0]), EIGHT, TINY, LONG]


@wrong(
    "relu's outputs as test data",
    "None of your numbers is negative: signs, and the size of negative numbers, are not tested.",
)
def nothing_negative() -> list[Trial]:
    return [
        ZEROS,
        ([1.0, 2.7, 7.0, 4.3], 4, [1, 3, 7, 4]),
        ([1.3, 0.0, 3.0], 3, [1, 0, 3]),
        ([127.0, 3.2, 60.7], 8, [127, 3, 61]),
        ([0.0003, 0.0001], 3, [3, 1]),
        LONG,
    ]


@wrong(
    "plausible",
    "All your numbers lie on levels: then cutting off, rounding down and rounding up pass.",
)
def all_on_levels() -> list[Trial]:
    return [
        ZEROS,
        ([1.0, 3.0, -7.0, 4.0], 4, [1, 3, -7, 4]),
        ([-1.0, 0.0, 3.0], 3, [-1, 0, 3]),
        ([127.0, 3.0, -61.0], 8, [127, 3, -61]),
        TINY,
        ([7.0] + [1.0] * 9, 4, [7] + [1] * 9),
    ]


@wrong(
    "scales written as max / 8",
    "You expect the largest number on level 2**(b − 1), or next to it: it belongs on"
    " 2**(b − 1) − 1, and right quantizers fail.",
)
def expects_eight() -> list[Trial]:
    return [ZEROS, ([1.0, 2.7, -7.0, 4.3], 4, [1, 3, -8, 5]), RISING, EIGHT, TINY, LONG]


EXERCISE = Exercise(
    id="quantization-quantizer_tests",
    title="Find every wrong quantizer",
    kind="test",
    points=5,
    minutes=20,
    entries=("quantizer_tests",),
    cases=WRITTEN.cases,
    observe=WRITTEN.observe,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "What can go wrong with the scale (which number sets it, over what), with rounding, with"
        " signs, with zeros?",
        "Let the largest size be negative once, the last number once; numbers below and above the"
        " middle of two levels; sizes far below 1; other widths than 4 and 8.",
        "Six cases do it: zeros; four numbers around −7 in 4 bits; three in 3 bits with the largest"
        " last; three in 8; numbers of 0.0001; ten numbers of which the first is the largest.",
    ),
    recall=(
        "Which inputs find a quantizer whose scale is max(w) / 127?",
        "Numbers of which the largest in size is negative.",
    ),
)
