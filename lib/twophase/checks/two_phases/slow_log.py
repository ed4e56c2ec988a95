"""two_phases-slow_log: read the times of one request and say what made it slow, if anything did."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from statistics import mean, median, median_high, median_low

from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions
from twophase.checks.two_phases._slow_logs import (
    Events,
    between_two,
    just_beyond,
    logs,
    longest,
    on_the_threshold,
    since_1970,
    thresholds,
)

wrong = Misconceptions()


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
    return _label(
        waited > ttft / 2, median(late) > 2 * median(early), max(gaps) > 10 * median(gaps)
    )


@wrong(
    "alerts on TTFT alone",
    "A long time to first token may be a long prompt. It was queued only if it waited for most of"
    " that time before it started.",
)
def long_ttft_is_queue(events: Events) -> str:
    _, ttft, gaps = _times(events)
    early, late = _quarters(gaps)
    return _label(
        ttft > 20 * median(gaps), median(late) > 2 * median(early), max(gaps) > 10 * median(gaps)
    )


@wrong(
    "dashboards that average",
    "One stall lifts the mean of a whole quarter, and looks like growth. Take the median.",
)
def mean_of_the_quarters(events: Events) -> str:
    waited, ttft, gaps = _times(events)
    early, late = _quarters(gaps)
    return _label(waited > ttft / 2, mean(late) > 2 * mean(early), max(gaps) > 10 * median(gaps))


@wrong("plausible", "Two single gaps are noise. Compare many early gaps with many late ones.")
def first_and_last_gap(events: Events) -> str:
    waited, ttft, gaps = _times(events)
    return _label(waited > ttft / 2, gaps[-1] > 2 * gaps[0], max(gaps) > 10 * median(gaps))


@wrong(
    "plausible",
    "The smallest gap may be a fluke. A stall is a gap far above the typical one: compare with the"
    " median.",
)
def largest_against_smallest(events: Events) -> str:
    waited, ttft, gaps = _times(events)
    early, late = _quarters(gaps)
    return _label(waited > ttft / 2, median(late) > 2 * median(early), max(gaps) > 10 * min(gaps))


@wrong(
    "plausible",
    "The time from start to first token is prefill, not a gap between tokens: a long prompt is no"
    " stall.",
)
def prefill_is_a_gap(events: Events) -> str:
    waited, ttft, gaps = _times(events)
    early, late = _quarters(gaps)
    return _label(
        waited > ttft / 2,
        median(late) > 2 * median(early),
        max([ttft - waited, *gaps]) > 10 * median(gaps),
    )


@wrong("plausible", "Some of these requests are healthy: noise and a long prompt are not faults.")
def never_healthy(events: Events) -> str:
    found = reference(events)
    return "stalled" if found == "healthy" else found


@wrong(
    "plausible",
    "You compare the halves of the gaps. The growth shows best between the first quarter and the"
    " last.",
)
def halves_for_quarters(events: Events) -> str:
    waited, ttft, gaps = _times(events)
    n = len(gaps) // 2
    return _label(
        waited > ttft / 2, median(gaps[-n:]) > 2 * median(gaps[:n]), max(gaps) > 10 * median(gaps)
    )


@wrong(
    "plausible",
    "You look for a stall before you look for growth. The first rule that holds counts, in the"
    " order of the task.",
)
def stall_first(events: Events) -> str:
    waited, ttft, gaps = _times(events)
    if waited <= ttft / 2 and max(gaps) > 10 * median(gaps):
        return "stalled"
    return reference(events)


@wrong(
    "plausible",
    "The time to first token runs from the arrival: wait and prefill together. You compared the"
    " wait with half of the prefill.",
)
def wait_against_prefill(events: Events) -> str:
    waited, ttft, gaps = _times(events)
    early, late = _quarters(gaps)
    return _label(
        waited > (ttft - waited) / 2,
        median(late) > 2 * median(early),
        max(gaps) > 10 * median(gaps),
    )


@wrong(
    "plausible",
    "The stall lifts the mean that you compare it with, most of all in a short log. Compare with"
    " the median.",
)
def far_above_the_mean(events: Events) -> str:
    waited, ttft, gaps = _times(events)
    early, late = _quarters(gaps)
    return _label(waited > ttft / 2, median(late) > 2 * median(early), max(gaps) > 10 * mean(gaps))


def _middle(median: Callable[[list[float]], float]) -> Callable[[Events], str]:
    """The right answer with another median."""

    def diagnose(events: Events) -> str:
        waited, ttft, gaps = _times(events)
        early, late = _quarters(gaps)
        return _label(
            waited > ttft / 2, median(late) > 2 * median(early), max(gaps) > 10 * median(gaps)
        )

    return diagnose


wrong.add(
    "upper_median",
    _middle(median_high),
    "sorted(x)[len(x) // 2]",
    "With an even number of gaps the median is the mean of the two in the middle; you took the"
    " upper one.",
)
wrong.add(
    "lower_median",
    _middle(median_low),
    "torch.median; sorted(x)[(len(x) - 1) // 2]",
    "With an even number of gaps the median is the mean of the two in the middle; you took the"
    " lower one.",
)


def cases(rng: random.Random) -> list[Case]:
    """Every kind of log with the fewest tokens, the thresholds, a large clock, then longer ones,
    one of 1,600 tokens, that are not shown. The right answer makes the label."""
    short = [*logs(rng, 16), *thresholds(rng)]
    same = [*between_two(), ("healthy, everything exactly on its threshold", on_the_threshold())]
    same += just_beyond()  # no seed draws these
    shown = [Case(f"log {i + 1}: {name}", (log,)) for i, (name, log) in enumerate(short)]
    shown += [Case(f"times that do not round: {name}", (log,)) for name, log in same]
    shown += [Case(f"seconds since 1970: {name}", (log,)) for name, log in since_1970()]
    long = [*logs(rng, rng.randrange(20, 80)), ("stalled", longest(rng))]
    hidden = [
        Case(f"log {i}", (log,), public=False)
        for i, (_, log) in enumerate(long, start=len(shown) + 1)
    ]
    for case in shown:
        label = case.name.partition(": ")[2].replace(":", ",").partition(",")[0].partition(" ")[0]
        assert reference(case.args[0]) == label, case.name
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
    misconceptions=tuple(wrong),
    hints=(
        (
            "Turn the events into three things first: the wait before the start, the time to first"
            " token, the list of gaps between tokens."
        ),
        (
            "queued: the wait is more than half of the time to first token. stalled: one gap is"
            " more than 10 times the median gap."
        ),
        (
            "no_cache: the median of the last quarter of the gaps is more than twice the median of"
            " the first quarter."
        ),
    ),
    recall=(
        "In a log the time between tokens grows steadily with the position. What do you suspect?",
        "That each step runs the whole text again: there is no KV cache, or it is not used.",
    ),
    ranges={"len(events)": (19, 1602)},
)
