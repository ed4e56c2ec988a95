"""Numbers as large as a task allows or a model has: a softmax without its maximum is refused in
float64 as well, and so are counts that 32 bits do not hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from exercise_tools import refused_by_a_fixed_case

from twophase.checks import registry
from twophase.checks.answer import LocalAnswer
from twophase.checks.arithmetic_intensity import _blockwise as blockwise
from twophase.checks.arithmetic_intensity import _merges as merges
from twophase.checks.continuous_batching import ragged
from twophase.checks.grouped_query_attention import one_read
from twophase.checks.judge import Bench
from twophase.checks.kv_cache import cached_attention
from twophase.checks.latent_attention import attend
from twophase.checks.misconceptions import replaced
from twophase.checks.mixture_of_experts import route
from twophase.checks.paging import attention
from twophase.checks.sharding import heads
from twophase.checks.two_phases import sampler

Tensor = torch.Tensor
Answers = dict[str, Callable[..., Any]]
HIDDEN = "scores.masked_fill(hidden, -math.inf)"


def _exp_over_sum(entry: str, right: Callable[..., Any], scores: str) -> Answers:
    """The right answer with exp over its sum in float64 for the softmax of `scores`."""
    e = f"{scores}.double().exp()"
    naive = f"({e} / {e}.sum(-1, keepdim=True)).to(torch.float32)"
    return {entry: replaced(right, {f"{scores}.softmax(-1)": naive})}


def _log_of_a_sum(logits: Tensor, temperature: float) -> Tensor:
    scaled = (logits / temperature).double()
    return scaled - scaled.exp().sum(-1, keepdim=True).log()


def _loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    taught, said = (_log_of_a_sum(x, temperature) for x in (teacher, student))
    return (taught.exp() * (taught - said)).sum(-1).mean() * temperature**2


def _sampled(logits: list[float], temperature: float, *filters: Any) -> int:
    """Probabilities in float64, as numpy makes them."""
    if temperature == 0:
        return sampler.reference(logits, temperature, *filters)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        e = np.exp(np.array(logits) / temperature)
        return sampler.reference(np.log(e / e.sum()).tolist(), 1.0, *filters)


def _updated(m: Tensor, l: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    new = torch.maximum(m, scores.amax(-1))
    old = torch.where(l > 0, l * m.double().exp(), 0.0)
    whole = (old + scores.double().exp().sum(-1)) / new.double().exp()
    return new, torch.where(new == -math.inf, 0.0, whole).float()


def _added(state: list[Tensor], scores: Tensor, v: Tensor) -> list[Tensor]:
    out, m, l = (x.double() for x in state)
    weights = scores.double().exp()
    return [out + weights @ v.double(), m, l + weights.sum(-1)]


def _finished(state: list[Tensor]) -> Tensor:
    return blockwise.finish(state).float()


def _merged(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> tuple[Tensor, Tensor]:
    a, b = lse_a.double().exp()[:, None], lse_b.double().exp()[:, None]
    out = torch.where(a + b > 0, (a * out_a + b * out_b) / (a + b), 0.0)
    return out.float(), (a + b)[:, 0].log().float()


WITHOUT_MAXIMUM: dict[str, Answers] = {
    "two_phases-sampler": {"sample": _sampled},
    "arithmetic_intensity-online_softmax": {"update": _updated},
    "arithmetic_intensity-flash": blockwise.blockwise(merge=_added, last=_finished),
    "arithmetic_intensity-merge": {"merge": _merged, "expose": merges.expose},
    "kv_cache-cached_attention": _exp_over_sum(
        "cached_attention", cached_attention.reference, "seen"
    ),
    "grouped_query_attention-one_read": _exp_over_sum(
        "shared_attention", one_read.reference, "scores"
    ),
    "latent_attention-attend": _exp_over_sum("attend", attend.reference, "seen"),
    "mixture_of_experts-route": _exp_over_sum("route", route.reference, "logits"),
    "pruning-distill": {"distillation_loss": _loss},
    "continuous_batching-ragged": _exp_over_sum("ragged_attention", ragged.reference, HIDDEN),
    "paging-attention": _exp_over_sum("attend", attention.reference, "scores"),
}


@pytest.mark.parametrize("exercise_id", WITHOUT_MAXIMUM)
def test_a_softmax_without_its_maximum_is_refused_in_float64_as_well(exercise_id: str) -> None:
    refused_by_a_fixed_case(exercise_id, WITHOUT_MAXIMUM[exercise_id])


def test_it_is_right_where_no_score_is_beyond_200() -> None:
    answer = LocalAnswer(_exp_over_sum("attention_rank", heads.reference, HIDDEN))
    for seed in range(4):
        verdict = Bench(heads.EXERCISE, seed).judge(answer)
        assert verdict.right, verdict.message


@pytest.mark.parametrize(
    ("change", "name"), [("", "overflows"), (".double()", "overflows_in_float64")]
)
def test_a_router_that_overflows_is_named(change: str, name: str) -> None:
    e = f"logits{change}.exp()"
    naive = f"({e} / {e}.sum(1)[:, None]).to(logits.dtype)"
    wrong = replaced(route.reference, {"logits.softmax(-1)": naive})
    for seed in range(4):
        verdict = Bench(route.EXERCISE, seed).judge(LocalAnswer({"route": wrong}))
        assert verdict.misconception == name


def _in_32_bits(value: Any) -> Any:
    """The same with every whole number in 32 bits, if it has room there."""
    if isinstance(value, list | tuple):
        return type(value)(map(_in_32_bits, value))
    if isinstance(value, dict):
        return {k: _in_32_bits(v) for k, v in value.items()}
    return np.int32(value) if type(value) is int and -(2**31) <= value < 2**31 else value


def _counted_in_32_bits(exercise_id: str) -> Answers:
    exercise = registry.load(exercise_id)
    (entry,) = exercise.entries
    right = exercise.namespace(exercise.reference)[entry]

    def counted(*args: Any, **kwargs: Any) -> Any:
        with np.errstate(over="ignore"):
            return right(*map(_in_32_bits, args), **_in_32_bits(kwargs))

    return {entry: counted}


@pytest.mark.parametrize(
    "exercise_id",
    [
        "arithmetic_intensity-matmul",
        "kv_cache-kv_bytes",
        "latency_throughput-bytes_read",
        "grouped_query_attention-repeated_bytes",
        "latent_attention-cache_bytes",
        "local_attention-cache_bytes",
        "sharding-sent_bytes",
        "mixture_of_experts-params",
        "mixture_of_experts-load_log",
        "quantization-checkpoint_bytes",
        "quantization-qlora_bytes",
        "pruning-predict",
        "continuous_batching-padding",
        "continuous_batching-pass_time",
        "paging-gathered",
    ],
)
def test_counts_that_32_bits_do_not_hold_are_refused(exercise_id: str) -> None:
    refused_by_a_fixed_case(exercise_id, _counted_in_32_bits(exercise_id))


def test_the_bytes_of_an_expert_in_32_bits_are_refused() -> None:
    def bytes_read(B: int, E: int, k: int, D: int, F: int, bytes_per_param: float) -> float:
        with np.errstate(over="ignore"):
            one = 3 * np.int32(D) * np.int32(F) * _in_32_bits(bytes_per_param)
        return float(E * (1 - (1 - k / E) ** B) * one)

    (entry,) = registry.load("mixture_of_experts-expert_bytes").entries
    refused_by_a_fixed_case("mixture_of_experts-expert_bytes", {entry: bytes_read})
