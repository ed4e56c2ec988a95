"""speculative_decoding-draft_length: the best number of drafted tokens, from measured calls."""

from __future__ import annotations

import random
from fractions import Fraction

from twophase.checks.compare import EXACT
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(kept: list[int], draft_s: float, verify_s: list[float]) -> int:
    """The right answer."""
    best, best_rate = 0, 0.0
    for gamma, seconds in enumerate(verify_s):
        tokens = sum(min(n, gamma) + 1 for n in kept) / len(kept)
        rate = tokens / (gamma * draft_s + seconds)
        if rate > best_rate:
            best, best_rate = gamma, rate
    return best


def mean(values: list[int]) -> float:
    return sum(values) / len(values)


def at_even_chances(kept: list[int], gamma: int, longest: int) -> float:
    """What one acceptance for all places would yield: kept over judged tokens."""
    refused = sum(n < longest for n in kept)
    alpha = sum(kept) / (sum(kept) + refused) if sum(kept) + refused else 1.0
    return sum(alpha**i for i in range(gamma + 1))


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "draft_is_free",
    {"gamma * draft_s + seconds": "seconds"},
    "“the draft costs nothing”",
    "You leave the draft's steps out: gamma tokens cost gamma of them.",
)
_add(
    "verification_of_the_longest",
    {"gamma * draft_s + seconds": "gamma * draft_s + verify_s[-1]"},
    "plausible",
    "You let every verification cost what the longest costs. verify_s[gamma] is that of gamma"
    " drafted tokens.",
)
_add(
    "plain_step_for_all",
    {"gamma * draft_s + seconds": "gamma * draft_s + verify_s[0]"},
    "“verification is free”",
    "You let every verification cost what a plain step does: it was measured, and costs more.",
)
_add(
    "kept_of_the_longest",
    {"min(n, gamma) + 1 for n in kept": "n + 1 for n in kept"},
    "plausible",
    "With gamma drafted tokens no more than gamma can be kept: min(kept, gamma).",
)
_add(
    "own_token_left_out",
    {"min(n, gamma) + 1": "min(n, gamma)"},
    "plausible",
    "A call says one token more than it keeps.",
)
_add(
    "one_acceptance_for_all_places",
    {
        "sum(min(n, gamma) + 1 for n in kept) / len(kept)": (
            "at_even_chances(kept, gamma, len(verify_s) - 1)"
        )
    },
    "the formula for one alpha",
    "You put one acceptance rate at all places. The counts say what each place keeps: use them.",
)
_add(
    "always_drafting",
    {
        "enumerate(verify_s)": "list(enumerate(verify_s))[1:]",
        "best, best_rate = 0": "best, best_rate = 1",
    },
    "plausible",
    "You always draft. No draft at all, gamma = 0, may be the quickest.",
)
_add(
    "most_tokens",
    {"tokens / (gamma * draft_s + seconds)": "tokens"},
    "acceptance shown without the clock",
    "You take the most tokens a call. What counts is tokens a second.",
)
_add(
    "stops_at_the_first_that_is_slower",
    {
        "best, best_rate = gamma, rate": (
            "best, best_rate = gamma, rate\n        elif rate < best_rate:\n            break"
        )
    },
    "hill climbing",
    "You stop at the first length that is slower. Verification is priced in steps: a longer draft"
    " may be quicker again.",
)
_add(
    "longest_of_equals",
    {"rate > best_rate": "rate >= best_rate"},
    "plausible",
    "Of equally quick ones the task wants the smallest.",
)


def clear(kept: list[int], draft_s: float, verify_s: list[float]) -> bool:
    """Whether the best rate is above all others by more than rounding."""
    rates = sorted(
        Fraction(sum(min(n, g) + 1 for n in kept)) / (Fraction(draft_s) * g + Fraction(seconds))
        for g, seconds in enumerate(verify_s)
    )
    return len(rates) < 2 or rates[-1] > rates[-2] * (1 + Fraction(1, 10**6))


def _fresh(rng: random.Random, name: str, public: bool) -> Case:
    while True:
        longest, a = rng.randrange(3, 9), rng.uniform(0.4, 0.95)
        kept = []
        for _ in range(rng.randrange(20, 60)):
            n = 0
            while n < longest and rng.random() < a:
                n += 1
            kept.append(n)
        step, slope = rng.uniform(0.005, 0.05), rng.uniform(0, 0.15)
        verify_s = [step * (1 + slope * g) for g in range(longest + 1)]
        args = kept, step * rng.uniform(0.02, 0.4), verify_s
        if clear(*args):
            return Case(name, args, public=public)


