"""mixture_of_experts-seats: experts with room for so many, first choices first."""

from __future__ import annotations

import math  # noqa: F401 (wrong answers round up with it)
import random

from twophase.checks import edges
from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Routing = list[list[int]]
Places = list[list[int | None]]


def reference(experts: Routing, E: int, percent: int) -> Places:
    """The right answer."""
    n, k = len(experts), len(experts[0])
    capacity = -(-percent * n * k // (100 * E))
    taken = [0] * E
    places: Places = [[None] * k for _ in experts]
    for j in range(k):
        for t in range(n):
            e = experts[t][j]
            if taken[e] < capacity:
                places[t][j] = taken[e]
                taken[e] += 1
    return places


def _change(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_change(
    "token_by_token",
    {
        "for j in range(k):": "for t in range(n):",
        "        for t in range(n):\n            e": "        for j in range(k):\n            e",
    },
    "Switch Transformer's order, whose k is 1",
    "You seat token by token, so that an early token's second choice takes a later one's first."
    " All first choices go before any second.",
)
_change(
    "rounded_down",
    {"-(-percent * n * k // (100 * E))": "percent * n * k // (100 * E)"},
    "int(capacity)",
    "You rounded the capacity down: it is rounded up.",
)
IN_FLOATS = (
    "You computed the room in floats: a product that is whole may come out a little above itself,"
    " and rounded up that is a place too many. All of it is whole numbers: -(-a // b) rounds up."
)
_change(
    "share_in_floats",
    {"-(-percent * n * k // (100 * E))": "math.ceil(n * k / E * percent / 100)"},
    "math.ceil(tokens_per_expert * capacity_factor)",
    IN_FLOATS,
)
_change(
    "factor_in_floats",
    {"-(-percent * n * k // (100 * E))": "math.ceil(percent / 100 * n * k / E)"},
    "math.ceil(capacity_factor * tokens * k / num_experts)",
    IN_FLOATS,
)
_change(
    "k_left_out",
    {"-percent * n * k": "-percent * n"},
    "the formula of Switch Transformer, where k is 1",
    "Your capacity is for one visit a token: there are k.",
)
_change(
    "one_more",
    {"< capacity": "<= capacity"},
    "plausible",
    "You seat one visit more than there is room for.",
)
_change(
    "counted_from_one",
    {"places[t][j] = taken[e]\n                taken[e] += 1": (
        "taken[e] += 1\n                places[t][j] = taken[e]"
    )},
    "plausible",
    "Your places count from 1: the first one is 0.",
)  # fmt: skip
_change(
    "bins_emptied_between_choices",
    {"for j in range(k):\n": "for j in range(k):\n        taken = [0] * E\n"},
    "plausible",
    "You begin again with empty bins for the second choices: they sit behind the first ones.",
)
_change(
    "last_comes_first",
    {"for t in range(n)": "for t in reversed(range(n))"},
    "plausible",
    "You seat the last token first: the tokens come in their order.",
)
_change(
    "percent_left_out",
    {"-percent * n * k // (100 * E)": "-n * k // E"},
    "plausible",
    "You left the percentage out: 100 is the even share, 125 a quarter more.",
)
_change(
    "dropped_token_dropped_whole",
    {"    return places": ("    return [p if None not in p else [None] * k for p in places]")},
    "“dropped tokens”",
    "You take all places from a token that lost one: each visit is kept or dropped by itself.",
)


def cases(rng: random.Random) -> list[Case]:
    """By hand: order, one too many, second choices behind; capacities that divide and that do not;
    idle experts; percentages from 1 to 1,000; many tokens."""

    def drawn(n: int, E: int, k: int) -> Routing:
        return [rng.sample(range(E), k) for _ in range(n)]

    many = edges.past(1024)
    first = [[0, 1], [1, 0], [1, 2]]
    crowd = [[0, 1], [0, 2], [0, 3], [0, 1], [2, 0]]
    return [
        Case("three tokens, two choices", (first, 3, 50)),
        # of the same length: whoever keeps results by that is wrong here
        Case("three tokens, other choices", ([[2, 1], [2, 0], [0, 2]], 3, 50)),
        Case("the same, the even share", (first, 3, 100)),
        Case("the same, with room for all", (first, 3, 300)),
        Case("the same, and an expert that nobody visits", (first, 4, 100)),
        Case("the same, and three that nobody visits", (first, 6, 100)),
        Case("the same, one percent", (first, 3, 1)),
        Case("all want expert 0", (crowd, 4, 100)),
        Case("all want expert 0, a quarter more room", (crowd, 4, 125)),
        Case("40 places that divide evenly", ([[t % 4, (t + 1) % 4] for t in range(20)], 4, 100)),
        Case("one token", ([[2, 0, 1]], 5, 100)),
        Case("one expert", ([[0]] * 7, 1, 60)),
        Case("the tenth of 10 percent", ([[0]] * 10, 10, 110)),
        Case("a float would round up", ([[0]] * 100, 10, 110)),
        Case("a float share would round up", ([[0, 1]] * 50, 3, 105)),
        Case("k/E as a float would round up", ([[0]] * 25, 11, 220)),
        Case("n·k/(100·E) as a float would round up", ([[0]] * 14, 2, 100)),
        Case("rounded up once", ([[0]] * 7, 3, 40)),
        Case("a hundredth of a place more", ([[0]] * 7, 3, 43)),
        Case("a thousandth of a place more", ([[0]] * 51, 13, 51)),
        Case("a millionth of a place more", ([[0]] * 1849, 12_000, 649)),
        Case("five percent of 64 places", ([[0]] * 64, 1, 5)),
        Case("2,053 experts, hardly more than one place", ([[0]] * 1477, 2053, 139)),
        Case("2,053 experts", (drawn(40, 2053, 1)[:1] * 40, 2053, 100)),
        Case("ten times the room", (drawn(9, 4, 2), 4, 1000)),
        Case(f"{many:,} tokens at one expert", ([[0, 1]] * many, 2, 90)),
        Case(f"{many:,} experts", (drawn(8, many, 2), many, 100)),
        Case(
            "fresh", (drawn(rng.randrange(20, 40), 6, 3), 6, rng.randrange(60, 120)), public=False
        ),
        Case("fresh, top-1", (drawn(rng.randrange(20, 40), 5, 1), 5, 100), public=False),
    ]


EXERCISE = Exercise(
    id="mixture_of_experts-seats",
    title="Room for so many",
    kind="kernel",
    points=4,
    minutes=15,
    entries=("seats",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "First the capacity: the even share n·k/E, times percent/100, rounded up without a float.",
        "-(-a // b) rounds up. Keep a counter for each expert: the next free place.",
        "The outer loop goes over the choices, the inner one over the tokens.",
    ),
    recall=(
        "What becomes of a token whose expert is full?",
        "That expert adds nothing for it; the residual stream carries it on.",
    ),
    ranges={"percent": (1, 1000)},
)
