"""How long requests wait at a percentile, and how many are in flight: laws of queues against the
formulas that are known exactly."""

import math

import pytest

from twophase.theory.continuous_batching import mean_wait_s, most_in_flight, wait_exceeded_s


def exceeds(t: float, busy: float) -> float:
    """The chance that a request waits longer than t services, all of them equally long: M/D/1,
    Erlang's law of 1909."""
    below = sum(
        (busy * (k - t)) ** k / math.factorial(k) * math.exp(-busy * (k - t))
        for k in range(int(t) + 1)
    )
    return 1 - (1 - busy) * below


@pytest.mark.parametrize("missed", [0.1, 0.05, 0.01])
@pytest.mark.parametrize("busy", [0.2, 0.5, 0.8])
def test_the_wait_at_a_percentile_is_exact_for_random_services_and_near_for_equal_ones(
    busy: float, missed: float
) -> None:
    """M/M/1 has exactly an exponential wait. Equal services: exceeded by a third more
    than asked at most, and by a seventh of them at least."""
    random_services = math.log(busy / missed) / (1 - busy)
    assert wait_exceeded_s(busy, 1.0, 2.0, missed) == pytest.approx(max(random_services, 0))
    found = exceeds(float(wait_exceeded_s(busy, 1.0, 1.0, missed)), busy)
    assert missed / 7 < found < missed * 4 / 3
    assert wait_exceeded_s(2 * busy, 0.5, 0.25, missed) == pytest.approx(
        wait_exceeded_s(busy, 1.0, 1.0, missed) / 2
    )


def test_the_wait_at_a_percentile_has_edges() -> None:
    assert wait_exceeded_s(0.5, 1.0, 1.0, 0.6) == 0  # so many do not wait at all
    assert wait_exceeded_s(1.0, 1.0, 1.0, 0.05) == math.inf
    assert wait_exceeded_s(0.0, 1.0, 1.0, 0.05) == 0
    with pytest.raises(ValueError, match="missed must be"):
        wait_exceeded_s(0.5, 1.0, 1.0, 1.5)


@pytest.mark.parametrize("mean", [0.01, 1, 7.5, 40, 300])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.95, 0.999])
def test_as_many_are_in_flight_as_poissons_law_says(mean: float, share: float) -> None:
    chances = [math.exp(-mean)]
    while sum(chances) < 1 - 1e-9:
        chances.append(chances[-1] * mean / len(chances))
    exact = next(n for n in range(len(chances)) if sum(chances[: n + 1]) >= share)
    assert most_in_flight(mean, share) == exact


def test_squares_below_the_square_of_the_mean_are_no_service_times() -> None:
    assert mean_wait_s(0.5, 1.0, 1.0) == 0.5  # all equally long
    with pytest.raises(ValueError, match="mean_s squared must be at most mean_square_s2"):
        mean_wait_s(0.5, 1.0, 0.99)
    with pytest.raises(ValueError, match="mean_s squared must be at most mean_square_s2"):
        wait_exceeded_s(0.5, 1.0, 0.99, 0.05)


def test_in_flight_at_its_edges() -> None:
    assert most_in_flight(0, 0.999) == 0
    assert most_in_flight(10**6, 0.5) == pytest.approx(10**6, abs=1)
    for mean, share in ((-1, 0.5), (math.nan, 0.5), (2e6, 0.5), (1, 1.0), (1, -0.1)):
        with pytest.raises(ValueError, match="a mean is from 0"):
            most_in_flight(mean, share)
