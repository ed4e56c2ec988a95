"""Edges for the cases of an exercise: sizes and places at which nearly right answers go wrong.

None of them is drawn: an edge that only some seeds meet is a verdict that depends on the seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TypeVar

from twophase.checks.exercise import Case

T = TypeVar("T")


def one_less_and_just_full(capacity: int) -> tuple[int, int, int]:
    """One less than fits, exactly what fits, one more."""
    return capacity - 1, capacity, capacity + 1


@cache
def past(*constants: int) -> int:
    """A prime above every constant that a person might have hard-coded (a table of 2,048 positions,
    the 64 heads of the worked numbers), so that it is a multiple of none."""
    n = max(constants) + 1
    while any(n % d == 0 for d in range(2, math.isqrt(n) + 1)):
        n += 1
    return n


def places(n: int) -> tuple[int, ...]:
    """The first place of n, one in the middle, the last."""
    return tuple(sorted({0, n // 2, n - 1}))


def one_changed(values: Mapping[str, T], **others: T) -> list[tuple[str, dict[str, T]]]:
    """The values with one of them replaced, for each of the others: beside the values themselves,
    these find out whoever remembers a result by some of the arguments only."""
    return [(f"but for {name}={other}", {**values, name: other}) for name, other in others.items()]


def put(values: Sequence[T], at: int, value: T) -> list[T]:
    """The values, with another one at place `at`."""
    return [*values[:at], value, *values[at + 1 :]]


def crossed(one: Case, other: Case, *says: str) -> list[Case]:
    """The first case, then the same with each argument in which they differ taken from the second:
    these find out whoever remembers a result by the other arguments. Both are given the same number
    of arguments and the same keywords; `says`, one for each, what is another then."""
    made = []
    for i, its in enumerate(other.args):
        if repr(one.args[i]) != repr(its):
            made.append(replace(one, args=tuple(put(one.args, i, its))))
    for key, its in other.kwargs.items():
        if repr(one.kwargs[key]) != repr(its):
            made.append(replace(one, kwargs={**one.kwargs, key: its}))
    named = zip(made, says, strict=True)
    return [one, *(replace(case, name=f"{one.name}, {what}") for case, what in named)]
