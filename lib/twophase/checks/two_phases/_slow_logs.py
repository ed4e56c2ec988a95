"""The logs of two_phases-slow_log: what each promises by its name, the check asserts."""

from __future__ import annotations

import random
from statistics import median
from typing import Any

from twophase.checks.edges import put

Events = list[dict[str, Any]]
Gaps = list[float]

STEP = 2.0**-6  # seconds
NOW = 1.75e9  # seconds since 1970


def events(rng: random.Random, wait: float, prefill: float, gaps: Gaps) -> Events:
    """The log of a request: the wait before its prefill, the prefill, the gaps between its
    tokens."""
    now = rng.uniform(5, 50)
    events: Events = [{"event": "arrived", "t_s": now}, {"event": "started", "t_s": now + wait}]
    now += wait + prefill
    for i, gap in enumerate([0.0, *gaps]):
        now += gap
        events.append({"event": "token", "t_s": now, "index": i})
    return events


def steady(rng: random.Random, step: float, n: int) -> Gaps:
    return [step * rng.uniform(0.93, 1.08) for _ in range(n)]


def growing(rng: random.Random, step: float, n: int, by: float = 3.0) -> Gaps:
    """From `step` to `1 + by` times as much. By 3 the last quarter is at more than twice the first,
    the halves are not."""
    return [g * (1 + by * i / (n - 1)) for i, g in enumerate(steady(rng, step, n))]


