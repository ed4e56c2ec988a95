"""latency_throughput-front: which operating points of a server no other one beats."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions
from twophase.protocol import AnswerError

wrong = Misconceptions()

MANY = 1000  # points, the most that the task names
Points = list[tuple[float, float]]


def _by_latency(points: Points, kept: list[int]) -> list[int]:
    return sorted(kept, key=lambda i: points[i][0])


def _front(beats: Callable[[Points, int, int], bool]) -> Callable[[Points], list[int]]:
    """Every point that no other one `beats(points, other, it)`, by rising latency."""

    def front(points: Points) -> list[int]:
        n = range(len(points))
        return _by_latency(
            points, [i for i in n if not any(beats(points, j, i) for j in n if j != i)]
        )

    return front


def _right(points: Points, j: int, i: int) -> bool:
    (a, x), (b, y) = points[j], points[i]
    return a <= b and x >= y and (a < b or x > y or j < i)


def _worse_in_both(points: Points, j: int, i: int) -> bool:
    (a, x), (b, y) = points[j], points[i]
    return (a < b and x > y) or (points[j] == points[i] and j < i)


def _all_equals_kept(points: Points, j: int, i: int) -> bool:
    (a, x), (b, y) = points[j], points[i]
    return a <= b and x >= y and (a < b or x > y)


def _equals_beat_each_other(points: Points, j: int, i: int) -> bool:
    (a, x), (b, y) = points[j], points[i]
    return a <= b and x >= y


def _most_of_both(points: Points, j: int, i: int) -> bool:
    (a, x), (b, y) = points[j], points[i]
    return a >= b and x >= y and (a > b or x > y or j < i)


reference = _front(_right)


@wrong("plausible", "The right points in the order in which they were given: sort them by latency.")
def given_order(points: Points) -> list[int]:
    return sorted(reference(points))


@wrong(
    "plausible",
    "You compare each point with the one just before it: it must be better than the best of all"
    " with less latency.",
)
def better_than_the_one_before(points: Points) -> list[int]:
    order = sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1], i))
    return [i for n, i in enumerate(order) if n == 0 or points[i][1] > points[order[n - 1]][1]]


@wrong(
    "plausible",
    "This is the convex hull. A point under the line between two others is still the best at its"
    " latency: a server cannot run at a mixture.",
)
def hull(points: Points) -> list[int]:
    """Only the corners of the upper hull."""
    kept: list[int] = []
    for i in reference(points):
        while len(kept) >= 2 and _above(points[kept[-2]], points[kept[-1]], points[i]):
            kept.pop()
        kept.append(i)
    return kept


def _above(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Whether the line from a to c passes over b, or through it."""
    return (c[1] - a[1]) * (b[0] - a[0]) >= (b[1] - a[1]) * (c[0] - a[0])


@wrong("plausible", "These are the points; the task asks for their indices.")
def the_points_themselves(points: Points) -> Points:
    return [points[i] for i in reference(points)]


def _cloud(rng: random.Random, n: int) -> Points:
    """Measured points: throughput mostly rises with latency, with noise, ties and repetitions."""
    steps = [round(rng.uniform(5, 80)) for _ in range(n)]
    points = [(s / 1000, float(round(s * rng.uniform(20, 40) + 400))) for s in steps]
    twin, tied, level = (rng.randrange(n) for _ in range(3))
    best = max(range(n), key=lambda i: points[i][1])
    points += [
        points[twin],
        (points[tied][0], points[tied][1] - 50),
        (points[level][0] + 0.003, points[level][1]),
    ]
    points += [points[best], (points[best][0] + 0.004, points[best][1])]
    rng.shuffle(points)
    return points


def observe(answer: Answer, case: Case) -> Any:
    """What front returns; an array will do for a list. Raises AnswerError (unusable) for an index
    that finds nothing in a list."""
    kept = plain(answer.call("front", *case.args))
    for i in kept if isinstance(kept, list) else []:
        if isinstance(i, float):
            said = (
                f"an index is a whole number, and one of yours is {i!r}: points[{i!r}] is an error"
            )
            raise AnswerError("unusable", said)
    return kept


def _many() -> Points:
    """Each worse than the one before in both, but for the last, which gives more and takes
    longer."""
    points = [(1.0 + i / MANY, 2000.0 - i) for i in range(MANY - 1)]
    return [*points, (3.0, 9000.0)]


