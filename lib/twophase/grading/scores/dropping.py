"""Which of several scores to leave out so that the percentage of the rest is highest.

The percentage is a ratio of two sums, and when scores are out of different amounts the lowest is
not always the one to drop. Dinkelbach's method (Management Science 13, 1967) finds the best choice
exactly: with `r` the ratio so far, leave out what has `points - r * out_of` below zero, most
negative first; repeat until the ratio no longer grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Weighted:
    """A score. `free`: it may be left out in any case (excused). `out_of` 0: extra credit, which
    always stays."""

    points: Fraction
    out_of: Fraction
    free: bool = False


def ratio(items: Sequence[Weighted]) -> Fraction:
    """Points over what they are out of. Raises ValueError if that is nothing."""
    out_of = sum((i.out_of for i in items), Fraction(0))
    if out_of == 0:
        raise ValueError("there is nothing to take a percentage of")
    return sum((i.points for i in items), Fraction(0)) / out_of


def highest_ratio(items: Sequence[Weighted], drop: int = 0) -> frozenset[int]:
    """The positions to keep: whatever is free and up to `drop` others are left out where that
    raises the ratio.

    At least one item that is not extra credit stays. Raises ValueError if there is none.
    """
    kept = frozenset(range(len(items)))
    found = ratio(items)
    while True:
        tried = _kept(items, drop, found)
        better = ratio([items[n] for n in tried])
        if better <= found:
            return kept
        kept, found = tried, better


def _kept(items: Sequence[Weighted], drop: int, at: Fraction) -> frozenset[int]:
    worth = {n: i.points - at * i.out_of for n, i in enumerate(items) if i.out_of > 0}
    below = sorted((n for n in worth if worth[n] < 0), key=lambda n: (worth[n], n))
    out = {n for n in below if items[n].free}
    out |= set([n for n in below if not items[n].free][:drop])
    if len(out) == len(worth):
        out.discard(max(worth, key=lambda n: (worth[n], -n)))
    return frozenset(range(len(items))) - out
