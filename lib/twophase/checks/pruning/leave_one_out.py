"""pruning-leave_one_out: how much worse the loss gets without each group of units; the judge counts
the passes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import Tolerance, plain
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Loss = Callable[[list[int]], float]


def reference(loss: Loss, groups: list[list[int]]) -> list[float]:
    """The right answer."""
    whole = loss([])
    return [loss(group) - whole for group in groups]


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "losses_for_rises",
    {"loss(group) - whole": "loss(group)"},
    "plausible",
    "You return losses. How much a group matters is how much the loss rises without it: take off"
    " the loss of the whole model.",
)
_add(
    "whole_again_and_again",
    {"loss(group) - whole": "loss(group) - loss([])"},
    "plausible",
    "You run the whole model once for every group: its loss is the same each time, and every call"
    " is a pass over the calibration set.",
)
_add(
    "sign_turned",
    {"loss(group) - whole": "whole - loss(group)"},
    "plausible",
    "Your numbers have the wrong sign: what matters most makes the loss rise most.",
)
_add(
    "keep_one_in",
    {"loss(group) - whole": "loss([u for g in groups if g is not group for u in g]) - whole"},
    "plausible",
    "You silence all groups but one. Leave one out: silence that one, and nothing else.",
)
_add(
    "gone_for_good",
    {
        "[loss(group) - whole for group in groups]": (
            "[loss([u for g in groups[: i + 1] for u in g]) - loss([u for g in groups[:i] for u in"
            " g]) for i in range(len(groups))]"
        )
    },
    "greedy removal taken for a score",
    "The groups before it are still silenced when you come to the next: bring each back first.",
)
_add(
    "unit_by_unit",
    {"loss(group) - whole": "sum(loss([unit]) - whole for unit in group)"},
    "plausible",
    "You add up the rises of single units. What stands in for each other is missed only when both"
    " are gone: silence a group at once.",
)
_add(
    "relative",
    {"loss(group) - whole": "loss(group) / whole - 1"},
    "plausible",
    "You return shares of the loss: the task wants the rise itself.",
)


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """The rises, and what was silenced in each call."""
    base, rises, pairs, groups = case.args
    calls: list[list[int]] = []

    def loss(silenced: Any) -> float:
        units = plain(silenced)
        if not isinstance(units, list | tuple) or any(
            type(u) is not int or not 0 <= u < len(rises) for u in units
        ):
            raise ValueError(f"loss(silenced) wants a list of units, 0 to {len(rises) - 1}")
        calls.append(sorted(units))
        gone = set(units)
        alone = sum(rises[u] for u in gone)
        return float(base + alone + sum(x for i, j, x in pairs if {i, j} <= gone))

    return {"rises": plain(answer.call("importance", loss, groups)), "passes": sorted(calls)}


def _case(
    rng: random.Random, name: str, n: int, groups: list[list[int]], public: bool = True
) -> Case:
    """Sixteenths, so that no difference rounds; units of one group stand in for each other."""
    rises = [rng.randrange(-2, 17) / 16 for _ in range(n)]
    pairs = [(g[0], g[1], rng.randrange(1, 33) / 16) for g in groups if len(g) > 1]
    pairs += [(groups[0][0], groups[-1][0], 0.75)] if len(groups) > 1 else []
    return Case(name, (1.5 + rng.randrange(16) / 16, rises, pairs, groups), public=public)


def cases(rng: random.Random) -> list[Case]:
    """Single units and groups, units in no group, groups that share a unit, one group, none, many,
    one twice; units without which the loss falls."""
    fixed = random.Random(13)
    many = past(256)
    return [
        _case(fixed, "four heads, one by one", 4, [[0], [1], [2], [3]]),
        _case(fixed, "two groups of two heads", 4, [[0, 1], [2, 3]]),
        _case(fixed, "groups of different sizes", 6, [[0, 1, 2], [3], [4, 5]]),
        _case(fixed, "out of order, some units in no group", 8, [[6, 2], [0], [5, 1]]),
        _case(fixed, "groups that share a unit", 3, [[0, 1], [1, 2]]),
        _case(fixed, "one group", 3, [[0, 2]]),
        Case("no group", (1.5, [0.25], [], [])),
        Case("the loss falls without it", (2.0, [-0.25, 0.5, 0.0], [], [[0], [1], [2]])),
        Case("no loss at all", (0.0, [0.5, 0.25], [(0, 1, 1.0)], [[0], [1], [0, 1]])),
        Case("a group twice", (1.5, [0.25, 0.5, 1.0], [(0, 1, 0.75)], [[0, 1], [2], [0, 1]])),
        Case("a small rise of a large loss", (4096.0, [2**-20, 0.5, 2**-18], [], [[0], [1], [2]])),
        _case(fixed, "257 channels", many, [[i] for i in range(many)]),
        _case(fixed, "a group of 257 channels", many, [list(range(many)), [3]]),
        _case(rng, "fresh 1", 6, [[0, 3], [1, 4], [2, 5]]),
        _case(rng, "fresh 2", 7, [[6], [5, 0], [1, 2, 3]], public=False),
    ]


EXERCISE = Exercise(
    id="pruning-leave_one_out",
    title="What is missed when it is gone",
    kind="kernel",
    points=3,
    minutes=12,
    entries=("importance",),
    cases=cases,
    reference=reference,
    observe=observe,
    compare=Tolerance(rtol=1e-9, atol=1e-9, why="differences of losses in float64"),
    misconceptions=tuple(wrong),
    hints=(
        "How many passes does it take for n groups? One of them silences nothing.",
        "Call loss([]) once, before everything else, and loss(group) once for every group.",
        "The importance of a group is loss(group) − loss([]).",
    ),
    recall=(
        "What does leave one out cost for the 32 heads of a layer, and what would it miss?",
        "33 passes; and that two heads may stand in for each other, so that only both are missed.",
    ),
)
