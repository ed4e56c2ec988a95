"""The quantizers of quantization-quantizer_tests: two right ones, and one wrong in each way that
the reader's cases must catch. Each gives the absmax codes of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

Quantizer = Callable[[list[float], int], list[int]]


def _last(bits: int) -> int:
    return int(2 ** (bits - 1)) - 1


def _rounded(numbers: list[float], s: float) -> list[int]:
    return [round(x / s) for x in numbers]


def _size(numbers: list[float]) -> float:
    return max(map(abs, numbers))


def by_steps(numbers: list[float], bits: int) -> list[int]:
    return _rounded(numbers, _size(numbers) / _last(bits) or 1.0)


def by_searching(numbers: list[float], bits: int) -> list[int]:
    size, last = _size(numbers), _last(bits)
    return [
        min(range(-last, last + 1), key=lambda q: abs(x * last - q * size)) if size else 0
        for x in numbers
    ]


def over_two_to_b_1(numbers: list[float], bits: int) -> list[int]:
    last = _last(bits)
    s = _size(numbers) / (last + 1) or 1.0
    return [max(-last - 1, min(last, q)) for q in _rounded(numbers, s)]


def largest_not_size(numbers: list[float], bits: int) -> list[int]:
    last = _last(bits)
    s = max(numbers) / last if max(numbers) > 0 else 1.0
    return [max(-last, min(last, q)) for q in _rounded(numbers, s)]


def size_of_the_lowest(numbers: list[float], bits: int) -> list[int]:
    last = _last(bits)
    s = -min(numbers) / last if min(numbers) < 0 else 1.0
    return [max(-last, min(last, q)) for q in _rounded(numbers, s)]


def cuts_off(numbers: list[float], bits: int) -> list[int]:
    s = _size(numbers) / _last(bits) or 1.0
    return [int(x / s + math.copysign(1e-9, x)) for x in numbers]


def rounds_down(numbers: list[float], bits: int) -> list[int]:
    s = _size(numbers) / _last(bits) or 1.0
    return [math.floor(x / s + 1e-9) for x in numbers]


def rounds_up(numbers: list[float], bits: int) -> list[int]:
    s = _size(numbers) / _last(bits) or 1.0
    return [math.ceil(x / s - 1e-9) for x in numbers]


def always_four_bits(numbers: list[float], bits: int) -> list[int]:
    return by_steps(numbers, 4)


def always_eight_bits(numbers: list[float], bits: int) -> list[int]:
    return by_steps(numbers, 8)


def zeros_divide(numbers: list[float], bits: int) -> list[int]:
    return _rounded(numbers, _size(numbers) / _last(bits))


def range_for_size(numbers: list[float], bits: int) -> list[int]:
    """The scale of (max − min) / 2."""
    last = _last(bits)
    s = (max(numbers) - min(numbers)) / 2 / last or _size(numbers) / last or 1.0
    return [max(-last, min(last, q)) for q in _rounded(numbers, s)]


def drops_signs(numbers: list[float], bits: int) -> list[int]:
    return [abs(q) for q in by_steps(numbers, bits)]


def relu(numbers: list[float], bits: int) -> list[int]:
    return [max(q, 0) for q in by_steps(numbers, bits)]


def groups_of_eight(numbers: list[float], bits: int) -> list[int]:
    return [q for i in range(0, len(numbers), 8) for q in by_steps(numbers[i : i + 8], bits)]


def first_sets_the_scale(numbers: list[float], bits: int) -> list[int]:
    last = _last(bits)
    s = abs(numbers[0]) / last or 1.0
    return [max(-last, min(last, q)) for q in _rounded(numbers, s)]


def last_left_out_of_the_scale(numbers: list[float], bits: int) -> list[int]:
    last = _last(bits)
    s = _size(numbers[:-1] or numbers) / last or 1.0
    return [max(-last, min(last, q)) for q in _rounded(numbers, s)]


def epsilon(numbers: list[float], bits: int) -> list[int]:
    """The largest size no smaller than 0.001, so that nothing is divided by 0."""
    return _rounded(numbers, max(_size(numbers), 1e-3) / _last(bits))


def scale_of_one_at_least(numbers: list[float], bits: int) -> list[int]:
    return _rounded(numbers, max(_size(numbers), 1.0) / _last(bits))


def offset_stored(numbers: list[float], bits: int) -> list[int]:
    return [q + 2 ** (bits - 1) for q in by_steps(numbers, bits)]


RIGHT: tuple[Quantizer, ...] = (by_steps, by_searching)
MUTANTS: dict[str, Quantizer] = {
    "divides by 2**(b − 1)": over_two_to_b_1,
    "takes the largest number for the largest size": largest_not_size,
    "takes the size of the lowest number": size_of_the_lowest,
    "cuts off": cuts_off,
    "rounds down": rounds_down,
    "rounds up": rounds_up,
    "has always 4 bits": always_four_bits,
    "has always 8 bits": always_eight_bits,
    "divides zeros by zero": zeros_divide,
    "takes half the range for the largest size": range_for_size,
    "drops signs": drops_signs,
    "drops what is below zero": relu,
    "begins a new scale after eight numbers": groups_of_eight,
    "takes its scale from the first number": first_sets_the_scale,
    "leaves the last number out of the scale": last_left_out_of_the_scale,
    "takes a largest size below a thousandth for a thousandth": epsilon,
    "keeps its largest size at 1 or more": scale_of_one_at_least,
    "adds an offset to its codes": offset_stored,
}
