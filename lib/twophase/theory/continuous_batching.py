"""What a pass over many requests takes, and how long they wait for it.

A pass of an engine reads new tokens of several sequences: one each of those that decode, a chunk of
a prompt, or both. Waiting: the mean of a queue with one server (Pollaczek and Khinchine), which a
batch of requests is not; where it fits and where it does not is for a chapter to show. How many are
in flight: Poisson's law.
"""

import math
from collections.abc import Sequence
from functools import cache, partial

from twophase.theory._domain import COUNT, SOME, Number, at_most, formula
from twophase.theory._ops import divide_or_infinity, log, maximum
from twophase.theory.deployment import Deployment, largest
from twophase.theory.latency_throughput import step_time_s


class PassTimes:
    """What passes of a deployment take; parts that come again are remembered, since a simulation
    asks for millions."""

    def __init__(self, d: Deployment, overlap: bool = True) -> None:
        self.overlap = overlap
        self._bytes_per_s = d.chip.hbm_bytes_per_s
        self._flops_per_s = d.chip.peak_flops_per_s(d.w.compute)
        self._weight_bytes = cache(d.step_weight_bytes)
        self._flops = cache(partial(chunk_flops, d))
        self._cache_bytes = cache(lambda end: float(d.cache_bytes(end)))

    def __call__(self, starts: Sequence[int], n_new: Sequence[int]) -> float:
        """As `pass_s`."""
        if len(starts) != len(n_new) or not n_new or min(n_new) < 1 or min(starts) < 0:
            raise ValueError(
                "a pass needs a start of at least 0 and a count of at least 1 for each sequence;"
                f" got {list(starts)} and {list(n_new)}."
            )
        parts = list(zip(starts, n_new, strict=True))
        seconds: float = step_time_s(
            self._weight_bytes(sum(n_new)),
            1,
            sum(self._cache_bytes(start + n) for start, n in parts if start),
            sum(self._flops(start, n) for start, n in parts),
            self._bytes_per_s,
            self._flops_per_s,
            overlap=self.overlap,
        )
        return seconds


def pass_s(
    d: Deployment, starts: Sequence[int], n_new: Sequence[int], overlap: bool = True
) -> float:
    """Seconds of a pass that reads `n_new[i]` tokens of sequence i behind the `starts[i]` it holds.

    Weights are read once for all, each cache once, and every token is multiplied. With one new
    token each it is the planner's decode step, with one sequence from 0 on its prefill. ValueError
    for lists of different lengths, or a pass without tokens.
    """
    return PassTimes(d, overlap)(starts, n_new)


def largest_chunk(
    d: Deployment, starts: Sequence[int], limit_s: float, start: int = 0, overlap: bool = True
) -> int:
    """The most tokens of a prompt, `start` of which are read, that a pass may take along beside one
    token of each sequence that holds `starts[i]`, so that it takes at most `limit_s` (the token
    budget of Sarathi-Serve: Agrawal et al., 2024, section 4.3); 0 if there is no room for any.
    ValueError for a limit that is no positive and finite number."""
    if not 0 < limit_s < math.inf:
        raise ValueError(f"a limit is positive and finite; got {limit_s} seconds.")
    others, ones = list(starts), [1] * len(starts)
    seconds = PassTimes(d, overlap)
    return largest(lambda n: seconds([*others, start], [*ones, n]) <= limit_s)


def chunk_flops(d: Deployment, start: int, n: int) -> float:
    """FLOPs of n new tokens behind `start`; the head runs at the last of a prompt, or of a chunk of
    one token. ValueError for no token, or no whole numbers."""
    COUNT.check("start", start)
    SOME.check("n", n)
    if start and n == 1:
        return d.step_flops(1, start + 1)
    return d.prefill_flops(start + n) - (d.prefill_flops(start) if start else 0.0)


def static_steps(lengths: Sequence[int], seats: int) -> int:
    """Steps that static batches take: in each batch of `seats`, in order, as many as its longest
    answer has tokens. ValueError for no seat, or an answer without tokens."""
    _check_lengths(lengths, seats)
    return sum(max(lengths[i : i + seats]) for i in range(0, len(lengths), seats))


