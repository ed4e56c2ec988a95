"""continuous_batching-percentiles: TTFT and TPOT of a log, at p50, p95 and p99."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

from twophase.checks.compare import Tolerance
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Log = list[dict[str, Any]]  # arrival_s, times_s
Report = dict[str, Any]
PERCENTS = (50, 95, 99)


def percentile(values: list[float], percent: int) -> float | None:
    """The smallest value that so many per cent of all are not above."""
    return sorted(values)[-(-percent * len(values) // 100) - 1] if values else None


def reference(requests: Log) -> Report:
    """The right answer."""
    begun = [r for r in requests if r["times_s"]]
    ttft = [r["times_s"][0] - r["arrival_s"] for r in begun]
    tpot = [b - a for r in begun for a, b in pairwise(r["times_s"])]
    return {
        "ttft_s": [percentile(ttft, p) for p in PERCENTS],
        "tpot_s": [percentile(tpot, p) for p in PERCENTS],
        "unanswered": len(requests) - len(begun),
    }


def interpolated(values: list[float], percent: int) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    at = percent / 100 * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def one_rank_above(values: list[float], percent: int) -> float | None:
    return sorted(values)[min(len(values) - 1, percent * len(values) // 100)] if values else None


def one_rank_below(values: list[float], percent: int) -> float | None:
    return sorted(values)[max(0, percent * len(values) // 100 - 1)] if values else None


def unsorted(values: list[float], percent: int) -> float | None:
    return values[-(-percent * len(values) // 100) - 1] if values else None


def zero_for_none(values: list[float], percent: int) -> float | None:
    return percentile(values, percent) if values else 0.0


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


def _ranked(name: str, seen: str, says: str) -> None:
    parts = {"[percentile(ttft": f"[{name}(ttft", "[percentile(tpot": f"[{name}(tpot"}
    _add(name, parts, seen, says)


_ranked(
    "interpolated",
    "numpy.percentile as it comes",
    "You interpolate between two values. The task wants one that occurred: the smallest that so"
    " many per cent are not above.",
)
_ranked(
    "one_rank_above",
    "plausible",
    "You are one rank too high where the percentage hits a rank exactly: p50 of four values is the"
    " second.",
)
_ranked(
    "one_rank_below",
    "plausible",
    "You round the rank down: then fewer than so many per cent are not above.",
)
_ranked("unsorted", "plausible", "You took the values in the order of the log: sort them first.")
_ranked(
    "zero_for_none",
    "plausible",
    "Where there is no value you return 0, as if it were fast: return None.",
)
_add(
    "mean_gap_of_a_request",
    {
        '[b - a for r in begun for a, b in pairwise(r["times_s"])]': (
            '[(r["times_s"][-1] - r["times_s"][0]) / (len(r["times_s"]) - 1) for r in begun'
            ' if len(r["times_s"]) > 1]'
        )
    },
    "benchmark scripts",
    "You take one mean a request: a stall of one token disappears in it. Take all gaps of all"
    " requests.",
)
_add(
    "ttft_among_the_gaps",
    {
        'in pairwise(r["times_s"])': (
            'in zip([r["arrival_s"], *r["times_s"]], r["times_s"], strict=False)'
        )
    },
    "plausible",
    "The wait for the first token is TTFT: gaps are between tokens.",
)
_add(
    "time_of_day",
    {'r["times_s"][0] - r["arrival_s"]': 'r["times_s"][0]'},
    "plausible",
    "Your TTFT is a time on the clock: subtract the arrival.",
)
_add(
    "gaps_across_requests",
    {
        '[b - a for r in begun for a, b in pairwise(r["times_s"])]': (
            "sorted(t for r in begun for t in r['times_s'])\n"
            "    tpot = [b - a for a, b in zip(tpot, tpot[1:], strict=False)]"
        )
    },
    "tokens a second of a server, turned round",
    "You took gaps between tokens of different requests. TPOT is what one person sees: gaps within"
    " a request.",
)
_add(
    "only_those_with_gaps",
    {'[r for r in requests if r["times_s"]]': '[r for r in requests if len(r["times_s"]) > 1]'},
    "plausible",
    "A request with one token has a TTFT, too: only its gaps are lacking.",
)
_add(
    "unanswered_left_out",
    {"len(requests) - len(begun)": "0"},
    "dashboards of finished requests",
    "You lost the requests without a token. They are the slowest of all: count them.",
)


def request(rng: random.Random, n: int, arrival: float) -> dict[str, Any]:
    """Times in 1,024ths of a second, so that no difference rounds."""
    now, times = arrival, []
    for i in range(n):
        now += rng.randrange(1, 60 if i else 3000) / 1024
        times.append(now)
    return {"arrival_s": arrival, "times_s": times}


def log(rng: random.Random, n: int, most: int = 9) -> Log:
    arrivals = sorted(rng.randrange(0, 60 * 1024) / 1024 for _ in range(n))
    return [request(rng, rng.randrange(0, most), at) for at in arrivals]


def cases(rng: random.Random) -> list[Case]:
    """No request, none with a token, one token, two; as many as make a rank exact, one less and one
    more; a stall; the longest log; fresh ones."""
    fixed = random.Random(15)
    one = {"arrival_s": 1.0, "times_s": [1.5, 1.625, 2.0, 2.0625]}
    other = {"arrival_s": 1.0, "times_s": [1.25, 2.0, 2.5, 4.0]}
    single = {"arrival_s": 2.0, "times_s": [2.25]}
    nothing: dict[str, Any] = {"arrival_s": 3.0, "times_s": []}
    stalled = [*(0.25 * i for i in range(1, 60)), 30.0, *(30 + 0.25 * i for i in range(1, 40))]

    def exact(n: int) -> Log:
        """n requests of one token and n + 1 gaps in one more, all different."""
        firsts = [i * i % (2 * n + 1) + i / 1024 for i in range(n - 1)]
        long = [0.0]
        for i in range(n):
            long.append(long[-1] + (7 * i % n + 1) / 1024)
        made = [{"arrival_s": 5.0, "times_s": [5.0 + t]} for t in firsts]
        return [*made, {"arrival_s": 0.0, "times_s": long}]

    later = {"arrival_s": -4.0, "times_s": [-3.5, -1.0, 0.0]}
    return [
        Case("one request of four tokens", ([one],)),
        # of the same length: whoever keeps results by that is wrong here
        Case("one request of four tokens at other times", ([other],)),
        Case("three requests: four tokens, one token, none", ([one, single, nothing],)),
        Case("no request", ([],)),
        Case("nobody has a token", ([nothing, nothing],)),
        Case("one token each", ([single, {"arrival_s": 0.0, "times_s": [4.0]}],)),
        Case("two tokens at the same time", ([{"arrival_s": 0.0, "times_s": [1.0, 1.0]}],)),
        Case("not in the order of arrival", ([nothing, later, single, one],)),
        Case("a stall among short gaps", ([{"arrival_s": 0.0, "times_s": stalled}, one],)),
        *(Case(f"{n} of each", (exact(n),)) for n in (2, 4, 19, 20, 21)),
        *(Case(f"{n} of each", (exact(n),), public=False) for n in (99, 100, 101, 200, 300)),
        Case("1,000 requests", (log(fixed, 1000),), public=False),
        Case(f"{past(2048):,} tokens", ([request(fixed, past(2048), 0.0)],), public=False),
        Case("a clock that counts from 1970", ([request(fixed, 6, 1_767_225_600.0), nothing],)),
        Case("fresh 1", (log(rng, 12),)),
        Case("fresh 2", (log(rng, 40),), public=False),
    ]


EXERCISE = Exercise(
    id="continuous_batching-percentiles",
    title="The log in six numbers",
    kind="kernel",
    points=3,
    minutes=10,
    entries=("latency_report",),
    cases=cases,
    reference=reference,
    compare=Tolerance(rtol=1e-9, atol=1e-12, whole=True, why="differences of float64 clock times"),
    misconceptions=tuple(wrong),
    hints=(
        "Make two lists of numbers first: a TTFT for each request with a token, and all gaps.",
        (
            "Percentile p of n sorted values: the one of rank ⌈p·n/100⌉, counted from 1. In whole"
            " numbers: (p * n + 99) // 100."
        ),
        "None for a percentile of an empty list; “unanswered” counts requests without a token.",
    ),
    ranges={"len(requests)": (0, 1000)},
    recall=(
        "Why does p99 of the mean gap of each request look better than p99 of all gaps?",
        "A stall of one token is spread over all tokens of its request.",
    ),
)
