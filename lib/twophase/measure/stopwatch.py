"""Medians of wall-clock times, taken so that they can be compared on a machine that other people
use too.

Warm-up first; then rounds in which every function runs once, in alternating order, so that all see
the same weather; the median with its quartiles. A ratio is the median of the rounds' own ratios,
which drift does not touch.
"""

from __future__ import annotations

import gc
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .tables import Table, si

Clock = Callable[[], float]
MIN_SAMPLE_S = (
    50e-6  # shorter calls are timed several at once, so that reading the clock does not show
)


@dataclass(frozen=True)
class Timing:
    """Seconds per call of one function: one sample per round."""

    name: str
    samples_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The median."""
        return statistics.median(self.samples_s)

    @property
    def fastest_s(self) -> float:
        """The fastest: the one that neighbors on a shared machine disturbed least."""
        return min(self.samples_s)

    @property
    def quartiles_s(self) -> tuple[float, float]:
        """The first and third quartile: half of the samples lie between them."""
        if len(self.samples_s) == 1:
            return self.samples_s[0], self.samples_s[0]
        low, _, high = statistics.quantiles(self.samples_s, n=4, method="inclusive")
        return low, high

    @property
    def spread(self) -> float:
        """Distance of the quartiles as a share of the median."""
        low, high = self.quartiles_s
        return (high - low) / self.median_s if self.median_s else math.nan

    @property
    def count(self) -> int:
        """How many samples."""
        return len(self.samples_s)

    def __str__(self) -> str:
        low, high = self.quartiles_s
        return (
            f"{self.name}: {si(self.median_s, 's')} (quartiles {si(low, 's')} to {si(high, 's')},"
            f" {self.count} runs)"
        )


class Race(dict[str, Timing]):
    """Timings by name, taken in the same rounds."""

    def ratio(self, slow: str, fast: str) -> float:
        """How many times longer `slow` took than `fast`: the median over rounds of the ratio within
        a round."""
        pairs = zip(self[slow].samples_s, self[fast].samples_s, strict=True)
        return statistics.median(a / b for a, b in pairs)

    def table(
        self, caption: str = "Median wall-clock time per call", baseline: str | None = None
    ) -> Table:
        """One row per function; with a baseline, also how many times as fast as it each one is."""
        columns = ["what", "median", "first quartile", "third quartile", "runs"]
        rows: list[list[object]] = []
        for name, timing in self.items():
            low, high = timing.quartiles_s
            row: list[object] = [
                name,
                si(timing.median_s, "s"),
                si(low, "s"),
                si(high, "s"),
                timing.count,
            ]
            rows.append([*row, self.ratio(baseline, name)] if baseline else row)
        return Table(
            rows,
            [*columns, f"speed-up over {baseline}"] if baseline else columns,
            caption,
            digits=3,
        )

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def race(
    functions: Mapping[str, Callable[[], object]],
    *,
    budget_s: float = 1.0,
    warmup: int = 2,
    min_rounds: int = 5,
    max_rounds: int = 1000,
    clock: Clock = time.perf_counter,
) -> Race:
    """Time several functions in one run, in rounds, until `budget_s` seconds are spent on all of
    them together.

    At least `min_rounds` rounds, whatever they take. Results of a call live until its time is
    taken, so that freeing them is not timed. CUDA is waited for. Raises ValueError for no
    functions, a budget that is not positive, or rounds that are no whole numbers.
    """
    rounds = (warmup, min_rounds, max_rounds)
    if any(isinstance(n, bool) or not hasattr(n, "__index__") for n in rounds):
        raise ValueError(f"warmup, min_rounds and max_rounds are whole numbers; got {rounds}.")
    if not functions or not budget_s > 0 or warmup < 0 or not 1 <= min_rounds <= max_rounds:
        raise ValueError(
            "A race needs functions, a positive budget_s, warmup >= 0 and 1 <= min_rounds <="
            " max_rounds."
        )
    names = list(functions)
    with _no_garbage_collection():
        repeats = {name: _warm_up(functions[name], warmup, clock) for name in names}
        samples: dict[str, list[float]] = {name: [] for name in names}
        start = clock()
        for round_number in range(max_rounds):
            if round_number >= min_rounds and clock() - start >= budget_s:
                break
            for name in names if round_number % 2 == 0 else reversed(names):
                samples[name].append(_sample(functions[name], repeats[name], clock))
    return Race({name: Timing(name, tuple(samples[name])) for name in names})


def stopwatch(function: Callable[[], object], name: str = "", **options: Any) -> Timing:
    """Time one function; the options are those of `race`."""
    label = name or getattr(function, "__name__", "function")
    return race({label: function}, **options)[label]


def _warm_up(function: Callable[[], object], warmup: int, clock: Clock) -> int:
    """Run a function untimed, and say how many calls make a sample long enough for the clock."""
    last = MIN_SAMPLE_S
    for _ in range(warmup):
        last = _sample(function, 1, clock)
    return max(1, min(10_000, math.ceil(MIN_SAMPLE_S / last))) if last > 0 else 1


def _sample(function: Callable[[], object], calls: int, clock: Clock) -> float:
    kept: list[object] = [None] * calls
    wait = _device_wait()
    wait()
    start = clock()
    for call in range(calls):
        kept[call] = function()
    wait()
    return (clock() - start) / calls


def _device_wait() -> Callable[[], None]:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        return lambda: torch.cuda.synchronize()
    return lambda: None


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
