"""What is rounded: points and percentages, when they are shown. All else is exact."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction


def points_text(points: Fraction) -> str:
    """Points for people and learning platforms: two decimals at most, half up; `0.125` is 0.13."""
    return f"{_rounded(points, '0.01'):f}".rstrip("0").rstrip(".")


def percent_text(percent: Fraction) -> str:
    """A percentage for people: no decimals, half up; `62.5` is 63%."""
    return f"{_rounded(percent, '1'):f}%"


def _rounded(value: Fraction, unit: str) -> Decimal:
    return (Decimal(value.numerator) / Decimal(value.denominator)).quantize(
        Decimal(unit), ROUND_HALF_UP
    )