def least_steps(lengths: Sequence[int], seats: int) -> int:
    """No schedule of these answers on so many seats takes fewer: every seat busy in every step, and
    no answer faster than its length. ValueError as in `static_steps`."""
    _check_lengths(lengths, seats)
    return max(-(-sum(lengths) // seats), max(lengths))


def padding_share(lengths: Sequence[int]) -> float:
    """The share of a batch that is filling, if each sequence is as wide as the longest. ValueError
    for none, or one below 1."""
    _check_lengths(lengths, 1)
    return 1 - sum(lengths) / (len(lengths) * max(lengths))


def burstiness(gaps: Sequence[float]) -> float:
    """The squared coefficient of variation of the gaps between arrivals, variance over squared
    mean: 0 for a clockwork, 1 for Poisson's process, more where arrivals come in bursts. ValueError
    for no gaps, one below 0, or a mean of 0 or infinity."""
    if not gaps or min(gaps) < 0 or not 0 < sum(gaps) < math.inf:
        raise ValueError(
            f"gaps are at least 0, their mean above it and finite; got {len(gaps)} of them,"
            f" {sum(gaps):g} s together."
        )
    mean: float = sum(gaps) / len(gaps)
    return sum((gap - mean) ** 2 for gap in gaps) / len(gaps) / mean**2


@formula(zero_ok=("per_s", "mean_square_s2"))
def mean_wait_s(per_s: Number, mean_s: Number, mean_square_s2: Number) -> Number:
    """How long a request waits on average for the one server of a queue, M/G/1: requests arrive at
    random, `per_s` of them a second, and take `mean_s` seconds each, whose squares are
    `mean_square_s2` on average (Pollaczek and Khinchine, 1930 and 1932).

    Infinite where the server is busy all the time. ValueError for squares that are less on average
    than the square of the mean, which no times are.
    """
    at_most("mean_s squared", mean_s * mean_s, "mean_square_s2", mean_square_s2 * (1 + 1e-9))
    idle = 1 - per_s * mean_s
    waiting = per_s * mean_square_s2 / 2
    return divide_or_infinity(waiting, idle)


@formula(zero_ok=("per_s", "mean_square_s2"), fraction=("missed",))
def wait_exceeded_s(
    per_s: Number, mean_s: Number, mean_square_s2: Number, missed: Number
) -> Number:
    """The wait that the share `missed` of requests exceed, in the queue of `mean_wait_s`: 0.05 asks
    for the 95th percentile.

    A server is busy for the share `per_s mean_s` of arrivals, and those who wait do so for a time
    that is taken to be exponential, with the mean that Pollaczek and Khinchine give. Exact where
    service times are exponential, and nearly so for others at high load (Kingman, 1962). ValueError
    as there.
    """
    at_most("mean_s squared", mean_s * mean_s, "mean_square_s2", mean_square_s2 * (1 + 1e-9))
    busy = per_s * mean_s
    tail = log(maximum(busy / missed, 1))
    return divide_or_infinity(mean_square_s2 * tail, 2 * mean_s * (1 - busy))


def most_in_flight(mean: float, share: float) -> int:
    """Requests of which, for the share `share` of the time, no more are in flight, `mean` being
    there on average: those that arrive at random and stay for a time of any distribution, whoever
    else is there, are as many as Poisson's law says (M/G/infinity: Palm, 1943).

    ValueError for a mean that is negative or above 10^6, or a share that is not below 1.
    """
    if not 0 <= mean <= 10**6 or not 0 <= share < 1:
        raise ValueError(
            f"a mean is from 0 to 10^6, and a share at least 0 and below 1; got {mean}, {share}."
        )
    if not mean:
        return 0
    n = max(0, int(mean - 12 * math.sqrt(mean) - 12))  # below is less than 10^-30
    chance = math.exp(n * math.log(mean) - mean - math.lgamma(n + 1))
    below = chance
    while below < share and chance > 0:
        n += 1
        chance *= mean / n
        below += chance
    return n


@formula(zero_ok=("per_s",))
def busy_share(per_s: Number, mean_s: Number) -> Number:
    """The share of time that a server is busy. ValueError above 1: the queue then grows for
    ever."""
    at_most("the arrivals", per_s, "what the server can do", 1 / mean_s)
    return per_s * mean_s


def _check_lengths(lengths: Sequence[int], seats: int) -> None:
    if not lengths or any(n < 1 or n % 1 for n in (seats, *lengths)):  # NaN and infinity, too
        raise ValueError(
            "answers have at least one token, and there is at least one seat, in whole numbers; got"
            f" {list(lengths)} on {seats}."
        )