def cases(rng: random.Random) -> list[Case]:
    """Cheap and dear drafts, steps in the price of verification, places that differ, ties in powers
    of two, no draft at all."""
    bursts = [0, 0, 0, 0, 8, 8, 8, 8]
    steps = [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    far = past(256)
    made = [
        Case("a draft at a tenth", ([0, 1, 2, 4, 4, 3, 4, 1], 0.1, [1.0, 1.05, 1.1, 1.15, 1.2])),
        Case(
            "the same draft at nine tenths",
            ([0, 1, 2, 4, 4, 3, 4, 1], 0.9, [1.0, 1.05, 1.1, 1.15, 1.2]),
        ),
        Case(
            "the draft at a tenth, less is kept",
            ([0, 1, 1, 0, 1, 0, 1, 1], 0.1, [1.0, 1.05, 1.1, 1.15, 1.2]),
        ),
        Case("nothing is ever kept", ([0, 0, 0], 0.125, [1.0, 1.0, 1.0])),
        Case("everything is kept, and the draft is free", ([3, 3], 0.0, [1.0, 1.0, 1.0, 1.0])),
        Case("all or nothing", (bursts, 0.25, [1.0] * 9)),
        Case("all or nothing, a step after three", (bursts, 0.125, steps)),
        Case("the first two places keep, the third never", ([2, 2, 2, 2, 1], 0.0625, [1.0] * 6)),
        Case("two lengths equally quick", ([1, 1], 0.0, [1.0, 2.0])),
        Case("three equally quick", ([2, 2], 0.5, [1.0, 1.5, 2.0])),
        Case("worse before it is better", ([3] * 4, 0.0625, [1.0, 2.0, 2.0, 2.0])),
        Case("better by a thousandth", ([1] * 4, 0.0, [1.0, 1.998])),
        Case("worse by a thousandth", ([1] * 4, 0.0, [1.0, 2.002])),
        Case("better by one in 50,000", ([1] * 4, 0.0, [1.0, 1.99996])),
        Case("worse by one in 50,000", ([1] * 4, 0.0, [1.0, 2.00004])),
        Case("better by a hundred-millionth", ([1] * 4, 0.0, [1.0, 2.0 * (1 - 1e-8)])),
        Case("a dip in the price", ([1, 3, 4, 2], 0.05, [1.0, 1.6, 1.5, 1.1, 1.7])),
        Case("the dip at the end", ([1, 3, 4, 2], 0.05, [1.0, 1.6, 1.5, 1.7, 1.1])),
        Case("verification dearer with every token", ([4] * 5, 0.0, [1.0, 2.5, 3.5, 4.5, 5.6])),
        Case("only a plain step was measured", ([0, 0], 0.25, [1.0])),
        Case("one call", ([2], 0.25, [1.0, 1.125, 1.25, 1.375])),
        Case("a draft that just pays", ([1] * 5 + [0] * 3, 0.35, [1.0, 1.25])),
        Case("milliseconds", ([0, 2, 1, 3], 0.0002, [0.004, 0.0041, 0.0043, 0.0052])),
        Case("a very slow machine", ([1, 1, 1], 5e4, [2e6, 2.05e6])),
        Case(
            "257 tokens drafted, all kept",
            ([far] * 3, 0.001, [1.0 + i / 4096 for i in range(far + 1)]),
        ),
        Case("300 calls, the last ones keep", ([0] * 200 + [2] * 100, 0.3, [1.0, 1.0, 1.0])),
        Case("2,100 calls, the last ones keep", ([0] * 1100 + [2] * 1000, 0.3, [1.0, 1.0, 1.0])),
        Case("300 calls, the first ones keep", ([2] * 200 + [0] * 100, 0.1, [1.0, 1.0, 1.0])),
    ]
    return [*made, *(_fresh(rng, f"fresh {i + 1}", i < 2) for i in range(6))]


EXERCISE = Exercise(
    id="speculative_decoding-draft_length",
    title="How many tokens to draft",
    kind="formula",
    points=3,
    minutes=15,
    entries=("best_length",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "A call that kept 5 of 8 drafted tokens: how many would it have kept of 3? Of 7?",
        (
            "With gamma drafted tokens a call yields"
            " min(kept, gamma) + 1: take"
            " the mean over the calls."
        ),
        (
            "Tokens a second: that mean over"
            " gamma·draft_s + verify_s[gamma], for"
            " every gamma from 0"
            " on. Take the first of the largest."
        ),
    ),
    recall=(
        "Why can the best draft length be 0?",
        (
            "A draft costs time whether it is kept or"
            " not: where little is kept a"
            " plain step is quicker."
        ),
    ),
)
