"""Answers that are right only for the sizes, the layers or the servers that somebody had in mind: a
fixed case of the exercise refuses each of them."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import pytest
from exercise_tools import namespace_of, refused_by_a_fixed_case, right_answers

from twophase.checks import registry
from twophase.checks.answer import LocalAnswer
from twophase.checks.arithmetic_intensity import _batches
from twophase.checks.judge import Bench
from twophase.checks.kv_cache import ragged
from twophase.checks.latency_throughput import _logs, bytes_read, decode_point, step_log
from twophase.checks.latent_attention import _form_times, latent_cache, rotated
from twophase.checks.misconceptions import replaced
from twophase.checks.two_phases import _slow_logs, forward_flops, generate, sampler, slow_log

Answer = Callable[..., Any]


def by_powers_of_two(workload: dict[str, Any], machine: dict[str, Any]) -> int:
    """Rounds up to whole tiles with a mask of bits, which tiles of 10 do not have."""

    def step_s(w: Any, m: Any, B: Any) -> Any:
        rows = (B + m["tile"] - 1) & ~(m["tile"] - 1)
        return _batches.step_s(w, {**m, "tile": 1}, rows) + _batches.cache_s(w, m, B - rows)

    return _batches.chooser(time=step_s)(workload, machine)


def of_the_class(right: type, name: str) -> type:
    """The right class, all of whose objects have the same `name`: that of the last one made."""
    said: dict[str, Any] = {}
    shared = property(lambda self: said[name], lambda self, value: said.update({name: value}))
    return type(right.__name__, (right,), {name: shared})


def few_layers(right: Answer, most: int) -> Answer:
    """No more layers than `most`."""

    def answer(model: dict[str, Any], *args: Any) -> Any:
        return right({**model, "L": min(model["L"], most)}, *args)

    return answer


def few_kv_heads(model: dict[str, int], T: int, n_cached: int) -> Any:
    return forward_flops.reference({**model, "K": min(model["K"], 8)}, T, n_cached)


def at_most(letter: str, most: int) -> Answer:
    """A model's size cut off at what somebody took for the largest."""

    def answer(model: dict[str, int], T: int, n_cached: int) -> Any:
        return forward_flops.reference({**model, letter: min(model[letter], most)}, T, n_cached)

    return answer


def from_a_billion_below_zero(model: Any, *args: Any) -> Any:
    """Looks for the largest score from −1e9 up, as if no score could be lower."""

    def raised(tokens: list[int]) -> list[float]:
        return [max(score, -1e9) for score in model(tokens)]

    return generate.reference(raised, *args)


def unless(label: str, other: str) -> Answer:
    """A sign of step_log that is passed over where another one, of a later place, applies."""

    def sign(events: _logs.Events, server: _logs.Server) -> bool:
        applies, instead = step_log.SIGNS[label], step_log.SIGNS[other]
        return applies(events, server) and not instead(events, server)

    return step_log._diagnosis(**{label.replace("-", "_"): sign})


def by_medians(events: _logs.Events, server: _logs.Server) -> str:
    """Computing takes longer in most steps if the median of its share is above 1."""
    ratio = median(_logs.compute_s(e, server) / _logs.memory_s(e, server) for e in events)
    return step_log._diagnosis(compute_bound=lambda es, s: ratio > 1)(events, server)


def by_the_median_of_room(events: _logs.Events, server: _logs.Server) -> str:
    room = median((e["waiting"] > 0) * _logs.free(e, server) for e in events)
    return step_log._diagnosis(underfilled=lambda es, s: room > 0.5)(events, server)


def one_step_is_no_median(events: _logs.Events, server: _logs.Server) -> str:
    def slow(es: _logs.Events, s: _logs.Server) -> bool:
        return len(es) > 1 and step_log.SIGNS["overhead-bound"](es, s)

    return step_log._diagnosis(overhead_bound=slow)(events, server)


def first_passes(most: int) -> Answer:
    def choose(layer: Any, passes: list[Any], chip: Any) -> Any:
        return _form_times.best(layer, passes[:most], chip)

    return choose


