"""continuous_batching-wait: how long a request waits for one server (Pollaczek and Khinchine)."""

from __future__ import annotations

import random

from twophase.checks.compare import FORMULA
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Found = dict[str, float] | None


def reference(per_s: float, service_s: list[float]) -> Found:
    """The right answer."""
    mean = sum(service_s) / len(service_s)
    mean_square = sum(s * s for s in service_s) / len(service_s)
    busy = per_s * mean
    if busy >= 1:
        return None
    wait = per_s * mean_square / (2 * (1 - busy))
    return {"busy": busy, "wait_s": wait, "latency_s": wait + mean}


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "square_of_the_mean",
    {"sum(s * s for s in service_s) / len(service_s)": "mean * mean"},
    "plausible",
    "You squared the mean. The mean of the squares is larger: long requests hold up many.",
)
_add(
    "variance",
    {
        "sum(s * s for s in service_s) / len(service_s)": (
            "sum((s - mean) ** 2 for s in service_s) / len(service_s)"
        )
    },
    "plausible",
    "You took the variance. The formula has the mean of the squares, the variance and the squared"
    " mean together: also with equal requests one waits.",
)
_add(
    "exponential",
    {"per_s * mean_square / (2 * (1 - busy))": "busy * mean / (1 - busy)"},
    "M/M/1",
    "This is the wait for service times of an exponential law (M/M/1). Here they are measured: take"
    " the mean of their squares.",
)
_add(
    "twice",
    {"(2 * (1 - busy))": "(1 - busy)"},
    "plausible",
    "The 2 is missing: whoever comes finds the one that is served half done on average.",
)
_add(
    "no_queue",
    {"(2 * (1 - busy))": "2"},
    "plausible",
    "You count the rest of the one that is served, not those that wait already: divide by the idle"
    " share.",
)
_add(
    "latency_without_service",
    {"wait + mean}": "wait}"},
    "plausible",
    "Latency is the wait and the service.",
)
_add(
    "full_is_enough",
    {
        "busy >= 1": "busy > 1",
        "per_s * mean_square / (2 * (1 - busy))": (
            "per_s * mean_square / (2 * max(1 - busy, 1e-300))"
        ),
    },
    "plausible",
    "A server that is busy all the time never catches up: at exactly 1 return None, too.",
)
_add(
    "overload_not_seen",
    {"busy >= 1": "busy == 1"},
    "plausible",
    "More comes than can be served, and the formula gives a negative wait: return None.",
)


def cases(rng: random.Random) -> list[Case]:
    """Light, heavy, just full and above; equal times; one request; the longest log; nobody
    comes."""
    fixed = random.Random(15)
    log = [*(fixed.uniform(0.1, 3) for _ in range(2999)), 60.0]
    fresh = [[rng.uniform(0.05, 2) for _ in range(rng.randrange(3, 9))] for _ in range(3)]
    return [
        Case("one second each, half busy", (0.5, [1.0, 1.0, 1.0])),
        Case("short and long", (0.25, [0.5, 0.5, 0.5, 6.5])),
        # of the same length and mean: whoever keeps results by these is wrong here
        Case("as busy, and all alike", (0.25, [2.0, 2.0, 2.0, 2.0])),
        Case("one service time", (0.25, [2.0])),
        Case("nobody comes", (0.0, [2.0, 3.0])),
        Case("exactly full", (0.5, [1.0, 3.0])),
        Case("a little less than full", (0.4375, [1.0, 3.0])),
        Case("all but a 4,096th of full", (0.5 - 2.0**-13, [1.0, 3.0])),
        Case("all but a millionth of full", (0.5 - 2.0**-21, [1.0, 3.0])),
        Case("all but a 134-millionth of full", (0.5 - 2.0**-28, [1.0, 3.0])),
        Case("all but a hundred-thousandth of full", (0.99999, [1.0])),
        Case("more than can be served", (0.75, [1.0, 3.0])),
        Case("much more than can be served", (8.0, [1.0, 3.0])),
        Case("milliseconds", (100.0, [0.001, 0.004, 0.002])),
        Case("hours", (2.0**-15, [4096.0, 16384.0])),
        Case("whole seconds", (0.125, [2, 6])),
        Case("3,000 service times", (0.5, log), public=False),
        Case("3,000 requests a second", (3000.0, [2.0**-12, 2.0**-13])),
        *(
            Case(f"fresh {i + 1}", (share * len(s) / sum(s), s), public=i < 1)
            for i, (s, share) in enumerate(zip(fresh, (0.3, 0.7, 0.95), strict=True))
        ),
    ]


EXERCISE = Exercise(
    id="continuous_batching-wait",
    title="The wait for one server",
    kind="formula",
    points=2,
    minutes=8,
    entries=("mean_wait",),
    cases=cases,
    reference=reference,
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        "Busy: how many seconds of work come in a second?",
        "The wait: per_s · mean of the squares / (2 · (1 − busy)).",
        "If busy is 1 or more return None; latency is the wait and the mean service time.",
    ),
    ranges={"per_s": (0.0, 3000.0), "len(service_s)": (1, 3000)},
    recall=(
        "Why does one long request in a hundred lengthen everybody's mean wait so much?",
        "The wait grows with the mean of the squared service times: whoever comes during the long"
        " one waits for its rest.",
    ),
)
