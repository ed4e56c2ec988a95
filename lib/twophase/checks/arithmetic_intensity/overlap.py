"""arithmetic_intensity-overlap: three times for one step, by what is allowed to overlap."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import FORMULA, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

# more kernels than a thousand, bound differently; what is left out of the small ones shows,
# and so does the last one alone
LARGE_AND_SMALL = [(9e6, 4e5), *[(2.0, 0.4), (1.0, 2.0)] * 499, (90.0, 40.0)]

Kernels = Sequence[tuple[float, float]]
Times = list[float]


def _pairs(kernels: Kernels, C: float, W: float) -> list[tuple[float, float]]:
    """Seconds of computing and of traffic, kernel by kernel."""
    return [(flops / C, n_bytes / W) for flops, n_bytes in kernels]


def across(kernels: Kernels, C: float, W: float) -> float:
    pairs = _pairs(kernels, C, W)
    return max(sum(c for c, _ in pairs), sum(m for _, m in pairs))


def within(kernels: Kernels, C: float, W: float) -> float:
    return sum(max(pair) for pair in _pairs(kernels, C, W))


def nothing(kernels: Kernels, C: float, W: float) -> float:
    return sum(sum(pair) for pair in _pairs(kernels, C, W))


def slowest_kernel(kernels: Kernels, C: float, W: float) -> float:
    return max(max(pair) for pair in _pairs(kernels, C, W))


def smaller(kernels: Kernels, C: float, W: float) -> float:
    return sum(min(pair) for pair in _pairs(kernels, C, W))


def smaller_across(kernels: Kernels, C: float, W: float) -> float:
    return nothing(kernels, C, W) - across(kernels, C, W)


def twice(kernels: Kernels, C: float, W: float) -> float:
    return 2 * within(kernels, C, W)


def largest_pair(kernels: Kernels, C: float, W: float) -> float:
    return max(sum(pair) for pair in _pairs(kernels, C, W))


Part = Callable[[Kernels, float, float], float]


def _times(
    a: Part = across, b: Part = within, c: Part = nothing
) -> Callable[[Kernels, float, float], Times]:
    """The three times with some replaced; with none replaced they are right."""

    def step_times(kernels: Kernels, flops_per_s: float, bytes_per_s: float) -> Times:
        return [part(kernels, flops_per_s, bytes_per_s) for part in (a, b, c)]

    return step_times


@wrong(
    "sets and dicts of kernels",
    "Kernels that are alike were counted once: every layer runs its own, and each takes its time.",
)
def alike_counted_once(kernels: Kernels, C: float, W: float) -> Times:
    return _times()(list(dict.fromkeys((flops, n) for flops, n in kernels)), C, W)


@wrong("plausible", "The rates are swapped: FLOPs go with flops_per_s, bytes with bytes_per_s.")
def rates_swapped(kernels: Kernels, C: float, W: float) -> Times:
    return _times()(kernels, W, C)


@wrong(
    "plausible",
    "A step without FLOPs takes its time, too: with nothing to hide behind, all its traffic shows.",
)
def nothing_computed_in_no_time(kernels: Kernels, C: float, W: float) -> Times:
    right = _times()(kernels, C, W)
    return right if any(flops for flops, _ in kernels) else [0.0, *right[1:]]


def observe(answer: Answer, case: Case) -> Any:
    """What step_times returns; an array will do for a list."""
    return plain(answer.call("step_times", *case.args))


def cases(rng: random.Random) -> list[Case]:
    """One kernel, two that are bound differently, some without FLOPs, without bytes or alike, many,
    tiny ones; then fresh steps."""
    fresh = []
    for i in range(5):
        C, W = rng.uniform(1e14, 1e15), rng.uniform(5e11, 5e12)
        step = []
        for _ in range(rng.randrange(3, 7)):
            n_bytes = rng.uniform(1e6, 1e9)
            step.append(
                (
                    n_bytes
                    * C
                    / W
                    * rng.choice((0.01, 0.3, 0.9, 1.2, 5.0))
                    * rng.uniform(0.9, 1.1),
                    n_bytes,
                )
            )
        fresh.append(Case(f"fresh {i + 1}", (step, C, W), public=i < 2))
    return [
        Case("one kernel: 200 FLOPs, 50 bytes; 100 FLOP/s, 10 B/s", ([(200.0, 50.0)], 100.0, 10.0)),
        Case(
            "two kernels, the second bound by compute",
            ([(200.0, 50.0), (900.0, 20.0)], 100.0, 10.0),
        ),
        # the same kernels on other chips: whoever keeps results by kernels is wrong here
        Case("the same on 300 FLOP/s, 10 B/s", ([(200.0, 50.0), (900.0, 20.0)], 300.0, 10.0)),
        Case("the same on 100 FLOP/s, 40 B/s", ([(200.0, 50.0), (900.0, 20.0)], 100.0, 40.0)),
        Case(
            "three, the last only copies",
            ([(200.0, 50.0), (900.0, 20.0), (0.0, 30.0)], 100.0, 10.0),
        ),
        Case(
            "two layers, each of the same two kernels",
            ([(200.0, 50.0), (900.0, 20.0)] * 2, 100.0, 10.0),
        ),
        Case(
            "two kernels alike, one after the other",
            ([(200.0, 50.0), (200.0, 50.0), (900.0, 20.0)], 100.0, 10.0),
        ),
        Case(
            "three, the middle one without traffic",
            ([(200.0, 50.0), (700.0, 0.0), (100.0, 30.0)], 100.0, 10.0),
        ),
        Case(
            "10 FLOP/s, 4 B/s: one kernel between 2 FLOPs per byte and 2.5, one between 2.5 and 3",
            ([(90.0, 40.0), (110.0, 40.0)], 10.0, 4.0),
        ),
        Case(
            "far more traffic than computing, but for one kernel",
            ([(500.0, 10.0), (100.0, 300.0)], 100.0, 10.0),
        ),
        Case(
            "far more computing than traffic, but for one kernel",
            ([(200.0, 50.0), (9000.0, 20.0)], 100.0, 10.0),
        ),
        Case("nothing but computing", ([(200.0, 0.0), (900.0, 0.0)], 100.0, 10.0)),
        Case("nothing but traffic", ([(0.0, 50.0), (0.0, 20.0)], 100.0, 10.0)),
        Case("a kernel at the ridge", ([(500.0, 50.0), (200.0, 50.0)], 100.0, 10.0)),
        Case(
            "whole numbers: 3·10¹² FLOPs, 7·10⁹ bytes; 10¹⁴ FLOP/s, 10¹² B/s",
            ([(3 * 10**12, 7 * 10**9), (10**12, 11 * 10**9)], 10**14, 10**12),
        ),
        Case(
            "some nanoseconds: 3,000 FLOPs, 50 bytes; 10¹⁴ FLOP/s, 10¹² B/s",
            ([(3000.0, 50.0), (9000.0, 20.0)], 1e14, 1e12),
        ),
        Case("a large kernel and 999 small ones", (LARGE_AND_SMALL, 100.0, 10.0)),
        *fresh,
    ]


wrong.add(
    "sums_then_max",
    _times(b=across),
    "step times as one max(compute, memory)",
    "You gave the first time twice. Kernels that run one after another each take their own"
    " maximum: add those up.",
)
wrong.add(
    "max_each_time",
    _times(a=within),
    "plausible",
    "Your first time hides traffic behind its own kernel only. Across the step it is the larger of"
    " two totals.",
)
wrong.add(
    "first_two_swapped",
    _times(a=within, b=across),
    "plausible",
    "The first two are swapped: the more may overlap, the shorter the time.",
)
wrong.add(
    "slowest_kernel",
    _times(b=slowest_kernel),
    "plausible",
    "You took the slowest kernel: they run one after another, so their times add up.",
)
wrong.add(
    "smaller_not_larger",
    _times(a=smaller_across, b=smaller),
    "plausible",
    "You took the smaller time: what overlaps is finished when the longer of the two is.",
)
wrong.add(
    "twice_the_overlapped",
    _times(c=twice),
    "“without overlap it takes twice as long”",
    "Twice the overlapped time is the worst case, at the ridge. In general it is the sum of"
    " computing and traffic.",
)
wrong.add(
    "largest_sum",
    _times(c=largest_pair),
    "plausible",
    "Your third time is that of one kernel: add up all of them.",
)


EXERCISE = Exercise(
    id="arithmetic_intensity-overlap",
    title="Three times for one step",
    kind="formula",
    points=3,
    minutes=10,
    entries=("step_times",),
    cases=cases,
    observe=observe,
    reference=_times(),
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        "For each kernel write two numbers: c, seconds of computing, and m, seconds of traffic.",
        "Everything overlaps: max(Σ c, Σ m). Nothing does: Σ (c + m).",
        "Inside a kernel it is max(c, m), and kernels wait for each other: Σ max(c, m).",
    ),
    ranges={"len(kernels)": (1, 1000), "kernels[][]": (0, 3e12)},
    recall=(
        (
            "How much longer can a kernel take without any overlap than with perfect overlap, at"
            " most, and where?"
        ),
        "Twice as long, at the ridge, where computing and traffic take equally long.",
    ),
)
