"""continuous_batching-finishing: when each answer is there, in static batches and with seats that
are taken again at once."""

from __future__ import annotations

import heapq
import random

from twophase.checks.compare import EXACT
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Found = dict[str, list[int]]


def reference(lengths: list[int], seats: int) -> Found:
    """The right answer."""
    static: list[int] = []
    for first in range(0, len(lengths), seats):
        batch = lengths[first : first + seats]
        begun = static[-1] if static else 0
        static += [begun + max(batch)] * len(batch)
    free = [0] * seats  # the step after which each seat is free: a heap
    continuous = []
    for length in lengths:
        done = free[0] + length
        heapq.heapreplace(free, done)
        continuous.append(done)
    return {"static": static, "continuous": continuous}


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "handed_out_alone",
    {
        "static += [begun + max(batch)] * len(batch)": ("static += [begun + n for n in batch]"),
        "begun = static[-1] if static else 0": (
            "begun = sum(max(lengths[i : i + seats]) for i in range(0, first, seats))"
        ),
    },
    "plausible",
    "You hand out each answer of a static batch when it has its last token. There all wait for the"
    " longest.",
)
_add(
    "batch_takes_its_mean",
    {"max(batch)": "-(-sum(batch) // len(batch))"},
    "tokens a second, taken for the batch's time",
    "You let a batch take as long as its mean answer: it takes as long as its longest.",
)
_add(
    "batch_takes_its_last",
    {"max(batch)": "batch[-1]"},
    "plausible",
    "You let a batch take as long as its last answer: it takes as long as its longest.",
)
_add(
    "sorted_into_batches",
    {"batch = lengths[first : first + seats]": "batch = sorted(lengths)[first : first + seats]"},
    "bucketing by length",
    "You sorted the requests before you made batches. They are served in the order of the list.",
)
_add(
    "seats_in_turn",
    {
        "for length in lengths:\n        done = free[0] + length\n"
        "        heapq.heapreplace(free, done)": (
            "for i, length in enumerate(lengths):\n        done = free[i % seats] + length\n"
            "        free[i % seats] = done"
        )
    },
    "round robin",
    "You gave request i the seat i % seats. The next request takes whichever seat is free first.",
)
_add(
    "a_step_to_change_seats",
    {"heapq.heapreplace(free, done)": "heapq.heapreplace(free, done + 1)"},
    "plausible",
    "You leave a seat empty for a step before somebody takes it: it is taken in the very next"
    " step.",
)
_add(
    "seats_taken_together",
    {
        "done = free[0] + length": (
            "i = len(continuous)\n"
            "        begun = max(continuous[max(0, i - i % seats - seats) : i - i % seats],"
            " default=0)\n"
            "        done = begun + length"
        )
    },
    "plausible",
    "Your continuous schedule still waits until the whole batch has ended, before the next one"
    " begins.",
)
_add(
    "counted_from_zero",
    {
        '{"static": static, "continuous": continuous}': (
            '{"static": [n - 1 for n in static], "continuous": [n - 1 for n in continuous]}'
        )
    },
    "plausible",
    "You number the steps from 0. The first is step 1: an answer of one token is there after it.",
)
_add(
    "longest_first",
    {"for length in lengths:": "for length in sorted(lengths, reverse=True):"},
    "a rule for the shortest schedule",
    "You serve the longest first in the continuous schedule. They are served in the order of the"
    " list.",
)


def cases(rng: random.Random) -> list[Case]:
    """By hand, with another seat and in another order; no request, one seat, more seats than
    requests, a batch just full and one more, equal lengths; the most requests; the longest answer;
    fresh ones."""

    def drawn(r: random.Random, n: int, most: int) -> list[int]:
        return [r.randrange(1, most + 1) for _ in range(n)]

    fixed = random.Random(15)
    return [
        Case("five requests, two seats", ([4, 1, 2, 3, 1], 2)),
        Case("the same, three seats", ([4, 1, 2, 3, 1], 3)),
        # whoever keeps results by the sorted lengths is wrong here
        Case("the same in another order", ([1, 3, 2, 1, 4], 2)),
        Case("the three requests of the sources, two seats", ([28, 10, 18], 2)),
        Case("no request", ([], 3)),
        Case("one request", ([5], 3)),
        Case("one seat", ([2, 3, 1], 1)),
        Case("more seats than requests", ([3, 7, 1], 5)),
        Case("one request fewer than seats", ([3, 1, 2], 4)),
        Case("a batch just full", ([3, 1, 4, 1], 4)),
        Case("one request more", ([3, 1, 4, 1, 5], 4)),
        Case("answers of one token", ([1] * 7, 3)),
        Case("the longest stands last", ([1, 1, 9, 2, 2, 2, 1, 8], 3)),
        Case("the second seat is free first", ([9, 2, 3, 4, 1, 1], 2)),
        Case("two seats free at once", ([2, 2, 5, 1, 3, 3], 3)),
        Case("nine answers, three seats", (drawn(fixed, 9, 9), 3)),
        Case(f"{past(256)} seats", (drawn(fixed, 600, 5), past(256)), public=False),
        Case("1,000 requests", (drawn(fixed, 1000, 9), 7), public=False),
        Case("more seats and more requests than 512", (drawn(fixed, 1000, 9), 600), public=False),
        Case("1,000 answers of 5,000 tokens, 30 seats", ([5000] * 1000, 30), public=False),
        Case("1,000 requests, a seat for each", ([1 + i % 9 for i in range(1000)], 1000)),
        Case("answers of 5,000 tokens", ([5000, 3, 4999, 2500, 5000], 2)),
        Case("2,053 seats", ([3, 1, 2, 1, 2, 1, 3], past(2048))),
        Case("fresh 1", (drawn(rng, rng.randrange(8, 14), 9), rng.randrange(2, 5))),
        Case("fresh 2", (drawn(rng, rng.randrange(20, 40), 30), rng.randrange(3, 9)), public=False),
    ]


EXERCISE = Exercise(
    id="continuous_batching-finishing",
    title="Predict when each answer is there",
    kind="predict",
    points=3,
    minutes=10,
    entries=("finishing",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Draw it: a row for each seat, a column for each step. Who takes the seat that is free?",
        (
            "Static: each batch begins when the one before has ended, and ends with its longest"
            " answer."
        ),
        (
            "Continuous: keep for each seat the step after which it is free. The next request takes"
            " the smallest of these, and adds its length."
        ),
    ),
    ranges={"len(lengths)": (0, 1000), "seats": (1, past(2048))},
    recall=(
        "Answers of 9, 1, 1 and 1 tokens, two seats. After how many steps is the last one there, in"
        " static batches and with iteration-level scheduling?",
        "After 10 steps, 9 and 1; and after 9, since the short ones take turns on the second seat.",
    ),
)