def hiccups(rng: random.Random, step: float, n: int) -> Gaps:
    """Noise at the first gap, at the last, and between: neither growth nor a stall."""
    gaps = steady(rng, step, n)
    gaps[0], gaps[n // 2], gaps[-1] = step * 0.12, step * 0.11, step * 1.9
    return gaps


def stalled(gaps: Gaps, times: float, at: int = -2) -> Gaps:
    """One gap, at a place counted as Python does, is so many times the median."""
    return put(gaps, at % len(gaps), median(gaps) * times)


def on_the_threshold() -> Events:
    """Waited for exactly half, grew to exactly twice, one gap exactly ten times the median: all of
    them powers of two, so that no float rounds."""
    gaps = [STEP] * 58 + [2 * STEP] * 42
    return _exact(put(gaps, 30, 10 * STEP), prefill=0.5)


def just_beyond() -> list[tuple[str, Events]]:
    """Each threshold in turn, missed by less than a millionth. The gaps are so long that float32
    holds every time."""
    tiny = 2.0**-20  # seconds: a quarter of a millionth of 4
    late = [1.5] * 4 + [0.25] * 8 + [3 + 2 * tiny] * 4
    return [
        ("queued, by less than a millionth", _exact([STEP] * 16, 4 - tiny, wait=4 + tiny)),
        ("no_cache, by less than a millionth", _exact(late, prefill=0.5)),
        ("stalled, by less than a millionth", _exact([5 + 2 * tiny] + [0.5] * 15, prefill=0.5)),
    ]


def since_1970() -> list[tuple[str, Events]]:
    """Gaps that grow, and one that is long, on the clock that counts from 1970: float32 moves its
    times by a minute."""
    return [
        ("no_cache", _exact([STEP * (4 + i) for i in range(40)], prefill=0.5, at=NOW)),
        ("stalled", _exact(put([STEP] * 40, 30, 11 * STEP), prefill=0.5, at=NOW)),
    ]


def _exact(gaps: Gaps, prefill: float, wait: float = 0.5, at: float = 8.0) -> Events:
    """The log of a request whose gaps are multiples of 2⁻⁸ s, or of 2⁻¹⁹ s if they are few: sums
    of these do not round."""
    events: Events = [{"event": "arrived", "t_s": at}, {"event": "started", "t_s": at + wait}]
    now = at + wait + prefill
    for i, gap in enumerate([0.0, *gaps]):
        now += gap
        events.append({"event": "token", "t_s": now, "index": i})
    return events


def between_two() -> list[tuple[str, Events]]:
    """The two gaps in the middle are far apart, and the median lies between them: either of them
    in its place, or one gap more, gives another label. Then there is one in the middle, and it lies
    as far from its neighbor."""

    def all_gaps(times: float) -> Events:
        return _exact(put([STEP, 3 * STEP] * 12, 11, times * STEP), prefill=1.0)

    def odd(times: float, short: int) -> Events:
        ends, three = [STEP] * 4, [3 * STEP] * 6
        return _exact(
            ends + three + [STEP] * short + [times * STEP] + three[short - 4 :] + ends, prefill=1.0
        )

    def quarters(low: float, high: float) -> Events:
        last = [low * STEP] * 3 + [high * STEP] * 3
        return _exact([STEP] * 3 + [2 * STEP] * 15 + last, prefill=1.0)

    return [
        ("stalled, 12.5 times the mean of the two gaps in the middle", all_gaps(25)),
        ("healthy, one gap is 7.5 times the mean of the two in the middle", all_gaps(15)),
        ("healthy, one gap is 8.3 times the one in the middle of 25", odd(25, short=4)),
        ("stalled, 15 times the one in the middle of 25", odd(15, short=5)),
        ("no_cache, 2.1 times from the mean of two to the mean of two", quarters(2.5, 3.75)),
        ("healthy, 1.8 times from the mean of two to the mean of two", quarters(2.25, 3.25)),
    ]


def logs(rng: random.Random, n: int) -> list[tuple[str, Events]]:
    """One log for each way to be slow, and for two at once. n gaps. Faults are clear of their
    thresholds, but not far."""
    step = rng.uniform(0.008, 0.03)
    short, long = step * rng.uniform(3, 5), step * rng.uniform(40, 80)

    def even() -> Gaps:
        return steady(rng, step, n)

    def more() -> Gaps:
        return growing(rng, step, n)

    def log(wait: float, prefill: float, gaps: Gaps) -> Events:
        """`wait` as a part of the prefill: at 1 it is half of the time to first token."""
        return events(rng, wait * prefill, prefill, gaps)

    return [
        ("healthy", log(0.1, short, hiccups(rng, step, n))),
        ("healthy, one gap is six times the others", log(0.1, short, stalled(even(), 6))),
        ("healthy, a long prefill", log(0.02, long, even())),
        ("healthy, waited for a third of its time to first token", log(0.6, long, even())),
        ("healthy, the gaps grow a little", log(0.1, short, growing(rng, step, n, by=0.8))),
        ("queued for two minutes", events(rng, 120.0, short, even())),
        ("queued for two thirds of its time to first token", log(1.7, long, even())),
        ("no_cache", log(0.2, short, more())),
        ("no_cache, a long prefill", log(0.3, long, more())),
        ("stalled", log(0.1, short, stalled(even(), 70))),
        ("stalled early, a long prefill", log(0.02, long, stalled(even(), 14, at=1))),
        ("queued, and the gaps grow", log(5.0, short, more())),
        ("queued, and stalled", log(3.0, long, stalled(even(), 40))),
        (
            "no_cache, and one early gap is long",
            log(0.1, short, stalled(more(), 40, at=1)),
        ),
    ]


def longest(rng: random.Random) -> Events:
    """As many tokens as the task allows, one of the last ones late."""
    return events(rng, 0.01, 0.1, stalled(steady(rng, 0.02, 1_599), 70))


def thresholds(rng: random.Random) -> list[tuple[str, Events]]:
    """Just below and just above every rule, a fault in the first and in the last gap, and gaps that
    look like growth to another rule. No noise: what each promises holds at every seed."""
    step, n = rng.uniform(0.008, 0.03), 100
    even = [step] * n
    tiny = 2e-4  # seconds: what is slow is so in proportion, not in milliseconds
    twice = stalled(stalled(even, 10.4, at=50), 10.4, at=80)
    for at in (49, 51, 79, 81):
        twice = put(twice, at, 2 * step)
    tail = even[:86] + [3 * step] * 14
    ends = [0.8 * step] * 6 + even[12:] + [2.4 * step] * 6
    assert median(ends[-6:]) > 2 * median(ends[:6])  # as if they grew
    mixed = [step, step, step, 2.6 * step, 2.6 * step] * (n // 5)
    wavy = [g * (1 + 0.3 * (i // 25)) for i, g in enumerate(even)]

    def log(gaps: Gaps, wait: float = 0.1, prefill: float = 10 * step) -> Events:
        return events(rng, wait * prefill, prefill, gaps)

    return [
        ("stalled twice, by a little, beside gaps twice as long", log(twice)),
        ("healthy, one gap is 9.6 times the others", log(stalled(even, 9.6, at=50))),
        ("stalled, in the first gap", log(stalled(even, 12, at=0))),
        ("stalled, in the last gap", log(stalled([tiny] * n, 12, at=-1))),
        ("queued, by a little", log([tiny] * 200, wait=1.08, prefill=2 * tiny)),
        ("healthy, waited for almost half of its time to first token", log(even, wait=0.92)),
        ("no_cache, by a little", log([g * (1 + 1.1 * (i >= 60)) for i, g in enumerate(even)])),
        (
            "healthy, the gaps grow to 1.9 times",
            log([g * (1 + 0.9 * (i >= 60)) for i, g in enumerate(even)]),
        ),
        ("no_cache, in the last gaps only", log(tail)),
        ("healthy, six short gaps first and six long ones last", log(ends)),
        ("healthy, two of five gaps are long from the beginning", log(mixed)),
        ("healthy, the last five gaps are long", log(even[:95] + [3 * step] * 5)),
        ("no_cache, but for the last five gaps", log([tiny] * 70 + [3 * tiny] * 25 + [tiny] * 5)),
        (
            "no_cache, in the first half of the last quarter",
            log([step] * 300 + [3 * step] * 56 + [step] * 44),
        ),
        ("healthy, some early gaps are short", log(even[:8] + [0.4 * step] * 10 + even[:82])),
        (
            "healthy, faster in the middle",
            log(even[:25] + [0.45 * step] * 50 + [1.2 * step] * 25),
        ),
        (
            "healthy, two of five gaps are short, and one is 9 times the others",
            log(put([0.5 * step, 0.5 * step, step, step, step] * (n // 5), 52, 9 * step)),
        ),
        (
            "healthy: one gap is 11 times the early ones, and 8 times the median",
            log(put(wavy, 40, 11 * step)),
        ),
        (
            "no_cache, and a gap in the middle is long",
            log(put([g * (1 + 3 * i / (n - 1)) for i, g in enumerate(even)], 50, 60 * step)),
        ),
        ("healthy, one gap of 0.6 ms beside 0.2 ms", log(put([tiny] * n, 50, 3 * tiny))),
    ]
