"""Answers that are right but for one edge: a fixed case of the exercise refuses each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from exercise_tools import refused_by_a_fixed_case

from twophase.checks.continuous_batching import chart
from twophase.checks.misconceptions import replaced
from twophase.checks.paging import admit, evict
from twophase.checks.sharding import length, which_layout

IDLE = 'any("" in row[:last] for row in chart)'
TAKES = "            n_free -= needed\n"
NEARLY_RIGHT: dict[str, tuple[str, Callable[..., Any], dict[str, str]]] = {
    "64 slots looked through for an empty one": (
        "chart_fault",
        chart.reference,
        {IDLE: IDLE.replace("in chart", "in chart[:64]")},
    ),
    "block 0 is nobody's child": (
        "evict",
        evict.reference,
        {'{b["parent"] for b in left.values()}': '{b["parent"] for b in left.values() if b["id"]}'},
    ),
    "the first prompt takes no block if it fills but one": (
        "admit",
        admit.reference,
        {TAKES: TAKES.replace("needed", "needed if i or needed > 1 else 0")},
    ),
    "weights gathered, something sent": (
        "diagnose",
        which_layout.reference,
        {'ops == {"all_gather"}': 'ops - {"send", "receive"} == {"all_gather"}'},
    ),
}


@pytest.mark.parametrize("name", NEARLY_RIGHT)
def test_a_fixed_case_refuses_what_is_nearly_right(name: str) -> None:
    entry, right, parts = NEARLY_RIGHT[name]
    *_, topic, slug = right.__module__.split(".")
    refused_by_a_fixed_case(f"{topic}-{slug}", {entry: replaced(right, parts)})


@pytest.mark.parametrize("cut", [".clamp(max=160)", ".clamp(min=-160)"])
def test_scores_cut_off_before_200_are_refused(cut: str) -> None:
    parts = {"m = scores": f"scores = scores{cut}\n    m = scores"}
    bring = replaced(length.own_part, parts)
    refused_by_a_fixed_case(
        "sharding-length",
        {"decode_rank": lambda q, k, v, gather: length.merged(gather(bring(q, k, v)))},
    )
