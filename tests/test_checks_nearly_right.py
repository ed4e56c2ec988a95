"""Answers that are wrong at one edge only, as people write them: a fixed case refuses each,
whatever the seed. Those that have a name are misconceptions of their exercise; these have none."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from twophase.checks import registry
from twophase.checks.answer import LocalAnswer
from twophase.checks.judge import Bench
from twophase.checks.misconceptions import replaced

# what is wrong about it: the exercise, and the edit of its reference
NEARLY_RIGHT: dict[str, tuple[str, dict[str, str]]] = {
    "hidden keys have a score of -150": (
        "sharding-heads",
        {"masked_fill(hidden, -math.inf)": "masked_fill(hidden, -150.0)"},
    ),
    "scores end at 88": (
        "sharding-heads",
        {"scores.masked_fill(hidden": "scores.clamp(max=88.0).masked_fill(hidden"},
    ),
    "hidden keys have a score of -10,000": (
        "continuous_batching-ragged",
        {"masked_fill(hidden, -math.inf)": "masked_fill(hidden, -10_000.0)"},
    ),
    "the first prompt is read in parts whatever is said": (
        "continuous_batching-step",
        {"and not chunked)": "and not chunked and made)"},
    ),
    "what is known is not looked behind": (
        "paging-prefix",
        {
            "            self.found.setdefault": (
                "            if self.found.get(self.key(tokens, i)) == table[i]:\n"
                "                break\n"
                "            self.found.setdefault"
            )
        },
    ),
    "only two can share": (
        "paging-counts_log",
        {'what == "write" and n > 1': 'what == "write" and n == 2'},
    ),
}


@pytest.mark.parametrize("seed", [0, 1, 3])
@pytest.mark.parametrize("name", NEARLY_RIGHT)
def test_a_fixed_case_refuses_what_is_wrong_at_one_edge(name: str, seed: int) -> None:
    exercise_id, edit = NEARLY_RIGHT[name]
    exercise = registry.load(exercise_id)
    module: Any = importlib.import_module(f"twophase.checks.{exercise_id.replace('-', '.')}")
    right = getattr(module, "reference", None) or module.Right
    (entry,) = exercise.entries
    assert Bench(exercise, seed).judge(LocalAnswer({entry: right})).right
    verdict = Bench(exercise, seed).judge(LocalAnswer({entry: replaced(right, edit)}))
    assert verdict.status == "wrong"
    assert any(not o.right and not o.case.startswith(("fresh", "log ")) for o in verdict.outcomes)
