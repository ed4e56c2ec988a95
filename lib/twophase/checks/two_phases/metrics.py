"""two_phases-metrics: TTFT, TPOT, latency from the times at which tokens arrived."""

from __future__ import annotations

import random
from itertools import pairwise
from statistics import median

from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

Metrics = dict[str, float | None]


def _metrics(ttft_s: float, tpot_s: float | None, latency_s: float, tokens_per_s: float) -> Metrics:
    return {
        "ttft_s": ttft_s,
        "tpot_s": tpot_s,
        "latency_s": latency_s,
        "tokens_per_s": tokens_per_s,
    }


def reference(arrival_s: float, token_times_s: list[float]) -> Metrics:
    """The right answer."""
    first, last, n = token_times_s[0], token_times_s[-1], len(token_times_s)
    tpot_s = (last - first) / (n - 1) if n > 1 else None
    return _metrics(first - arrival_s, tpot_s, last - arrival_s, n / (last - arrival_s))


@wrong(
    "benchmark scripts that divide by the number of tokens",
    "Between n tokens lie n − 1 gaps: TPOT divides by n − 1.",
)
def divided_by_n(arrival_s: float, token_times_s: list[float]) -> Metrics:
    right, n = reference(arrival_s, token_times_s), len(token_times_s)
    tpot_s = (token_times_s[-1] - token_times_s[0]) / n if n > 1 else None
    return {**right, "tpot_s": tpot_s}


@wrong(
    "dashboards that report latency over tokens as time per output token",
    "Your TPOT contains the wait for the first token. It is the time between tokens: start at the"
    " first one.",
)
def ttft_in_tpot(arrival_s: float, token_times_s: list[float]) -> Metrics:
    right, n = reference(arrival_s, token_times_s), len(token_times_s)
    return {**right, "tpot_s": (token_times_s[-1] - arrival_s) / n if n > 1 else None}


@wrong("plausible", "Your TTFT is a time of day. It is a duration: subtract the arrival.")
def clock_for_duration(arrival_s: float, token_times_s: list[float]) -> Metrics:
    right = reference(arrival_s, token_times_s)
    return {**right, "ttft_s": token_times_s[0]}


@wrong(
    "plausible",
    "Latency runs from the arrival to the last token; you started it at the first token.",
)
def latency_from_first_token(arrival_s: float, token_times_s: list[float]) -> Metrics:
    right = reference(arrival_s, token_times_s)
    return {**right, "latency_s": token_times_s[-1] - token_times_s[0]}


@wrong(
    "lecture notes that call tokens per second a latency",
    "1 / TPOT is the rate after the first token. The request's tokens per second count the wait"
    " for it too.",
)
def rate_is_inverse_tpot(arrival_s: float, token_times_s: list[float]) -> Metrics:
    right = reference(arrival_s, token_times_s)
    return {**right, "tokens_per_s": 1 / right["tpot_s"] if right["tpot_s"] else 0.0}


@wrong(
    "plausible",
    "With one token there is no time between tokens. 0 would mean infinitely fast: return None.",
)
def zero_for_undefined(arrival_s: float, token_times_s: list[float]) -> Metrics:
    right = reference(arrival_s, token_times_s)
    return {**right, "tpot_s": right["tpot_s"] or 0.0}


def _request(rng: random.Random, n: int) -> tuple[float, list[float]]:
    arrival_s = rng.uniform(5, 100)
    now = arrival_s + rng.uniform(0.05, 2)
    times = [now]
    for _ in range(n - 1):
        now += rng.uniform(0.005, 0.06)
        times.append(now)
    return arrival_s, times


@wrong(
    "dashboards that show the median",
    "You took the median of the gaps. TPOT is their mean: a stall counts.",
)
def median_gap(arrival_s: float, token_times_s: list[float]) -> Metrics:
    gaps = [b - a for a, b in pairwise(token_times_s)]
    return {**reference(arrival_s, token_times_s), "tpot_s": median(gaps) if gaps else None}


