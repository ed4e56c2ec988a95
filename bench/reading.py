"""What a bench is held against: the fastest read of memory that there is here."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import torch

from twophase.kernels.compiled.pages import use_large_pages
from twophase.measure.yardsticks import ROW, readers


def reads(n_bytes: int) -> dict[str, Callable[[], object]]:
    """Reads of so many bytes: those that calibrate a machine, and torch's from large pages, in
    which compiled models have their weights and caches."""
    found = {f"read, {name}": read for name, (read, _) in readers(n_bytes, "cpu").items()}
    buffer = torch.ones(max(1, n_bytes // (4 * ROW)), ROW)  # [rows, ROW]
    use_large_pages(buffer)
    return found | {
        "read, sum, large pages": buffer.sum,
        "read, max, large pages": buffer.amax,
    }


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