def cases(rng: random.Random) -> list[Case]:
    """Nothing, one point, ties and equal points by hand, then clouds in any order."""
    s = 0.0203045  # no whole number of milliseconds or microseconds
    return [
        Case("no point", ([],)),
        Case("one point", ([(0.01, 100.0)],)),
        Case("the second is better in both", ([(0.02, 100.0), (0.01, 200.0)],)),
        # the same points: whoever keeps results by them in order is wrong here
        Case("the first is better in both", ([(0.01, 200.0), (0.02, 100.0)],)),
        Case("the same latency, less throughput", ([(0.01, 200.0), (0.01, 100.0), (0.03, 300.0)],)),
        Case("the same throughput, more latency", ([(0.02, 200.0), (0.01, 200.0), (0.03, 300.0)],)),
        Case("two equal points", ([(0.03, 300.0), (0.01, 200.0), (0.01, 200.0)],)),
        Case(
            "below the line between its neighbors", ([(0.01, 100.0), (0.05, 120.0), (0.06, 600.0)],)
        ),
        Case(
            "a poor point followed by a better one, both beaten",
            ([(0.01, 500.0), (0.02, 100.0), (0.03, 300.0), (0.04, 900.0)],),
        ),
        Case(
            "hardly more latency for hardly more",
            ([(0.0202, 502.0), (0.0201, 501.0), (0.02, 500.0), (0.0203, 501.5)],),
        ),
        Case("no throughput at all", ([(0.01, 0.0)],)),
        Case("less than a token per second", ([(60.0, 0.25), (30.0, 0.125), (90.0, 0.75)],)),
        Case(
            "a gain of a trillionth in throughput",
            ([(0.02, 1000 * (1 + 1e-12)), (0.01, 1000.0), (0.03, 1000 * (1 + 2e-12))],),
        ),
        Case(
            "the same latency, a gain of a trillionth in throughput",
            ([(s, 500.0), (s, 500 * (1 + 1e-12)), (2 * s, 600.0)],),
        ),
        Case(
            "a gain of a trillionth in latency",
            ([(s, 500.0), (s * (1 - 1e-12), 500.0), (s * (1 + 1e-12), 600.0)],),
        ),
        Case(
            "the first and the last place",
            ([(0.03, 300.0), (0.04, 100.0), (0.05, 200.0), (0.01, 100.0)],),
        ),
        Case("three equal points, apart", ([(0.02, 5.0), (0.01, 2.0), (0.02, 5.0), (0.02, 5.0)],)),
        Case(f"{MANY:,} points, all but the first and the last beaten", (_many(),), public=False),
        *(Case(f"cloud {i + 1}", (_cloud(rng, 6 + 9 * i),), public=i < 2) for i in range(4)),
    ]


@wrong(
    "thresholds against noise",
    "You left out points that gain little, by a margin or by rounding. Here any gain counts,"
    " however small.",
)
def small_gains_left_out(points: Points) -> list[int]:
    kept: list[int] = []
    for i in reference(points):
        if not kept or points[i][1] > 1.001 * points[kept[-1]][1]:
            kept.append(i)
    return kept


wrong.add(
    "worse_in_both",
    _front(_worse_in_both),
    "fronts with two strict comparisons",
    "You drop a point only if another is better in both. It is beaten as soon as one is better in"
    " one and no worse in the other.",
)
wrong.add(
    "all_equals_kept",
    _front(_all_equals_kept),
    "plausible",
    "You keep every copy of equal points: of those, the task asks for the one with the smallest"
    " index.",
)
wrong.add(
    "equals_beat_each_other",
    _front(_equals_beat_each_other),
    "fronts with two comparisons ≤ and ≥",
    "Equal points beat each other in your code, so that none is left: to beat, a point must be"
    " better in one of the two.",
)
wrong.add(
    "most_of_both",
    _front(_most_of_both),
    "plausible",
    "You look for high latency: throughput is better when higher, latency when lower.",
)


EXERCISE = Exercise(
    id="latency_throughput-front",
    title="The front",
    kind="kernel",
    points=3,
    minutes=15,
    entries=("front",),
    cases=cases,
    observe=observe,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        (
            "When does a point lose? When some other has latency ≤, throughput ≥, and is strictly"
            " better in one of the two."
        ),
        "Sort by latency, highest throughput first where latencies are equal, then smallest index.",
        "Walk through that order and keep a point if its throughput is above the best so far.",
    ),
    ranges={"len(points)": (0, MANY)},
    recall=(
        "What does it mean that a batch size is on the latency-throughput front?",
        (
            "No other one gives at least its throughput at no more latency: to gain in one you must"
            " lose in the other."
        ),
    ),
)
