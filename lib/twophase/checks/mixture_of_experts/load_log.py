"""mixture_of_experts-load_log: read how many visits each expert got, and say what is wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced
from twophase.checks.mixture_of_experts._load_logs import (
    EDGES,
    SCENES,
    Log,
    dead,
    fresh_log,
    skewed,
    sums,
)

wrong = Misconceptions()


def reference(log: Log) -> str:
    """The right answer."""
    layers = sums(log)
    if any(dead(visits) for visits in layers.values()):
        return "dead"
    if any(skewed(visits) for visits in layers.values()):
        return "skewed"
    return "bursty" if 2 * sum(skewed(e["visits"]) for e in log) > len(log) else "healthy"


def _change(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_change(
    "layers_added_up",
    {"layers = sums(log)": 'layers = sums([{**e, "layer": 0} for e in log])'},
    "a dashboard with one line per expert",
    "You added the layers up: expert 3 of one layer has nothing to do with expert 3 of another.",
)
_change(
    "each_step_for_itself",
    {"layers = sums(log)": 'layers = {i: e["visits"] for i, e in enumerate(log)}'},
    "plausible",
    "You judged single entries: an expert that one step leaves alone is not dead. The first two"
    " questions are about a layer's sums over the whole log.",
)
_change(
    "skew_before_death",
    {
        "if any(dead(visits) for visits in layers.values()):\n        return \"dead\"\n    ": "",
        "    return \"bursty\" if": (
            "    if any(dead(visits) for visits in layers.values()):\n"
            "        return \"dead\"\n    return \"bursty\" if"
        ),
    },
    "plausible",
    "You asked for a skew first. An expert that nobody visits is the more serious sign, and comes"
    " first.",
)  # fmt: skip
_change(
    "exactly_half_is_bursty",
    {"> len(log)": ">= len(log)"},
    "plausible",
    "Exactly half of the entries is not more than half.",
)
_change(
    "any_burst",
    {
        "2 * sum(skewed(e[\"visits\"]) for e in log) > len(log)": (
            "any(skewed(e[\"visits\"]) for e in log)"
        )
    },
    "plausible",
    "One uneven entry is chance: more than half of the entries must be uneven.",
)  # fmt: skip
_change(
    "all_layers_must_be",
    {"if any(skewed": "if all(skewed"},
    "plausible",
    "One skewed layer is enough: every step waits for it.",
)
_change(
    "first_layer_only",
    {"layers = sums(log)": 'layers = sums([e for e in log if e["layer"] == log[0]["layer"]])'},
    "plausible",
    "You looked at one layer only.",
)
_change(
    "last_entries_only",
    {"layers = sums(log)": "log = log[-64:]\n    layers = sums(log)"},
    "dashboards that show the last hour",
    "You looked at the last 64 entries: every sum and share is one of the whole log.",
)


def labelled(log: Log, uneven: Callable[[list[int]], bool]) -> str:
    """The right answer but for what is uneven."""
    layers = sums(log)
    if any(dead(visits) for visits in layers.values()):
        return "dead"
    if any(uneven(visits) for visits in layers.values()):
        return "skewed"
    return "bursty" if 2 * sum(uneven(e["visits"]) for e in log) > len(log) else "healthy"


@wrong(
    "plausible",
    "At exactly twice the mean an expert is not yet skewed: the rule says “more than twice”.",
)
def twice_is_skewed(log: Log) -> str:
    def uneven(visits: list[int]) -> bool:
        return max(visits) * len(visits) >= 2 * sum(visits)

    return labelled(log, uneven)


@wrong(
    "sum(visits) // len(visits)",
    "You rounded the mean down before you compared: of whole numbers it need not be one. Compare"
    " max·E with twice the sum.",
)
def mean_rounded_down(log: Log) -> str:
    def uneven(visits: list[int]) -> bool:
        return max(visits) > 2 * (sum(visits) // len(visits))

    return labelled(log, uneven)


@wrong(
    "max over min",
    "You compared the fullest expert with the emptiest. The measure is the fullest over the mean:"
    " the step waits for the fullest.",
)
def over_the_emptiest(log: Log) -> str:
    def uneven(visits: list[int]) -> bool:
        return max(visits) > 2 * min(visits)

    return labelled(log, uneven)


@wrong(
    "plausible",
    "Your sums are one expert short, or one too long.",
)
def last_expert_forgotten(log: Log) -> str:
    cut: Any = [{**e, "visits": e["visits"][:-1]} for e in log]
    return reference(cut)


def cases(rng: random.Random) -> list[Case]:
    """Every scene once, named; the edges of every rule; then some scenes again, longer and
    unnamed."""
    shown = [Case(name, (fresh_log(rng, 24, **scene),)) for name, scene in SCENES.items()]
    hidden = [
        Case(f"log {i + 1}", (fresh_log(rng, rng.randrange(40, 90), **scene),), public=False)
        for i, scene in enumerate(rng.sample(list(SCENES.values()), 4))
    ]
    return [*shown, *(Case(name, (log,)) for name, log in EDGES.items()), *hidden]


EXERCISE = Exercise(
    id="mixture_of_experts-load_log",
    title="What a log of loads says",
    kind="trace",
    points=4,
    minutes=18,
    entries=("diagnose",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Two questions are about sums over the log, layer by layer; one about single entries.",
        "Sum the visits of each layer, expert by expert. Is a sum 0? Is one above twice the mean?",
        "max(visits) * len(visits) > 2 * sum(visits) compares with the mean without a fraction.",
    ),
    recall=(
        "A layer's loads are even over a day and uneven in every step. What is that, and does an"
        " auxiliary loss help?",
        (
            "Bursts: tokens of one kind come together. A loss evens out batches as they come in"
            " training; it cannot even out each step of serving."
        ),
    ),
)