def even_heads(layer: dict[str, int], passes: list[Any], chip: Any) -> Any:
    return _form_times.best({**layer, "N": layer["N"] // 2 * 2}, passes, chip)


def in_milliseconds(events: _slow_logs.Events) -> str:
    """Gaps rounded to whole milliseconds."""
    waited, ttft, gaps = slow_log._times(events)
    gaps = [round(gap, 3) for gap in gaps]
    early, late = slow_log._quarters(gaps)
    growing = median(late) > 2 * median(early)
    return slow_log._label(waited > ttft / 2, growing, max(gaps) > 10 * median(gaps))


POSITIONS = {"torch.arange(S)": "torch.arange(S) % 2048"}
RIGHT_BY_LUCK: dict[str, tuple[str, str, Any]] = {
    "tiles are powers of two": ("arithmetic_intensity-choose", "choose", by_powers_of_two),
    "one room for the caches of all layers": (
        "kv_cache-ragged",
        "RaggedKVCache",
        of_the_class(ragged.Right, "S_max"),
    ),
    **{
        f"one {name} for the caches of all layers": (
            "latent_attention-latent_cache",
            "LatentCache",
            of_the_class(latent_cache.Right, name),
        )
        for name in ("R", "theta")
    },
    "3 layers at most are read": (
        "latency_throughput-bytes_read",
        "bytes_read",
        few_layers(bytes_read.reference, 3),
    ),
    "60 layers at most in a batch": (
        "latency_throughput-decode_point",
        "decode_point",
        few_layers(decode_point._point(), 60),
    ),
    "32 layers at most compute": (
        "two_phases-forward_flops",
        "forward_flops",
        few_layers(forward_flops.reference, 32),
    ),
    **{
        f"{letter} is {most:,} at most": (
            "two_phases-forward_flops",
            "forward_flops",
            at_most(letter, most),
        )
        for letter, most in (("H", 128), ("H", 256), ("D", 16_384), ("F", 65_536), ("V", 262_144))
    },
    "no score is below −1e9": ("two_phases-generate", "generate", from_a_billion_below_zero),
    **{
        f"{most:,} tokens at most, whatever top_k is": (
            "two_phases-sampler",
            "sample",
            replaced(
                sampler.reference,
                {"keep_top_k(probs, top_k)": f"keep_top_k(probs, min(top_k or {most}, {most}))"},
            ),
        )
        for most in (60, 1000, 1024, 2048)
    },
    "8 KV heads at most": ("two_phases-forward_flops", "forward_flops", few_kv_heads),
    "top_k is 100 at most": (
        "two_phases-sampler",
        "sample",
        replaced(
            sampler.reference,
            {"keep_top_k(probs, top_k)": "keep_top_k(probs, top_k and min(top_k, 100))"},
        ),
    ),
    **{
        f"not {label} where it is {other}": (
            "latency_throughput-step_log",
            "diagnose",
            unless(label, other),
        )
        for label, other in (
            ("preempting", "underfilled"),
            ("preempting", "compute-bound"),
            ("overhead-bound", "compute-bound"),
        )
    },
    "computing longer by a median": ("latency_throughput-step_log", "diagnose", by_medians),
    "room by a median": ("latency_throughput-step_log", "diagnose", by_the_median_of_room),
    "one step has no median": ("latency_throughput-step_log", "diagnose", one_step_is_no_median),
    "three passes": ("latent_attention-choose", "choose", first_passes(3)),
    "a hundred passes": ("latent_attention-choose", "choose", first_passes(100)),
    "an even number of heads": ("latent_attention-choose", "choose", even_heads),
    "2,048 positions of keys": (
        "latent_attention-rotated",
        "scores",
        replaced(rotated.scores, POSITIONS),
    ),
}


@pytest.mark.parametrize("name", RIGHT_BY_LUCK)
def test_a_fixed_case_refuses_what_is_right_by_luck(name: str) -> None:
    exercise_id, entry, answer = RIGHT_BY_LUCK[name]
    others = namespace_of(right_answers(exercise_id)[0])
    refused_by_a_fixed_case(exercise_id, {**others, entry: answer})


def test_gaps_in_whole_milliseconds_are_refused_by_a_log_without_chance() -> None:
    verdict = Bench(registry.load("two_phases-slow_log")).judge(
        LocalAnswer({"diagnose": in_milliseconds})
    )
    failed = [outcome.case for outcome in verdict.outcomes if not outcome.right]
    assert any("beside 0.2 ms" in name for name in failed), failed


def test_a_mean_of_the_early_gaps_is_not_called_a_question_asked_too_late() -> None:
    """One early stall hides growth from either; one in the middle only from who asks for stalls
    first."""
    mean = replaced(slow_log.reference, {"2 * median(early)": "2 * sum(early) / len(early)"})
    verdict = Bench(registry.load("two_phases-slow_log")).judge(LocalAnswer({"diagnose": mean}))
    assert verdict.status == "wrong"
    assert verdict.misconception is None


def test_bytes_and_flops_of_a_parameter_are_told_apart() -> None:
    """In bf16 a parameter takes two bytes and two FLOPs, and nobody can say which was meant."""
    bench = Bench(registry.load("latency_throughput-step_log"))
    for slug in ("two_bytes_for_each_parameter", "bytes_for_flops"):
        wrong = next(m for m in bench.exercise.misconceptions if m.slug == slug)
        verdict = bench.judge(LocalAnswer({"diagnose": wrong.answer}))
        assert verdict.misconception == slug
        failed = [outcome.case for outcome in verdict.outcomes if not outcome.right]
        assert all(name.startswith("weights of one byte") for name in failed), failed
