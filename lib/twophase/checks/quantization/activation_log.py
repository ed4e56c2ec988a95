"""quantization-activation_log: read a log of activations, and say what kind of outliers it has."""

from __future__ import annotations

import random
from collections.abc import Callable

from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced
from twophase.checks.quantization._activation_logs import (
    EDGES,
    SCENES,
    Log,
    by_layer,
    massive,
    outliers,
    scene,
    stands_out,
)

wrong = Misconceptions()


def reference(log: Log) -> str:
    """The right answer."""
    layers = by_layer(log).values()
    if any(stands_out(rows) for rows in layers):
        return "channels"
    if 2 * sum(bool(outliers(e["x"])) for e in log) > len(log):
        return "scattered"
    return "tokens" if any(massive(rows) for rows in layers) else "healthy"


def _change(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_change(
    "layers_put_together",
    {"by_layer(log).values()": '[[e["x"] for e in log]]'},
    "one histogram for the whole model",
    "You put the layers together: channel 5 of one layer has nothing to do with channel 5 of"
    " another.",
)
_change(
    "all_layers_must",
    {"any(stands_out(rows)": "all(stands_out(rows)"},
    "plausible",
    "One layer with such a channel is enough.",
)
_change(
    "scattered_first",
    {
        '    if any(stands_out(rows) for rows in layers):\n        return "channels"\n': "",
        '    return "tokens" if': (
            '    if any(stands_out(rows) for rows in layers):\n        return "channels"\n'
            '    return "tokens" if'
        ),
    },
    "plausible",
    "You asked for outliers anywhere before you asked whether they keep to one channel: that comes"
    " first.",
)
_change(
    "any_outlier_is_scattered",
    {
        '2 * sum(bool(outliers(e["x"])) for e in log) > len(log)': (
            'any(outliers(e["x"]) for e in log)'
        )
    },
    "plausible",
    "A few outliers here and there are chance: more than half of the entries must have one.",
)
_change(
    "half_is_enough",
    {"> len(log)": ">= len(log)"},
    "plausible",
    "Exactly half of the entries is not more than half.",
)
_change(
    "outliers_counted_one_by_one",
    {'bool(outliers(e["x"]))': '2 * len(outliers(e["x"])) * bool(len(log) > 1)'},
    "plausible",
    "Count the entries that have an outlier, each once, and compare twice that with all of them.",
)
_change(
    "tokens_never",
    {"any(massive(rows) for rows in layers)": "False"},
    "plausible",
    "You never say “tokens”: look for an entry whose largest size is more than four times the mean"
    " of its layer's.",
)
_change(
    "tokens_of_all_layers",
    {"massive(rows) for rows in layers": 'massive(rows) for rows in [[e["x"] for e in log]]'},
    "plausible",
    "You compared tokens with those of other layers: layers differ in size, and that is no"
    " outlier.",
)
_change(
    "first_entries_only",
    {"layers = by_layer": "log = log[:256]\n    layers = by_layer"},
    "a calibration set of 256 tokens",
    "You looked at the first entries only: every share is one of the whole log.",
)


@wrong(
    "max() for abs().max()",
    "Your outliers are large positive numbers only: it is the size that counts.",
)
def above_zero_only(log: Log) -> str:
    return reference([{**e, "x": [max(v, 0) for v in e["x"]]} for e in log])


def said(log: Log, found: Callable[[list[int]], list[int]]) -> str:
    """What is right but for the channels that are taken for outliers."""
    layers = by_layer(log)
    for rows in layers.values():
        channels = [c for x in rows for c in found(x)]
        if any(2 * channels.count(c) > len(rows) for c in set(channels)):
            return "channels"
    if 2 * sum(bool(found(e["x"])) for e in log) > len(log):
        return "scattered"
    return "tokens" if any(map(massive, layers.values())) else "healthy"


@wrong("plausible", "At exactly six times the mean a number is not yet an outlier: “more than”.")
def six_times_is_enough(log: Log) -> str:
    def found(x: list[int]) -> list[int]:
        return [c for c, v in enumerate(x) if v and abs(v) * len(x) >= 6 * sum(map(abs, x))]

    return said(log, found)


@wrong(
    "“six times the others”",
    "You compared a number with the mean of the others: the mean is that of the whole entry, the"
    " number itself among them.",
)
def mean_of_the_others(log: Log) -> str:
    def found(x: list[int]) -> list[int]:
        sizes = list(map(abs, x))
        return [c for c, v in enumerate(sizes) if v * (len(x) - 1) > 6 * (sum(sizes) - v)]

    return said(log, found)


@wrong(
    "sum(sizes) // len(sizes)",
    "You rounded the mean down before you compared: of whole numbers it need not be one. Compare"
    " v·C with six times the sum of the sizes.",
)
def mean_rounded_down(log: Log) -> str:
    def found(x: list[int]) -> list[int]:
        mean = sum(map(abs, x)) // len(x)
        return [c for c, v in enumerate(x) if abs(v) > 6 * mean]

    return said(log, found)


@wrong(
    "LLM.int8()'s threshold taken for every model's",
    "You called every number of size 6 or more an outlier. The rule compares with the entry's own"
    " mean size: logs come in any unit.",
)
def threshold_of_six(log: Log) -> str:
    def found(x: list[int]) -> list[int]:
        return [c for c, v in enumerate(x) if abs(v) >= 6]

    return said(log, found)


def cases(rng: random.Random) -> list[Case]:
    """The edges of every rule; every scene once, named; then some again, longer and unnamed."""
    shown = [Case(name, (scene(rng, 16, name),)) for name in SCENES]
    hidden = [
        Case(f"log {i + 1}", (scene(rng, rng.randrange(20, 40), name, C=16),), public=False)
        for i, name in enumerate(rng.sample(SCENES, 4))
    ]
    return [*(Case(name, (log,)) for name, log in EDGES.items()), *shown, *hidden]


EXERCISE = Exercise(
    id="quantization-activation_log",
    title="Which kind of outliers",
    kind="trace",
    points=4,
    minutes=15,
    entries=("diagnose",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Group the entries by layer. abs(v)·C > 6·sum of sizes compares with the mean without a"
        " fraction.",
        "For each layer, count for each channel the entries in which it is an outlier: is one count"
        " more than half of the layer's entries?",
        "Then the entries of the whole log that have any outlier; then, layer by layer, the largest"
        " size of each entry against four times their mean.",
    ),
    recall=(
        "Outliers in the same channels of all tokens: what helps, and what does not?",
        "Keeping these channels apart, or moving their size into the weights. A scale for each"
        " token does not: every token has them.",
    ),
)
