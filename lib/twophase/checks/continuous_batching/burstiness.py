"""continuous_batching-burstiness: how many requests a second, and how evenly they come."""

from __future__ import annotations

import random
from itertools import pairwise

from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Found = dict[str, float] | None


def reference(times_s: list[float]) -> Found:
    """The right answer."""
    gaps = [b - a for a, b in pairwise(times_s)]
    if not gaps:
        return None
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    return {"per_s": 1 / mean, "burstiness": variance / mean**2}


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "requests_for_gaps",
    {'"per_s": 1 / mean': '"per_s": len(times_s) / (times_s[-1] - times_s[0])'},
    "requests over the time of a log",
    "You divide the number of requests by the time from the first to the last. That time has one"
    " gap fewer than requests.",
)
_add(
    "from_zero",
    {"pairwise(times_s)": "pairwise([0.0, *times_s])"},
    "plausible",
    "You count the time before the first request as a gap. The clock's zero is no arrival.",
)
_add(
    "not_squared",
    {"variance / mean**2": "variance**0.5 / mean"},
    "the coefficient of variation",
    "This is the coefficient of variation, the standard deviation over the mean. Asked is its"
    " square: the variance over the mean squared.",
)
_add(
    "with_a_unit",
    {"variance / mean**2": "variance / mean"},
    "the index of dispersion, applied to gaps",
    "The variance over the mean has a unit, seconds: the same arrivals in milliseconds would be"
    " burstier. Divide by the mean squared.",
)
_add(
    "one_gap_fewer",
    {"for gap in gaps) / len(gaps)": "for gap in gaps) / max(1, len(gaps) - 1)"},
    "statistics.variance, pandas' var",
    "You divide by one gap fewer, as for a sample. The task wants the mean over all gaps.",
)
_add(
    "times_for_gaps",
    {
        "variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)": (
            "middle = sum(times_s) / len(times_s)\n"
            "    variance = sum((t - middle) ** 2 for t in times_s) / len(times_s)"
        )
    },
    "plausible",
    "You take the variance of the times. Burstiness is about the gaps between them.",
)
_add(
    "mean_of_rates",
    {"1 / mean,": "sum(1 / gap for gap in gaps if gap) / len(gaps),"},
    "plausible",
    "You average 1 / gap: short gaps count too much. The rate is gaps over seconds.",
)


def _added_up(gaps: list[float], start: float = 0.0) -> list[float]:
    times = [start]
    for gap in gaps:
        times.append(times[-1] + gap)
    return times


def _drawn(rng: random.Random, n: int, burstiness: float, start: float = 0.0) -> list[float]:
    """Gaps of a gamma law, in 1,024ths of a second, so that no sum rounds."""
    drawn = [rng.gammavariate(1 / burstiness, burstiness / 4) for _ in range(n)]
    return _added_up([(1 + round(1024 * gap)) / 1024 for gap in drawn], start)


def cases(rng: random.Random) -> list[Case]:
    """None, one, two and three times; even, bursts of equal times; early and late clocks; the
    longest; fresh ones."""
    fixed = random.Random(15)
    fresh = [_drawn(rng, rng.randrange(20, 60), b, rng.uniform(0, 64)) for b in (0.25, 1, 6)]
    bursts = _added_up([0.0, 0.0, 0.0, 2.0] * 5, 1.0)
    return [
        Case("four requests, a burst at the end", ([1.0, 4.0, 4.5, 5.0],)),
        Case("four requests, evenly", ([0.0, 2.0, 4.0, 6.0],)),
        Case("no request", ([],)),
        Case("one request", ([3.0],)),
        Case("two requests", ([3.0, 3.5],)),
        Case("three requests, two at once", ([5.0, 5.0, 6.0],)),
        Case("bursts of four at once", (bursts,)),
        Case("milliseconds apart", (_added_up([2.0**-10, 2.0**-8, 2.0**-10, 2.0**-9], 7.0),)),
        Case("fractions of a microsecond apart", ([0.0, 1e-7, 3e-7],)),
        Case("hours apart", (_added_up([4096.0, 16384.0, 8192.0], 100.0),)),
        Case("a clock that counts from 1970", (_drawn(fixed, 30, 2.0, 1_767_225_600.0),)),
        Case("a clock that begins below 0", (_added_up([1.0, 3.0, 0.5], -10.0),)),
        Case("whole seconds", ([2, 3, 7, 8],)),
        Case("3,000 requests", (_drawn(fixed, 2999, 4.0),), public=False),
        *(Case(f"fresh {i + 1}", (t,), public=i < 1) for i, t in enumerate(fresh)),
    ]


EXERCISE = Exercise(
    id="continuous_batching-burstiness",
    title="How many, and how evenly",
    kind="formula",
    points=2,
    minutes=8,
    entries=("burstiness",),
    cases=cases,
    reference=reference,
    compare=Tolerance(rtol=1e-6, atol=1e-9, why="sums of float64 in another order"),
    misconceptions=tuple(wrong),
    hints=(
        "Write down the gaps first: one fewer than there are requests.",
        "Requests a second: one over the mean gap. The variance is the mean of (gap − mean)².",
        "Divide the variance by the mean gap squared. Without a gap return None.",
    ),
    ranges={"len(times_s)": (0, 3000)},
    recall=(
        "What is the squared coefficient of variation of the gaps between Poisson arrivals, and"
        " between arrivals that come evenly?",
        "1, and 0. More than 1 comes in bursts.",
    ),
)
