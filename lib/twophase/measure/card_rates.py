"""The rates that a recorded card holds up: large products of random numbers, a second long."""

from __future__ import annotations

from dataclasses import replace

from twophase.theory.hardware import Hardware

from .card_runs import Recorded

SQUARES = {  # by format: part and way of its square product in the file
    "bf16": ("calibration", "bf16, random numbers"),
    "fp32": ("calibration", "fp32, random numbers"),
    "int8": ("formats", "int8, random numbers"),
    "fp8": ("formats", "fp8, quick sums, random numbers"),
}


def steady(recorded: Recorded, name: str | None = None) -> Hardware:
    """The card with the FLOP/s of square products of 8,192 random numbers a side, run for a second,
    in which a clock settles, and the bandwidth of its calibration.

    `Recorded.hardware` has what short bursts reach, which in bf16 is more. `name` in place of the
    card's own. Raises ValueError for a file without calibration or without these products.
    """
    chip = recorded.hardware()
    rates = {
        of: recorded.one(part, "square product", way).flops_per_s
        for of, (part, way) in SQUARES.items()
    }
    return replace(chip, name=name or chip.name, flops_per_s=rates)
