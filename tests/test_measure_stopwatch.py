"""The stopwatch against a clock that only moves when the timed functions say so."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from itertools import cycle

import pytest

from twophase.measure import race, stopwatch


class FakeClock:
    """Seconds that pass only when somebody lets them."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def lasting(self, *seconds: float) -> Callable[[], None]:
        durations: Iterator[float] = cycle(seconds)

        def function() -> None:
            self.now += next(durations)

        return function


def test_the_median_and_quartiles_are_those_of_the_samples():
    clock = FakeClock()
    timing = stopwatch(
        clock.lasting(1.0, 2.0, 3.0, 4.0, 100.0),
        "f",
        warmup=0,
        min_rounds=5,
        max_rounds=5,
        clock=clock,
    )
    assert timing.count == 5
    assert (timing.median_s, timing.quartiles_s) == (3.0, (2.0, 4.0))
    assert timing.fastest_s == 1.0
    assert timing.spread == pytest.approx(2 / 3)


def test_warm_up_is_not_timed():
    clock = FakeClock()
    timing = stopwatch(
        clock.lasting(50.0, 50.0, 1.0, 1.0, 1.0), warmup=2, min_rounds=3, max_rounds=3, clock=clock
    )
    assert timing.samples_s == (1.0, 1.0, 1.0)


def test_rounds_stop_when_the_budget_is_spent_but_not_before_the_fewest():
    clock = FakeClock()
    assert stopwatch(clock.lasting(0.25), budget_s=2.0, clock=clock).count == 8
    assert stopwatch(clock.lasting(10.0), budget_s=2.0, min_rounds=4, clock=clock).count == 4


def test_functions_of_a_race_alternate_and_change_places_every_round():
    clock, calls = FakeClock(), []
    functions = {name: lambda n=name: (calls.append(n), clock.lasting(1.0)()) for name in "ab"}
    race(functions, warmup=0, min_rounds=3, max_rounds=3, clock=clock)
    assert "".join(calls) == "abbaab"


def test_a_ratio_within_rounds_is_untouched_by_drift():
    clock = FakeClock()
    slow, fast = (
        clock.lasting(*(2.0 * drift for drift in (1, 5, 25))),
        clock.lasting(1.0, 5.0, 25.0),
    )
    result = race({"slow": slow, "fast": fast}, warmup=0, min_rounds=3, max_rounds=3, clock=clock)
    assert result.ratio("slow", "fast") == 2.0
    assert result.table(baseline="slow").column("speed-up over slow") == [1.0, 2.0]


def test_short_calls_are_timed_several_at_once():
    clock, calls = FakeClock(), []
    tick = clock.lasting(1e-6)
    timing = stopwatch(
        lambda: (calls.append(1), tick()), warmup=1, min_rounds=2, max_rounds=2, clock=clock
    )
    assert len(calls) in (1 + 2 * 50, 1 + 2 * 51)
    assert timing.median_s == pytest.approx(1e-6)


def test_freeing_a_result_is_not_timed():
    clock = FakeClock()

    class Costly:
        def __del__(self) -> None:
            clock.now += 7.0

    def make() -> Costly:
        clock.now += 1.0
        return Costly()

    assert stopwatch(make, warmup=1, min_rounds=3, max_rounds=3, clock=clock).samples_s == (
        1.0,
        1.0,
        1.0,
    )


def test_garbage_collection_is_off_while_timing_and_back_on_after_an_error():
    seen = []
    stopwatch(lambda: seen.append(gc.isenabled()), budget_s=1e-9, min_rounds=1)
    assert not any(seen)
    with pytest.raises(ZeroDivisionError):
        stopwatch(lambda: 1 / 0)
    assert gc.isenabled()


@pytest.mark.parametrize(
    "options",
    [{"budget_s": 0}, {"warmup": -1}, {"min_rounds": 0}, {"min_rounds": 5, "max_rounds": 4}],
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ValueError, match="A race needs"):
        stopwatch(lambda: None, **options)
    with pytest.raises(ValueError, match="A race needs"):
        race({})
