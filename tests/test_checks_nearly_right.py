"""Answers that are right but for one edge: a fixed case of the exercise refuses each of them. And
answers that are right and round elsewhere than the reference: no seed refuses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from exercise_tools import refused_by_a_fixed_case

from twophase.checks import registry
from twophase.checks.answer import LocalAnswer
from twophase.checks.arithmetic_intensity._merges import expose
from twophase.checks.continuous_batching import chart, ragged, step
from twophase.checks.grouped_query_attention import choose as choose_heads
from twophase.checks.grouped_query_attention import one_read
from twophase.checks.judge import Bench
from twophase.checks.kv_cache import cached_attention, rope_cached
from twophase.checks.latent_attention import attend
from twophase.checks.local_attention import ring as ring_cache
from twophase.checks.local_attention import ring_log, step_bytes
from twophase.checks.misconceptions import replaced
from twophase.checks.paging import admit, counts_log, evict, prefix
from twophase.checks.sharding import choose as choose_layout
from twophase.checks.sharding import collective_time, heads, length, mlp, ring, which_layout
from twophase.checks.speculative_decoding import accept, verify, verify_price
from twophase.checks.two_phases import slow_log

IDLE = 'any("" in row[:last] for row in chart)'
KNOWN = "            self.found.setdefault"
TAKES = "            n_free -= needed\n"
LEFT_OVER = "[max(0.0, t - d) for t, d in zip(target_probs, draft_probs, strict=True)]"
MISSES_OLDEST = '"short" if missing == oldest else "lost"'
SEES_LATER = "any(s > p for p, seen in queries for s in seen)"
SUPERSETS = "all(oldest[p] and m >= oldest[p] or not m for p, m in missing.items())"
COUNTS = "{p: len(m) for p, m in missing.items()} == {p: len(m) for p, m in oldest.items()}"
HOPS = "n_chips // 2 if closed else n_chips - 1"
Parts = tuple[str, Callable[..., Any], dict[str, str]]  # an entry, the reference, replaced in it
NEARLY_RIGHT: dict[str, Parts] = {
    "values handed on in half precision": (
        "turn",
        rope_cached.reference,
        {"_turn(k, angles), v": "_turn(k, angles), v.half().to(v.dtype)"},
    ),
    "values handed on a little larger": (
        "turn",
        rope_cached.reference,
        {"_turn(k, angles), v": "_turn(k, angles), v * 1.0005"},
    ),
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
    "the middle loss for the mean": (
        "choose",
        choose_heads.reference,
        {"_mean": "_median"},
    ),
    "a margin wider by a thousandth": (
        "choose",
        choose_heads.reference,
        {'budget["margin"]': '1.001 * budget["margin"]'},
    ),
    "the oldest key and more are missing": (
        "diagnose",
        ring_log.reference,
        {MISSES_OLDEST: MISSES_OLDEST.replace("missing == oldest", SUPERSETS)},
    ),
    "one key is missing, whichever": (
        "diagnose",
        ring_log.reference,
        {MISSES_OLDEST: MISSES_OLDEST.replace("missing == oldest", COUNTS)},
    ),
    "a window of one is never short": (
        "diagnose",
        ring_log.reference,
        {MISSES_OLDEST: MISSES_OLDEST.replace("missing", "window > 1 and missing")},
    ),
    "the future ends with the window": (
        "diagnose",
        ring_log.reference,
        {SEES_LATER: SEES_LATER.replace("s > p", "p + window > s > p")},
    ),
    "the last slot holds the latest key": (
        "diagnose",
        ring_log.reference,
        {SEES_LATER: "any(row[-1:] > [p] for p, row in enumerate(s for b in passes for s in b))"},
    ),
    "4,096 chips": (
        "collective_s",
        collective_time.reference,
        {HOPS: HOPS.replace("n_chips", "min(n_chips, 4096)")},
    ),
    "ranks of 64 heads": (
        "attention_rank",
        heads.reference,
        {"heads = range(": "rank = min(rank, 63)\n    heads = range("},
    ),
    "attention computed alone, the sum not used": (
        "attention_rank",
        heads.reference,
        {
            "return all_reduce(part)": (
                "all_reduce(part)\n"
                "    ranks = [reference(q, k, v, w_o, r, n, lambda own: own) for r in range(n)]\n"
                "    return sum(ranks)"
            )
        },
    ),
    "an MLP computed alone, the sum not used": (
        "mlp_rank",
        mlp.reference,
        {
            "return all_reduce(part) + bias": (
                "all_reduce(part)\n"
                "    return functional.silu(x @ w_gate) * (x @ w_up) @ w_down + bias"
            )
        },
    ),
    "scores end at 195": (
        "attention_rank",
        heads.reference,
        {"scores.masked_fill(hidden": "scores.clamp(max=195.0).masked_fill(hidden"},
    ),
    "scores begin at -195": (
        "attention_rank",
        heads.reference,
        {"scores.masked_fill(hidden": "scores.clamp(min=-195.0).masked_fill(hidden"},
    ),
    "numbers of two bytes and more": (
        "diagnose",
        which_layout.reference,
        {'m["bytes"]': 'max(2, m["bytes"])'},
    ),
    "two bytes and more a number moved": (
        "step_bytes",
        step_bytes.reference,
        {"values * bytes_per_value": "values * max(2, bytes_per_value)"},
    ),
    "older keys within 128 positions": (
        "diagnose",
        ring_log.reference,
        {"s <= p - window}": "s <= p - min(window, 128)}"},
    ),
    "whole numbers summed": (
        "ring_all_reduce",
        ring.reference,
        {"return have": "return [x.round() for x in have]"},
    ),
    "chunks no longer than the first": (
        "ring_all_reduce",
        ring.reference,
        {"return have": "return [x[: len(have[0])] for x in have]"},
    ),
    **{
        f"positions begin again after {n:,}": (
            "turn",
            rope_cached.reference,
            {"_positions(q, n_cached)": f"_positions(q, n_cached) % {n}"},
        )
        for n in (160_000, 200_000, 2**18, 2**20)
    },
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


def test_a_margin_measured_from_the_largest_number_of_heads_is_refused() -> None:
    wrong = {"choose": choose_heads.margin_from_the_largest}
    refused_by_a_fixed_case("grouped_query_attention-choose", wrong)


def slowest_within(share: float) -> dict[str, Any]:
    """An answer to sharding-choose: of the layouts that take at most `share` of the best one's time
    the slowest, with the times of all."""

    def choose(*given: dict[str, Any]) -> choose_layout.Choice:
        _, times = choose_layout.chosen()(*given)
        near = [t for t in times if times[t] <= share * min(times.values())]
        return max(near, key=times.__getitem__, default=None), times

    return {"choose": choose}


def test_a_layout_is_near_enough_at_5_percent_and_not_beyond() -> None:
    refused_by_a_fixed_case("sharding-choose", slowest_within(1.08))
    verdict = Bench(registry.load("sharding-choose")).judge(LocalAnswer(slowest_within(1.045)))
    assert verdict.right, verdict.message


def test_numbers_of_two_bytes_in_every_model_are_refused() -> None:
    def choose(model: dict[str, Any], *given: dict[str, Any]) -> choose_layout.Choice:
        return choose_layout.chosen()({**model, "bytes": 2}, *given)

    refused_by_a_fixed_case("sharding-choose", {"choose": choose})


def test_a_cache_cut_into_whole_positions_is_refused() -> None:
    wrong = {m.slug: m.answer for m in choose_layout.EXERCISE.misconceptions}
    refused_by_a_fixed_case("sharding-choose", {"choose": wrong["whole_positions"]})


def test_a_median_of_one_gap_more_is_refused() -> None:
    more = replaced(slow_log.reference, {"10 * median(gaps)": "10 * median(gaps + gaps[:1])"})
    verdict = Bench(slow_log.EXERCISE).judge(LocalAnswer({"diagnose": more}))
    wrong = [outcome.case for outcome in verdict.outcomes if not outcome.right]
    assert all("one in the middle of 25" in case or "two in the middle" in case for case in wrong)
    assert wrong


DIVIDED = {
    "cached_attention": 'torch.einsum("btnh,bsnh->bnts", q, k) / math.sqrt(H)',
    "one_read": 'torch.einsum("tgh,sh->tgs", group, keys) / math.sqrt(H)',
    "ragged": 'torch.einsum("tnh,snh->nts", q[row], keys) / math.sqrt(q.shape[2])',
    "attend": "(scale * (scores + rotated))",
}
POWERS_OF_2 = "(seen - seen.amax(-1, keepdim=True)).exp2()"
LOG2_E = "1.4426950408889634"
ALSO_RIGHT: dict[str, Parts] = {
    "SDPA with a mask for each sequence, which scales q and k by the fourth root of H": (
        "cached_attention",
        cached_attention.reference,
        {
            'torch.einsum("bnts,bsnh->btnh", weights, v)': (
                "torch.nn.functional.scaled_dot_product_attention("
                "*(x.transpose(1, 2) for x in (q, k, v)), attn_mask=~hidden[None]).transpose(1, 2)"
            )
        },
    ),
    "q and k scaled by the fourth root of H": (
        "cached_attention",
        cached_attention.reference,
        {
            DIVIDED["cached_attention"]: (
                'torch.einsum("btnh,bsnh->bnts", q * H**-0.25, k * H**-0.25)'
            )
        },
    ),
    "a softmax in powers of 2": (
        "cached_attention",
        cached_attention.reference,
        {
            DIVIDED["cached_attention"]: (
                f'torch.einsum("btnh,bsnh->bnts", q, k) * ({LOG2_E} / math.sqrt(H))'
            ),
            "seen.softmax(-1)": POWERS_OF_2,
            "weights, v)": "weights / weights.sum(-1, keepdim=True), v)",
        },
    ),
    "a softmax in powers of 2, KV head by KV head": (
        "shared_attention",
        one_read.reference,
        {
            DIVIDED["one_read"]: (
                f'torch.einsum("tgh,sh->tgs", group, keys) * ({LOG2_E} / math.sqrt(H))'
            ),
            "scores.softmax(-1)": POWERS_OF_2.replace("seen", "scores"),
            "weights, values)": "weights / weights.sum(-1, keepdim=True), values)",
        },
    ),
    "a softmax in powers of 2, on latents": (
        "attend",
        attend.reference,
        {
            DIVIDED["attend"]: f"(scale * {LOG2_E} * (scores + rotated))",
            "seen.softmax(-1)": POWERS_OF_2,
            "weights, latent)": "weights / weights.sum(-1, keepdim=True), latent)",
        },
    ),
    "q scaled, in a row of many requests": (
        "ragged_attention",
        ragged.reference,
        {DIVIDED["ragged"]: 'torch.einsum("tnh,snh->nts", q[row] * q.shape[2] ** -0.5, keys)'},
    ),
}


@pytest.mark.parametrize("name", ALSO_RIGHT)
def test_what_rounds_elsewhere_is_right_at_every_seed(name: str) -> None:
    entry, right, parts = ALSO_RIGHT[name]
    *_, topic, slug = right.__module__.split(".")
    answer = LocalAnswer({entry: replaced(right, parts)})
    for seed in range(4):
        verdict = Bench(registry.load(f"{topic}-{slug}"), seed).judge(answer)
        assert verdict.right, (seed, verdict.message)


Weigh = Callable[[torch.Tensor, torch.Tensor], Any]
WEIGHTS: dict[str, Weigh] = {
    "exp(lse − logaddexp)": lambda a, b: [(x - torch.logaddexp(a, b)).exp() for x in (a, b)],
    "softmax of a stack": lambda a, b: torch.stack([a, b]).softmax(0),
    "two sigmoids": lambda a, b: (torch.sigmoid(a - b), torch.sigmoid(b - a)),
    "1 / (1 + exp)": lambda a, b: (1 / (1 + (b - a).exp()), 1 / (1 + (a - b).exp())),
}
WEIGHTS_LOST: dict[str, Weigh] = {
    "1 − exp(lse_a − lse)": lambda a, b: (w := (a - torch.logaddexp(a, b)).exp(), 1 - w),
    "1 − exp(lse_b − lse)": lambda a, b: (1 - (w := (b - torch.logaddexp(a, b)).exp()), w),
}


def merges_by(weigh: Weigh) -> dict[str, Any]:
    """An answer to arithmetic_intensity-merge."""

    def merge(out_a: Any, lse_a: Any, out_b: Any, lse_b: Any) -> tuple[Any, Any]:
        w_a, w_b = (w[:, None].nan_to_num(0.0) for w in weigh(lse_a, lse_b))
        return w_a * out_a + w_b * out_b, torch.logaddexp(lse_a, lse_b)

    return {"merge": merge, "expose": expose}


@pytest.mark.parametrize("name", WEIGHTS)
def test_every_stable_way_to_weigh_two_parts_is_right(name: str) -> None:
    for seed in range(4):
        bench = Bench(registry.load("arithmetic_intensity-merge"), seed)
        verdict = bench.judge(LocalAnswer(merges_by(WEIGHTS[name])))
        assert verdict.right, (seed, verdict.message)


@pytest.mark.parametrize("name", WEIGHTS_LOST)
def test_a_weight_that_is_1_less_the_other_is_refused(name: str) -> None:
    refused_by_a_fixed_case("arithmetic_intensity-merge", merges_by(WEIGHTS_LOST[name]))


class _KeepsTheCallersBlock(ring_cache.Right):
    """A block that fills the window becomes the buffer, and the next token writes into it."""

    def append(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        window = self.keys.shape[1]
        found = super().append(k, v)
        if k.shape[1] == window and self.length % window == 0:
            self.keys, self.values = k, v
        return found


def test_a_ring_that_writes_into_what_it_was_given_earlier_is_refused() -> None:
    verdict = Bench(registry.load("local_attention-ring")).judge(
        LocalAnswer({"RingCache": _KeepsTheCallersBlock})
    )
    assert verdict.status == "wrong"
    assert "your code went on to change what it had been given" in verdict.message
