"""speculative_decoding-expected: tokens of a call where each place has an acceptance of its own."""

from __future__ import annotations

import random

from twophase.checks.compare import FORMULA
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(acceptances: list[float]) -> dict[str, float]:
    """The right answer."""
    reached, kept = 1.0, 0.0
    for a in acceptances:
        reached *= a
        kept += reached
    return {"tokens": 1 + kept, "all": reached, "wasted": len(acceptances) - kept}


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "own_token_left_out",
    {"1 + kept": "kept"},
    "a published table of speed-ups",
    "A call also says a token of the target's own: behind the kept ones, or in place of the"
    " refused.",
)
_add(
    "summed_not_multiplied",
    {"reached *= a\n        kept += reached": "kept += a\n        reached *= a"},
    "plausible",
    "You add the acceptances. A token stays only if all before it stay: multiply along the way.",
)
_add(
    "one_mean_for_all",
    {"for a in acceptances": "for a in [mean(acceptances)] * len(acceptances)"},
    "the formula for one alpha, given a mean",
    "You put the mean acceptance everywhere. Where the first places are better than the last ones,"
    " or worse, that is another number.",
)
_add(
    "kept_whole_or_not_at_all",
    {"1 + kept": "1 + len(acceptances) * reached"},
    "plausible",
    "You count a draft only if all of it is kept: its first few tokens stay also if a later one is"
    " refused.",
)
_add(
    "one_wasted",
    {"len(acceptances) - kept": "1 - reached"},
    "plausible",
    "You count the refused token only. Those behind it were drafted for nothing as well.",
)


def cases(rng: random.Random) -> list[Case]:
    """No token drafted; certain ones and hopeless ones, first, last, between; equal and unequal
    places; more places than any table."""
    long = [0.5] + [1.0] * (past(512) - 2) + [0.25]
    fresh = [[rng.uniform(0.2, 0.98) for _ in range(rng.randrange(2, 9))] for _ in range(4)]
    return [
        Case("one token drafted", ([0.75],)),
        Case("four alike", ([0.8] * 4,)),
        Case("getting worse", ([0.9, 0.75, 0.5],)),
        Case("getting better", ([0.5, 0.75, 0.9],)),
        Case("none drafted", ([],)),
        Case("all certain", ([1.0, 1.0, 1.0],)),
        Case("the first hopeless", ([0.0, 0.9, 0.9],)),
        Case("the last hopeless", ([0.9, 0.5, 0.0],)),
        Case("hopeless between", ([0.9, 0.0, 0.5],)),
        Case("one in a million", ([1e-6, 0.5],)),
        Case("forty places, kept together once in a million million", ([0.5] * 40,)),
        # as many are wasted; a number of float32
        Case("refused once in eight million", ([1 - 2.0**-23],)),
        Case("521 places, most of them certain", (long,)),
        *(Case(f"fresh {i + 1}", (a,), public=i < 2) for i, a in enumerate(fresh)),
    ]


EXERCISE = Exercise(
    id="speculative_decoding-expected",
    title="Tokens of a call",
    kind="formula",
    points=2,
    minutes=10,
    entries=("per_call",),
    cases=cases,
    reference=reference,
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        "When does token 3 stay? What is the probability of that?",
        "Token i stays with a₁·a₂·…·aᵢ; the expected number of kept ones is the sum of these.",
        (
            "tokens = 1 + the sum; all = the last product (1 for an empty draft); wasted = drafted"
            " less the sum."
        ),
    ),
    recall=(
        "Two tokens are drafted, each kept with probability 1/2 if it is reached. Tokens per call?",
        "1 + 1/2 + 1/4 = 1.75.",
    ),
    ranges={"acceptances[]": (0.0, 1.0)},
)
