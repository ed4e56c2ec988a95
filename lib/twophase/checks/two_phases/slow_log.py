"""two_phases-slow_log: read the times of one request and say what made it slow, if anything did."""

from __future__ import annotations

import random
from itertools import pairwise
from statistics import mean, median
from typing import Any

from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise, Misconception

Events = list[dict[str, Any]]


def _times(events: Events) -> tuple[float, float, list[float]]:
    """When the request arrived, when it started, and the gaps between its tokens."""
    arrived = next(e["t_s"] for e in events if e["event"] == "arrived")
    started = next(e["t_s"] for e in events if e["event"] == "started")
    tokens = [e["t_s"] for e in events if e["event"] == "token"]
    return started - arrived, tokens[0] - arrived, [b - a for a, b in pairwise(tokens)]


def _label(queued: bool, growing: bool, stalled: bool) -> str:
    return "queued" if queued else "no_cache" if growing else "stalled" if stalled else "healthy"


def _quarters(gaps: list[float]) -> tuple[list[float], list[float]]:
    n = len(gaps) // 4
    return gaps[:n], gaps[-n:]


def reference(events: Events) -> str:
    """The right answer."""
    waited, ttft, gaps = _times(events)
    early, late = _quarters(gaps)
    return _label(waited > ttft / 2, median(late) > 2 * median(early), max(gaps) > 10 * median(gaps))


def long_ttft_is_queue(events: Events) -> str:
    _, ttft, gaps = _times(events)
    early, late = _quarters(gaps)
    return _label(ttft > 20 * median(gaps), median(late) > 2 * median(early), max(gaps) > 10 * median(gaps))


def mean_of_the_quarters(events: Events) -> str:
    waited, ttft, gaps = _times(events)
    early, late = _quarters(gaps)
    return _label(waited > ttft / 2, mean(late) > 2 * mean(early), max(gaps) > 10 * median(gaps))


def first_and_last_gap(events: Events) -> str:
    waited, ttft, gaps = _times(events)
    return _label(waited > ttft / 2, gaps[-1] > 2 * gaps[0], max(gaps) > 10 * median(gaps))


def largest_against_smallest(events: Events) -> str:
    waited, ttft, gaps = _times(events)
    early, late = _quarters(gaps)
    return _label(waited > ttft / 2, median(late) > 2 * median(early), max(gaps) > 10 * min(gaps))


def prefill_is_a_gap(events: Events) -> str:
    waited, ttft, gaps = _times(events)
    early, late = _quarters(gaps)
    return _label(waited > ttft / 2, median(late) > 2 * median(early), max([ttft - waited, *gaps]) > 10 * median(gaps))


def never_healthy(events: Events) -> str:
    found = reference(events)
    return "stalled" if found == "healthy" else found


def _log(rng: random.Random, label: str, n: int, slow_prefill: bool, where: str = "late") -> Events:
    """One request. Faults are far from their thresholds; noise and long prefills are not faults."""
    step = rng.uniform(0.008, 0.03)
    prefill = step * (rng.uniform(40, 80) if slow_prefill else rng.uniform(3, 5))
    wait = prefill * (rng.uniform(6, 12) if label == "queued" else rng.uniform(0.01, 0.2))
    gaps = [step * rng.uniform(0.9, 1.15) for _ in range(n)]
    if label == "no_cache":
        gaps = [g * (1 + 6 * i / n) for i, g in enumerate(gaps)]
    if label == "stalled":
        at = n - 1 - rng.randrange(n // 4) if where == "late" else rng.randrange(1, n // 4)
        gaps[at] = step * rng.uniform(60, 90)
    if (
        label == "healthy" and not slow_prefill
    ):  # a hiccup at the start and one at the end: noise, not growth, not a stall
        gaps[0], gaps[-1], gaps[n // 2] = step * 0.12, step * 2.6, step * 0.11
    now = rng.uniform(100, 900)
    events: Events = [{"event": "arrived", "t_s": now}, {"event": "started", "t_s": now + wait}]
    now += wait + prefill
    for i, gap in enumerate([0.0, *gaps]):
        now += gap
        events.append({"event": "token", "t_s": now, "index": i})
    return events


def cases(rng: random.Random) -> list[Case]:
    """Each label with a short and with a long prefill; stalls early and late."""
    kinds = [
        ("healthy", False, "late"),
        ("healthy", True, "late"),
        ("queued", False, "late"),
        ("queued", True, "late"),
        ("no_cache", False, "late"),
        ("no_cache", True, "late"),
        ("stalled", False, "late"),
        ("stalled", True, "early"),
    ]
    shown = [
        Case(f"log {i + 1}, {label}", (_log(rng, label, rng.randrange(16, 30), slow, where),))
        for i, (label, slow, where) in enumerate(kinds)
    ]
    hidden = [
        Case(f"log {i + 9}", (_log(rng, label, rng.randrange(40, 80), slow, where),), public=False)
        for i, (label, slow, where) in enumerate(kinds)
    ]
    return shown + hidden


EXERCISE = Exercise(
    id="two_phases-slow_log",
    title="Why was this request slow?",
    kind="trace",
    points=3,
    minutes=20,
    entries=("diagnose",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=(
        Misconception(
            "long_ttft_is_queue",
            long_ttft_is_queue,
            "alerts on TTFT alone",
            "A long time to first token may be a long prompt. It was queued only if it waited for most of that time before it started.",
        ),
        Misconception(
            "mean_of_the_quarters",
            mean_of_the_quarters,
            "dashboards that average",
            "One stall lifts the mean of a whole quarter, and looks like growth. Take the median.",
        ),
        Misconception(
            "first_and_last_gap",
            first_and_last_gap,
            "plausible",
            "Two single gaps are noise. Compare many early gaps with many late ones.",
        ),
        Misconception(
            "largest_against_smallest",
            largest_against_smallest,
            "plausible",
            "The smallest gap may be a fluke. A stall is a gap far above the typical one: compare with the median.",
        ),
        Misconception(
            "prefill_is_a_gap",
            prefill_is_a_gap,
            "plausible",
            "The time from start to first token is prefill, not a gap between tokens: a long prompt is no stall.",
        ),
        Misconception(
            "never_healthy",
            never_healthy,
            "plausible",
            "Some of these requests are healthy: noise and a long prompt are not faults.",
        ),
    ),
    hints=(
        "Turn the events into three things first: the wait before the start, the time to first token, the list of gaps between tokens.",
        "queued: the wait is more than half of the time to first token. stalled: one gap is more than 10 times the median gap.",
        "no_cache: the median of the last quarter of the gaps is more than twice the median of the first quarter.",
    ),
    recall=(
        "In a log the time between tokens grows steadily with the position. What do you suspect?",
        "That each step runs the whole text again: there is no KV cache, or it is not used.",
    ),
)