@wrong(
    "logs of a day",
    "You took the time of day: a request may begin before midnight and end after it.",
)
def time_of_day(arrival_s: float, token_times_s: list[float]) -> Metrics:
    return reference(arrival_s % 86_400, [t % 86_400 for t in token_times_s])


MIDNIGHT_S = 1_767_225_600.0  # the year 2026 begins, on the clock that counts from 1970


def cases(rng: random.Random) -> list[Case]:
    """By hand; one token only; two tokens at once; every place of the clock; the longest log;
    fresh ones."""
    fresh = [Case(f"fresh {i + 1}", _request(rng, 5 + 9 * i), public=i < 2) for i in range(4)]
    _, steps = _request(rng, 3_000)
    return [
        Case("arrives at 10 s, tokens at 10.5, 10.6, 10.7 s", (10.0, [10.5, 10.6, 10.7])),
        # the same list, then one of the same length: whoever keeps results by these is wrong here
        Case("arrives at 9 s, tokens at 10.5, 10.6, 10.7 s", (9.0, [10.5, 10.6, 10.7])),
        Case("arrives at 10 s, tokens at 11, 11.5, 13 s", (10.0, [11.0, 11.5, 13.0])),
        Case("arrives at 4 s, three tokens again", (4.0, [6.0, 6.75, 7.0])),
        Case("one token only", (3.0, [3.25])),
        Case("arrives at 0 s, tokens at 0.25 and 0.75 s", (0.0, [0.25, 0.75])),
        Case("arrives 2 s before the clock's zero", (-2.0, [-0.5, 0.0, 0.25, 1.0])),
        # a latest time that starts at 0, or a time of 0 taken for none, is wrong here
        Case("all of it before the clock's zero", (-10.0, [-9.0, -8.5, -8.0])),
        Case("the first token exactly at the clock's zero", (-1.0, [0.0, 1.0, 2.0])),
        Case("the last token exactly at the clock's zero", (-3.0, [-2.0, -1.5, 0.0])),
        Case("two tokens at the same time", (1.0, [1.5, 1.75, 1.75, 2.5])),
        Case("all within 2 ms", (2.0, [2.0009765625, 2.00146484375, 2.001953125])),
        Case("one token after a fifth of a millisecond", (5.0, [5 + 2.0**-12])),
        Case("two tokens within half a microsecond", (5.0, [5 + 2.0**-22, 5 + 2.0**-21])),
        Case(
            "two minutes to the first token, three hours in all", (0.5, [120.5, 5000.0, 10_800.5])
        ),
        Case("two tokens, both at 1.5 s", (1.0, [1.5, 1.5])),
        Case("the last gap is 100 times the others", (1.0, [1.5, 1.51, 1.52, 1.53, 2.53])),
        Case("whole seconds", (7, [9, 10, 12])),
        Case(
            "over midnight, seconds since 1970",
            (MIDNIGHT_S - 1, [MIDNIGHT_S - 0.5, MIDNIGHT_S + 0.25, MIDNIGHT_S + 0.5]),
        ),
        Case("3,000 tokens", (steps[0] - 1.0, steps), public=False),
        *fresh,
    ]


EXERCISE = Exercise(
    id="two_phases-metrics",
    title="The times people feel",
    kind="formula",
    points=2,
    minutes=10,
    entries=("metrics",),
    cases=cases,
    reference=reference,
    compare=Tolerance(rtol=1e-9, atol=1e-12, why="differences of float64 clock times"),
    misconceptions=tuple(wrong),
    hints=(
        (
            "Draw a line of time: arrival, first token, last token. Each metric is the length of a"
            " stretch, or a count over one."
        ),
        "TPOT: the stretch from the first token to the last, over the number of gaps in it.",
        "tokens_per_s is all tokens over the whole latency. One token has no gap: tpot_s is None.",
    ),
    recall=(
        "A request gets n tokens. By what do you divide to get TPOT, and what is left out?",
        "By n − 1, the gaps between tokens; the wait for the first token is TTFT and is left out.",
    ),
    ranges={"len(token_times_s)": (1, 3000), "arrival_s": (-10.0, 1.7e9)},
    # records that are asked for them, and the formula of one
)
