"""Nearly right answers to the exercises of speculative decoding that go wrong on small
probabilities, short times, long drafts and long prompts: a fixed case refuses each. And right ones
that a case must not refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from exercise_tools import namespace_of, refused_by_a_fixed_case, right_answers

from twophase.checks import registry
from twophase.checks.answer import LocalAnswer
from twophase.checks.judge import Bench
from twophase.checks.misconceptions import replaced
from twophase.checks.speculative_decoding import (
    _rule,
    choose,
    expected,
    rollback,
    slower,
    snippet,
    verify,
    verify_price,
)

SMALL = [
    ("target[token] / draft[token]", "target[token] / max(draft[token], 1e-6)"),
    ("target[token] / draft[token]", "target[token] / max(draft[token], 1e-8)"),
    (
        "choose(residual(target, draft))",
        "choose(residual(target, draft) if sum(left_over(target, draft)) > 1e-8 else target)",
    ),
    (
        "choose(residual(target, draft))",
        "choose(residual(target[:1024], draft[:1024]) if sum(left_over(target[:1024],"
        " draft[:1024])) else target)",
    ),
]


@pytest.mark.parametrize(("part", "other"), SMALL)
def test_small_probabilities_and_late_tokens_are_met(
    part: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "left_over", _rule.left_over, raising=False)
    nearly = replaced(verify.reference, {part: other})
    refused_by_a_fixed_case("speculative_decoding-verify", {"verify": nearly})

    def one(target, draft, token, choose):  # type: ignore[no-untyped-def]
        said = nearly([target, target], [draft], [token], choose)
        return len(said) == 2, said[0]  # draws once more than it has to: the law is the same

    refused_by_a_fixed_case("speculative_decoding-accept", {"judge_token": one})


def _snippet_with(**functions: object) -> dict[str, object]:
    names = "expose", "harmless", "speculate_once"
    return {name: functions.get(name, getattr(snippet, name)) for name in names}


@pytest.mark.parametrize(
    "parts",
    [
        {"choose(draft(prompt + drafted)[-1])": "choose(draft((prompt + drafted)[-64:])[-1])"},
        {"choose(target_probs[k])": "choose(target_probs[k - 1 if k > 3 else k])"},
        {"/ draft_probs[i][token]": "/ max(draft_probs[i][token], 1e-6)"},
    ],
)
def test_long_drafts_and_prompts_are_met_by_the_repaired_code(parts: dict[str, str]) -> None:
    answer = _snippet_with(speculate_once=replaced(snippet.speculate_once, parts))
    refused_by_a_fixed_case("speculative_decoding-snippet", answer)


def test_an_input_shows_the_fault_though_the_laws_behind_its_prompt_are_the_same() -> None:
    def expose() -> list[dict[str, object]]:
        even = [0.5, 0.5]
        return [{"prompt": [0, 1], "target": [[0.9, 0.1], even], "draft": [even, even]}]

    exercise = registry.load("speculative_decoding-snippet")
    verdict = Bench(exercise).judge(LocalAnswer(_snippet_with(expose=expose)))
    assert verdict.status == "right"


NEARLY: dict[str, tuple[str, Callable[..., Any], dict[str, str]]] = {
    "products below a limit are none": (
        "per_call",
        expected.reference,
        {"        kept += reached": "        kept += reached\n        if reached < 1e-6: break"},
    ),
    "a small product is none": (
        "per_call",
        expected.reference,
        {'"all": reached': '"all": reached if reached > 1e-9 else 0.0'},
    ),
    "what is wasted, rounded": (
        "per_call",
        expected.reference,
        {"len(acceptances) - kept": "round(len(acceptances) - kept, 6)"},
    ),
    "bfloat16 by way of float16": (
        "keep",
        rollback.reference,
        {
            "return new,": "return"
            " new.half().to(cache.dtype) if cache.dtype == torch.bfloat16 else new,"
        },
    ),
    "every fourth length of a long draft": (
        "choose",
        choose.reference,
        {"rate > best_rate": "rate > best_rate and (gamma < 8 or gamma % 4 == 0)"},
    ),
    "ends at a poor place": (
        "choose",
        choose.reference,
        {"rate > best_rate": 'rate > best_rate and min(draft["acceptances"][:gamma]) > 0.05'},
    ),
    "takes a first place for granted": (
        "choose",
        choose.reference,
        {"draft and d.fits": 'draft and max(x["acceptances"][0] for x in drafts) and d.fits'},
    ),
    "whole kibibytes": (
        "verify_price",
        verify_price.reference,
        {"(weight_bytes + B * cache_bytes)": "((weight_bytes + B * cache_bytes) // 1024 * 1024)"},
    ),
}


@pytest.mark.parametrize("what", NEARLY)
def test_small_and_long_inputs_are_met(what: str) -> None:
    entry, reference, parts = NEARLY[what]
    slug = {"per_call": "expected", "keep": "rollback"}.get(entry, entry)
    answer = {entry: replaced(reference, parts)}
    refused_by_a_fixed_case(f"speculative_decoding-{slug}", answer)


@pytest.mark.parametrize(
    "parts",
    [
        {"< tokens * step_s": "< tokens * step_s - 1e-9"},
        {"< tokens * step_s": "< tokens * step_s - 1e-12"},
        {"< tokens * step_s": "<= tokens * step_s + 1e-12 * bool(calls)"},
        {'+ c["verify_s"]': '+ round(c["verify_s"], 6)'},
        {"< tokens * step_s": "< round(tokens / max(len(calls), 1), 3) * len(calls) * step_s"},
    ],
)
def test_logs_of_short_times_and_close_sums_are_met(
    parts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nearly = replaced(slower.faster, parts)
    monkeypatch.setattr(slower, "nearly", nearly, raising=False)
    calls = "faster(calls, step_s)", "faster(calls[1:]", 'faster([{**c, "d', 'faster([{**c, "v'
    swapped = {f"if {call}": f"if {call.replace('faster', 'nearly')}" for call in calls}
    answer = {"diagnose": replaced(slower.reference, swapped)}
    refused_by_a_fixed_case("speculative_decoding-slower", answer)


@pytest.mark.parametrize("slug", ["accept", "verify"])
def test_probabilities_may_pass_through_float32(slug: str) -> None:
    """Laws in float32, and everything computed from them, too."""
    (entry,) = registry.load(f"speculative_decoding-{slug}").entries
    right = namespace_of(right_answers(f"speculative_decoding-{slug}")[0])[entry]

    def rounded(target, draft, *rest):  # type: ignore[no-untyped-def]
        return right(np.float32(target).tolist(), np.float32(draft).tolist(), *rest)

    verdict = Bench(registry.load(f"speculative_decoding-{slug}")).judge(
        LocalAnswer({entry: rounded})
    )
    assert verdict.status == "right"
