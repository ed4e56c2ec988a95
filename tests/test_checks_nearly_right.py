"""Answers that are right but for one edge: a fixed case of the exercise refuses each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from exercise_tools import refused_by_a_fixed_case

from twophase.checks.continuous_batching import chart, ragged, step
from twophase.checks.misconceptions import replaced
from twophase.checks.paging import admit, counts_log, evict, prefix
from twophase.checks.sharding import heads, length, which_layout
from twophase.checks.speculative_decoding import accept, verify, verify_price

IDLE = 'any("" in row[:last] for row in chart)'
KNOWN = "            self.found.setdefault"
TAKES = "            n_free -= needed\n"
LEFT_OVER = "[max(0.0, t - d) for t, d in zip(target_probs, draft_probs, strict=True)]"
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
    "what is known is not looked behind": (
        "PrefixCache",
        prefix.Right,
        {
            KNOWN: (
                "            if self.found.get(self.key(tokens, i)) == table[i]:\n"
                f"                break\n{KNOWN}"
            )
        },
    ),
    "only two can share": (
        "diagnose",
        counts_log.reference,
        {'what == "write" and n > 1': 'what == "write" and n == 2'},
    ),
    "hidden keys have a score of -150": (
        "attention_rank",
        heads.reference,
        {"masked_fill(hidden, -math.inf)": "masked_fill(hidden, -150.0)"},
    ),
    "scores end at 88": (
        "attention_rank",
        heads.reference,
        {"scores.masked_fill(hidden": "scores.clamp(max=88.0).masked_fill(hidden"},
    ),
    "hidden keys have a score of -10,000": (
        "ragged_attention",
        ragged.reference,
        {"masked_fill(hidden, -math.inf)": "masked_fill(hidden, -10_000.0)"},
    ),
    "the first prompt is read in parts whatever is said": (
        "schedule",
        step.reference,
        {"and not chunked)": "and not chunked and made)"},
    ),
    "weights gathered, something sent": (
        "diagnose",
        which_layout.reference,
        {'ops == {"all_gather"}': 'ops - {"send", "receive"} == {"all_gather"}'},
    ),
    "draft probabilities of 1 % at least": (
        "judge_token",
        accept.reference,
        {"/ draft_probs[token]": "/ max(draft_probs[token], 1e-2)"},
    ),
    "nothing left over below 1 %": (
        "judge_token",
        accept.reference,
        {
            LEFT_OVER: LEFT_OVER.replace("max(0.0, t - d)", "(t - d) * (t - d > 1e-2)"),
            "normalized(left)": "normalized(left if any(left) else target_probs)",
        },
    ),
    "draft probabilities of 1 % at least, in a whole draft": (
        "verify",
        verify.reference,
        {"/ draft[token]": "/ max(draft[token], 1e-2)"},
    ),
    "nothing left over below 0.1 %, in a whole draft": (
        "verify",
        verify.reference,
        {
            "residual(target, draft)": (
                "residual([t if abs(t - d) > 1e-3 else d for t, d in zip(target, draft)], draft)"
                " if max(t - d for t, d in zip(target, draft)) > 1e-3 else target"
            )
        },
    ),
    "no token drafted, none computed": (
        "verify_price",
        verify_price.reference,
        {
            "max(reading, (gamma + 1) * computing)": (
                "max(reading, (gamma + 1) * computing) if gamma else reading"
            )
        },
    ),
    "at most 99 tokens drafted": (
        "verify_price",
        verify_price.reference,
        {"(gamma + 1) * computing": "min(gamma + 1, 100) * computing"},
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
