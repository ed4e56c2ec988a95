"""What a bench is held against: the fastest of the reads of memory that we have."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping

from twophase.measure.yardsticks import readers

REST_S = 0.01


def reads(n_bytes: int) -> dict[str, Callable[[], object]]:
    """Reads of so many bytes: those that calibrate a machine."""
    return {f"read, {name}": read for name, (read, _) in readers(n_bytes, "cpu").items()}


def rested(ways: Mapping[str, Callable[[], object]]) -> dict[str, Callable[[], object]]:
    """The same, with a rest between any two: when a library's threads have nothing to do they spin
    for some milliseconds, on the cores that the next one needs."""
    found: dict[str, Callable[[], object]] = {}
    for name, way in ways.items():
        found |= {name: way, f"rest after {name}": lambda: time.sleep(REST_S)}
    return found


def seconds(text: str) -> float:
    """An option's budget. ArgumentTypeError, which argparse makes a sentence of, for another."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"a positive number of seconds, not {text}")
    return value


def at_least_1(text: str) -> int:
    """An option's number. ArgumentTypeError for another."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number of at least 1, not {text}")
    return int(text)
