"""Logits, masses and temperatures of two_phases-sampler at which less than a millionth decides, and
which float32 still tells from each other."""

from __future__ import annotations

import math

from twophase.checks.exercise import Case

HALF_A_MILLIONTH = 2.0**-21
NEAR_TIE = [0.5, 1.25, 1.25 + HALF_A_MILLIONTH]
CLOSE = [0.0, 2 * HALF_A_MILLIONTH, HALF_A_MILLIONTH]
SLOPE = [-4.0, 2.5, 0.0]
LARGEST = 1 / (1 + math.exp(-2.5) + math.exp(-6.5))  # the probability of the second of these


def just_beyond() -> list[Case]:
    """One token of two that are almost as probable; one that falls short of top_p, or reaches it,
    by little; a top_p that is almost 1; a temperature that is almost 0, and one that is."""
    below, above = LARGEST * (1 - HALF_A_MILLIONTH), LARGEST * (1 + HALF_A_MILLIONTH)
    return [
        Case("top_k = 1 of two that almost tie", (NEAR_TIE, 1.0, 1, None)),
        Case("top_p half a millionth below the largest: one is left", (SLOPE, 1.0, None, below)),
        Case("top_p half a millionth above the largest: two are left", (SLOPE, 1.0, None, above)),
        Case("top_p = 0.99999 leaves two of three", ([-13.0, 0.0, -9.0], 1.0, None, 0.99999)),
        Case("temperature of half a millionth: low is not zero", (CLOSE, HALF_A_MILLIONTH, 3, 1)),
        Case("greedy: a millionth of a millionth apart", ([0.0, 2.0**-40], 0, None, None)),
    ]
