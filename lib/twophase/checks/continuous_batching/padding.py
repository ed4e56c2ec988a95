"""continuous_batching-padding: how much of a static batch is padding."""

from __future__ import annotations

import random

from twophase.checks.compare import FORMULA
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Shares = dict[str, float]


def reference(prompts: list[int], answers: list[int]) -> Shares:
    """The right answer."""
    B = len(prompts)
    read, decoded = B * max(prompts), B * max(answers)
    used = sum(prompts) + sum(answers)
    return {
        "prompts": 1 - sum(prompts) / read,
        "answers": 1 - sum(answers) / decoded,
        "both": 1 - used / (read + decoded),
    }


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "used_share",
    {
        "1 - sum(prompts) / read": "sum(prompts) / read",
        "1 - sum(answers) / decoded": "sum(answers) / decoded",
        "1 - used / (read + decoded)": "used / (read + decoded)",
    },
    "plausible",
    "This is the share that is used. Asked is what is wasted: 1 less that.",
)
_add(
    "over_what_is_used",
    {
        "1 - sum(prompts) / read": "read / sum(prompts) - 1",
        "1 - sum(answers) / decoded": "decoded / sum(answers) - 1",
        "1 - used / (read + decoded)": "(read + decoded) / used - 1",
    },
    "overhead in per cent of the useful work",
    "You divide the padding by the real tokens. A share of the batch divides by all its places.",
)
_add(
    "mean_of_the_shares",
    {"1 - used / (read + decoded)": "1 - (sum(prompts) / read + sum(answers) / decoded) / 2"},
    "plausible",
    "You average the two shares. They are shares of rectangles of different size: divide all"
    " padding by all places.",
)
_add(
    "longest_request",
    {
        "1 - used / (read + decoded)": (
            "1 - used / (B * max(p + a for p, a in zip(prompts, answers, strict=True)))"
        )
    },
    "plausible",
    "You take the longest request, prompt and answer together. Prompts are padded to the longest"
    " prompt, and answers run until the longest has ended: these may be two requests.",
)
_add(
    "share_of_requests",
    {
        "1 - sum(prompts) / read": "sum(p < max(prompts) for p in prompts) / B",
        "1 - sum(answers) / decoded": "sum(a < max(answers) for a in answers) / B",
    },
    "plausible",
    "You count the requests that are padded. What counts is the places.",
)


def cases(rng: random.Random) -> list[Case]:
    """By hand, and with other prompts; one request, equal lengths; the longest first and last; the
    largest batch; fresh ones."""

    def drawn(r: random.Random, n: int, most: int = 900) -> tuple[list[int], list[int]]:
        return [r.randrange(1, most) for _ in range(n)], [r.randrange(1, most) for _ in range(n)]

    fixed = random.Random(15)
    return [
        Case("three requests", ([3, 9, 5], [28, 10, 18])),
        Case("the same answers to other prompts", ([1, 9, 2], [28, 10, 18])),
        Case("one request", ([7], [5])),
        Case("equal lengths", ([4, 4, 4], [6, 6, 6])),
        Case("equal prompts", ([4, 4, 4], [1, 9, 2])),
        Case("equal answers", ([9, 1, 2], [5, 5, 5])),
        Case("one token each, and one long one", ([1, 1, 1, 5000], [1, 1, 1, 1])),
        Case("the longest answer belongs to the shortest prompt", ([1, 50], [60, 2])),
        Case("the longest of both first", ([100, 3, 2], [200, 1, 1])),
        Case("32 requests", drawn(fixed, 32)),
        Case("3,000 requests", drawn(fixed, 3000), public=False),
        Case(
            "3,000 requests, more places than 32 bits count",
            ([1_000_000, *[9] * 2999], [*[7] * 2999, 1_000_000]),
            public=False,
        ),
        Case("fresh 1", drawn(rng, rng.randrange(3, 9))),
        Case("fresh 2", drawn(rng, rng.randrange(10, 20), 6000), public=False),
    ]


EXERCISE = Exercise(
    id="continuous_batching-padding",
    title="Places that nobody uses",
    kind="formula",
    points=2,
    minutes=6,
    entries=("padding",),
    cases=cases,
    reference=reference,
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        "Draw two rectangles: B rows as long as the longest prompt, and as the longest answer.",
        "A share of padding: 1 less the real tokens over all places of the rectangle.",
        "Both: 1 less all real tokens over the places of both rectangles.",
    ),
    ranges={"len(prompts)": (1, 3000)},
    recall=(
        "Answers of 1, 1, 1 and 97 tokens in a static batch: which share of its steps is wasted?",
        "288 of 388 places, about three quarters.",
    ),
)
