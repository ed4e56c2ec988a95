"""Answers to the exercises of chapters 14 to 16 that are right but for one edge, each refused by a
fixed case, and right ones whose numbers floats round to the wrong side of a limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from exercise_tools import namespace_of, refused_by_a_fixed_case, right_answers

from twophase.checks import registry
from twophase.checks.answer import LocalAnswer
from twophase.checks.continuous_batching import (
    admit,
    burstiness,
    chart,
    finishing,
    p99,
    padding,
    pass_time,
    starves,
    step,
    wait,
)
from twophase.checks.judge import Bench
from twophase.checks.misconceptions import replaced
from twophase.checks.paging import block_size, counts_log, preempt, prefix
from twophase.checks.speculative_decoding import (
    choose,
    draft_length,
    lookup,
    loop,
    rollback,
    slower,
    verify,
)

Parts = tuple[str, Callable[..., Any], dict[str, str]]  # an entry, the reference, replaced in it

ALL_BEFORE = "tuple(tokens[: (i + 1) * self.block_size])"
HASH = "(i, reduce(lambda h, t: {}, tokens[: (i + 1) * self.block_size], 7))"
OTHERS_BEFORE = "sorted(tuple(tokens[j * n : (j + 1) * n]) for j in range(i))"
CALLS = "faster(calls, step_s)"
PLAIN_RATE = "d.rate(target, machine, d.NOTHING, B, 0)"
ROUND_S = "gamma * d.pass_s(draft, machine, B, 1) + d.pass_s(target, machine, B, gamma + 1)"


def knows(by: str) -> Parts:
    """A prefix cache that knows block i by something else than all tokens up to its end."""
    reduce = "(lambda reduce: {})(__import__('functools').reduce)"
    made = reduce.format(by) if "reduce" in by else by
    return "PrefixCache", prefix.Right, {ALL_BEFORE: made}


NEARLY_RIGHT: dict[str, Parts] = {
    # chapter 14
    **{
        f"matches of {n} tokens at most": (
            "lookup",
            lookup.reference,
            {"min(longest, len(text) - 1)": f"min(longest, len(text) - 1, {n})"},
        )
        for n in (8, 32, 100, 256)
    },
    "tokens of 16 bits": (
        "lookup",
        lookup.reference,
        {"in range(min": "in (text := [t % 65_536 for t in text]) and range(min"},
    ),
    "no match of zeros": (
        "lookup",
        lookup.reference,
        {"== end:": "== end and any(end):"},
    ),
    "better by one in 10,000 is no better": (
        "best_length",
        draft_length.reference,
        {"rate > best_rate": "rate > 1.0001 * best_rate"},
    ),
    "no token takes a million seconds": (
        "best_length",
        draft_length.reference,
        {"best, best_rate = 0, 0.0": "best, best_rate = 0, 1e-6"},
    ),
    "the first 1,000 calls": (
        "best_length",
        draft_length.reference,
        {"for n in kept) / len(kept)": "for n in kept[:1000]) / len(kept[:1000])"},
    ),
    "a first call warms up only if its verification takes long": (
        "diagnose",
        slower.reference,
        {"if faster(calls[1:]": 'if calls[0]["verify_s"] > step_s and faster(calls[1:]'},
    ),
    "as fast, but for one in 100,000": (
        "diagnose",
        slower.reference,
        {f"if {CALLS}": "if faster(calls, 0.99999 * step_s)"},
    ),
    "the first 999 calls": (
        "diagnose",
        slower.reference,
        {f"if {CALLS}": f"if {CALLS.replace('calls', 'calls[:999]')}"},
    ),
    "99 drafts": ("choose", choose.reference, {"d.options(drafts)": "d.options(drafts[:99])"}),
    "no token takes a million seconds, with a draft or without": (
        "choose",
        choose.reference,
        {PLAIN_RATE: f"max(1e-6, {PLAIN_RATE})"},
    ),
    "times in tenths of a millisecond": (
        "choose",
        choose.reference,
        {
            PLAIN_RATE: "B / round(d.pass_s(target, machine, B, 1), 4)",
            "d.rate(target, machine, draft, B, gamma)": (
                f"B * d.tokens_per_call(draft['acceptances'], gamma) / round({ROUND_S}, 4)"
            ),
        },
    ),
    "64 tokens drafted at most": (
        "choose",
        choose.reference,
        {"if draft and": "if draft and gamma <= 64 and"},
    ),
    "64 kept at most": (
        "keep",
        rollback.reference,
        {"for place in places)]": "for place in places[:64])]"},
    ),
    "299 tokens judged": (
        "verify",
        verify.reference,
        {"enumerate(drafted)": "enumerate(drafted[:299])"},
    ),
    "nothing drafted behind 500 tokens": (
        "speculate",
        loop.reference,
        {"n_new - len(said) - 1)": "n_new - len(said) - 1) * (len(said) < 500)"},
    ),
    "a draft sees 1,000 tokens": (
        "speculate",
        loop.reference,
        {"draft(prompt + said, n)": "draft((prompt + said)[-1000:], n)"},
    ),
    # chapter 15
    "those that decode in the order of their ids": (
        "schedule",
        step.reference,
        {"for r in decoding +": 'for r in sorted(decoding, key=lambda r: r["id"]) +'},
    ),
    "those that wait in the order of their ids": (
        "schedule",
        step.reference,
        {"for r in waiting[:free]": 'for r in sorted(waiting, key=lambda r: r["id"])[:free]'},
    ),
    "nobody has id 0": ("schedule", step.reference, {"if n:": 'if n and r["id"]:'}),
    "nobody who joins has id 0": (
        "schedule",
        step.reference,
        {"if n == 0 or": 'if r["id"] == 0 or n == 0 or'},
    ),
    "a budget of 100,000 at most": (
        "schedule",
        step.reference,
        {"    decoding =": "    budget = min(budget, 100_000)\n    decoding ="},
    ),
    "999 decode": ("schedule", step.reference, {"decoding + reading": "decoding[:999] + reading"}),
    "999 are read": (
        "schedule",
        step.reference,
        {"decoding + reading": "decoding + reading[:999]"},
    ),
    "999 join": ("schedule", step.reference, {"waiting[:free]": "waiting[: min(free, 999)]"}),
    "moves to the next slot only": (
        "chart_fault",
        chart.reference,
        {
            "len({slot for _, slot in found}) > 1": (
                "any(abs(a - b) == 1 for _, a in found for _, b in found)"
            )
        },
    ),
    "moves in the next step only": (
        "chart_fault",
        chart.reference,
        {
            "len({slot for _, slot in found}) > 1": (
                "any(a[1] != b[1] and abs(a[0] - b[0]) == 1 for a in found for b in found)"
            )
        },
    ),
    "no step, no fault": (
        "chart_fault",
        chart.reference,
        {"    places:": '    if not chart[0]:\n        return "fine"\n    places:'},
    ),
    "whole seconds of waiting": (
        "next_id",
        starves.next_id,
        {'now_s - r["arrival_s"] >=': 'int(now_s - r["arrival_s"]) >='},
    ),
    "milliseconds of waiting": (
        "next_id",
        starves.next_id,
        {'now_s - r["arrival_s"] >=': 'round(now_s - r["arrival_s"], 3) >='},
    ),
    "a second of patience at least": (
        "next_id",
        starves.next_id,
        {">= patience_s": ">= (patience_s and max(patience_s, 1))"},
    ),
    "nobody who waits has id 0": (
        "next_id",
        starves.next_id,
        {"min(waiting, key": 'min([r for r in waiting if r["id"]] or waiting, key'},
    ),
    "256 decode in a pass": (
        "diagnose_gaps",
        p99.reference,
        {
            "kept(passes, limit_s)": (
                'kept([{**e, "decoding": min(e["decoding"], 256)} for e in passes], limit_s)'
            )
        },
    ),
    "999 passes": (
        "diagnose_gaps",
        p99.reference,
        {"kept(passes, limit_s)": "kept(passes[:999], limit_s)"},
    ),
    "2,999 service times": (
        "mean_wait",
        wait.reference,
        {"    mean =": "    service_s = service_s[:2999]\n    mean ="},
    ),
    "as good as full": ("mean_wait", wait.reference, {"busy >= 1": "busy >= 0.9999"}),
    "2,999 times": (
        "burstiness",
        burstiness.reference,
        {"pairwise(times_s)": "pairwise(times_s[:2999])"},
    ),
    "2,999 rows": (
        "padding",
        padding.reference,
        {"    B =": "    prompts, answers = prompts[:2999], answers[:2999]\n    B ="},
    ),
    "399 requests of a pass": (
        "pass_time",
        pass_time.reference,
        {"sum(starts) *": "sum(starts[:399]) *"},
    ),
    "caches of 100,000 tokens": (
        "pass_time",
        pass_time.reference,
        {"sum(starts) *": "sum(min(start, 100_000) for start in starts) *"},
    ),
    "999 seats": ("finishing", finishing.reference, {"[0] * seats": "[0] * min(seats, 999)"}),
    # chapter 16
    "blocks alike and those before, in any order": knows(
        "(lambda n: (tuple(tokens[i * n : (i + 1) * n]), tuple(" + OTHERS_BEFORE + ")))"
        "(self.block_size)"
    ),
    "a block and the sixteen before": knows(
        "(i, tuple(tokens[max(0, i - 16) * self.block_size : (i + 1) * self.block_size]))"
    ),
    **{
        f"a hash: h · {m} + t": knows(HASH.format(f"(h * {m} + t) % 2**32"))
        for m in (31, 33, 131, 257, 1_000_003, 16_777_619)
    },
    "a sum, each token times its place": knows(
        "(i, sum(j * t for j, t in enumerate(tokens[: (i + 1) * self.block_size], 1)))"
    ),
    "prompts of 16 bits a token": knows(
        "tuple(t % 65_536 for t in tokens[: (i + 1) * self.block_size])"
    ),
    "256 sequences are remembered": (
        "PrefixCache",
        prefix.Right,
        {
            "        for i in range(len(tokens)": (
                "        if len(self.found) > 500:\n            self.found.clear()\n"
                "        for i in range(len(tokens)"
            )
        },
    ),
    "powers of two": (
        "choose",
        block_size.reference,
        {"max(sizes,": "max([z for z in sizes if z & (z - 1) == 0] or sizes,"},
    ),
    "64 sizes": ("choose", block_size.reference, {"max(sizes,": "max(sizes[:64],"}),
    "one holds what leaks": (
        "diagnose",
        counts_log.reference,
        {"any(n > 0 for": "any(n == 1 for"},
    ),
    **{
        f"{n} blocks": ("diagnose", counts_log.reference, {'e["block"]': f'e["block"] % {n}'})
        for n in (1000, 4096)
    },
    "1,000 events": ("diagnose", counts_log.reference, {"in events:": "in events[:1000]:"}),
    "as long, but for one in 50,000": (
        "give_way",
        preempt.reference,
        {"recompute_s <= swap_s": "recompute_s <= 1.00002 * swap_s"},
    ),
    "longer by one in 50,000 at least": (
        "give_way",
        preempt.reference,
        {"recompute_s <= swap_s": "recompute_s <= swap_s * (1 - (swap_s != recompute_s) / 5e4)"},
    ),
    "100,000 tokens": (
        "give_way",
        preempt.reference,
        {"n_tokens * token_flops": "min(n_tokens, 100_000) * token_flops"},
    ),
}


@pytest.mark.parametrize("name", NEARLY_RIGHT)
def test_a_fixed_case_refuses_what_is_nearly_right(name: str) -> None:
    entry, right, parts = NEARLY_RIGHT[name]
    *_, topic, slug = right.__module__.split(".")
    others = {"expose": starves.expose, "harmless": starves.harmless} if slug == "starves" else {}
    refused_by_a_fixed_case(f"{topic}-{slug}", {**others, entry: replaced(right, parts)})


def test_the_best_of_all_rules_of_thumb_is_refused() -> None:
    """Somebody who does not know which rule is right may try them all."""
    keys: tuple[Callable[[dict[str, int]], int], ...] = (
        lambda r: 0,
        lambda r: r["due_ms"],
        lambda r: r["read_ms"],
        lambda r: r["due_ms"] - r["read_ms"],
        lambda r: r["due_ms"] + r["read_ms"],
        lambda r: r["due_ms"] * r["read_ms"],
        lambda r: -r["due_ms"],
    )

    def tries_all(waiting: list[dict[str, int]]) -> list[int]:
        return max((admit.skipping(waiting, key) for key in keys), key=len)

    refused_by_a_fixed_case("continuous_batching-admit", {"admit": tries_all})


EVEN, UNEVEN = [[0.5, 0.5], [0.5, 0.5]], [[0.4, 0.6], [0.4, 0.6]]  # 0.1 apart, or a little less
THREE = [[0.9, 0.09, 1 - 0.9 - 0.09], [1 / 3] * 3, [1 / 3] * 3]  # 0.01, or a little less
ROUNDED: dict[str, dict[str, Any]] = {
    "a difference of 0.1 that hides": {
        "harmless": lambda: {"prompt": [0, 0], "target": UNEVEN, "draft": EVEN}
    },
    "a law that is wrong by 0.1": {
        "expose": lambda: [
            {"prompt": [1, 0], "target": [[0.4, 0.6], [0.5, 0.5]], "draft": EVEN},
        ]
    },
    "a probability of 0.01": {
        "harmless": lambda: {"prompt": [0, 0], "target": THREE, "draft": [[1 / 3] * 3] * 3}
    },
}


@pytest.mark.parametrize("name", ROUNDED)
def test_inputs_at_a_limit_are_not_lost_by_rounding(name: str) -> None:
    right = namespace_of(right_answers("speculative_decoding-snippet")[0])
    bench = Bench(registry.load("speculative_decoding-snippet"))
    verdict = bench.judge(LocalAnswer(right | ROUNDED[name]))
    assert verdict.right, verdict.message


NEAR = [[0.5, 0.5], [0.45, 0.55]]
MISSED: dict[str, tuple[dict[str, Any], str]] = {
    "wrong by 0.05 only": (
        {"expose": lambda: [{"prompt": [0, 1], "target": NEAR, "draft": EVEN}]},
        "wrong by 0.1 or more",
    ),
    "a difference of 0.05 only": (
        {"harmless": lambda: {"prompt": [1, 1], "target": NEAR, "draft": EVEN}},
        "differ by less than 0.1",
    ),
    "nine tokens": (
        {"harmless": lambda: {"prompt": [0] * 9, "target": UNEVEN, "draft": EVEN}},
        "2 to 8 tokens",
    ),
}


@pytest.mark.parametrize("name", MISSED)
def test_what_is_said_of_an_input_is_true_of_all_that_share_its_name(name: str) -> None:
    functions, said = MISSED[name]
    right = namespace_of(right_answers("speculative_decoding-snippet")[0])
    bench = Bench(registry.load("speculative_decoding-snippet"))
    verdict = bench.judge(LocalAnswer(right | functions))
    assert verdict.status == "wrong"
    assert said in verdict.message


def test_a_probability_that_is_a_sum_may_be_a_little_more_than_1() -> None:
    sums = {"target": [[1.0, 0.0]], "draft": [], "drafted": [], "law": [([0], 1 + 2**-52)]}
    right = namespace_of(right_answers("speculative_decoding-verifier_tests")[0])
    cases = right["verifier_tests"]()[:19]
    bench = Bench(registry.load("speculative_decoding-verifier_tests"))
    verdict = bench.judge(LocalAnswer({"verifier_tests": lambda: [*cases, sums]}))
    assert verdict.right, verdict.message
