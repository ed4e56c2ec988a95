"""Answers that are right but beyond some bound that nobody promised (a mask, a room, a rounding, a
first layer, a number of reads, one order), and tests that find every broken thing: a fixed case
refuses the first, the model answer is of the second kind."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from exercise_tools import ALL_IDS, refused_by_a_fixed_case

from twophase.checks import registry
from twophase.checks.grouped_query_attention import choose, repeated_bytes
from twophase.checks.judge import Bench
from twophase.checks.kv_cache._snippet_caches import Right
from twophase.checks.latency_throughput import front
from twophase.checks.local_attention import ring_log
from twophase.checks.misconceptions import replaced
from twophase.checks.mixture_of_experts import load_log, route, seats
from twophase.checks.paging import snippet
from twophase.checks.pruning import choose as removals
from twophase.checks.pruning import config, healing_log
from twophase.checks.quantization import activation_log, outlier_product, qlora_bytes
from twophase.checks.sharding import heads, sent_bytes
from twophase.checks.speculative_decoding import accept


def sorts_what_it_is_given(tables: Any, parents: Any, count: Any, unused: list[int]) -> Any:
    unused.sort()
    return snippet.reorder(tables, parents, count, unused)


def kept_by_points_in_order() -> Any:
    """Asks only once for the same points, in whatever order they are given."""
    kept: dict[str, list[int]] = {}

    def remembered(points: list[tuple[float, float]]) -> list[int]:
        key = repr(sorted(points))
        if key not in kept:
            kept[key] = front.reference(points)
        return kept[key]

    return remembered


class GivesZerosInTheEnd(Right):
    """A cache that can be read 39 times."""

    reads = 0

    def read(self, b: int) -> Any:
        self.reads += 1
        return tuple(x * (self.reads < 40) for x in super().read(b))


def masked_by(number: str) -> Any:
    return replaced(heads.reference, {"masked_fill(hidden, -math.inf)": f"add(hidden * {number})"})


MEANS = {  # of whole numbers, though the mean need be none
    "rounded down": "sum(v) // len(v)",
    "rounded": "round(sum(v) / len(v))",
    "rounded up": "-(-sum(v) // len(v))",
    "rounded to tenths": "round(sum(v) / len(v), 1)",
    "with 0.01 to spare": "sum(v) / len(v) + 0.01",
}


def keeps(unit: int) -> Any:
    """Tries all sets without this unit, and removes everything where none of them fits."""

    def to_remove(loss: Any, sizes: list[int], budget: int) -> list[int]:
        units = [u for u in range(len(sizes)) if u != unit]
        every = [list(s) for k in range(len(sizes)) for s in combinations(units, k)]
        possible = [s for s in every if removals.fits(sizes, s, budget)]
        return min(possible, key=loss, default=[*range(len(sizes))])

    return to_remove


def beyond(times: int, mean: str) -> Any:
    """The channels whose size is more than so many times the mean."""
    of = eval(f"lambda v: {mean}")
    return lambda x: [c for c, v in enumerate(x) if abs(v) > times * of([*map(abs, x)])]


WRONG: dict[str, tuple[str, Any]] = {
    "hidden scores less 300": ("sharding-heads", masked_by("-300")),
    "hidden scores less 350": ("sharding-heads", masked_by("-350")),
    "nearly certain is certain": (
        "speculative_decoding-accept",
        replaced(accept.reference, {"min(1.0,": "(lambda _, x: 1.0 if x > 0.99 else x)(1.0,"}),
    ),
    "a thousandth of a place is none": (
        "mixture_of_experts-seats",
        replaced(
            seats.reference,
            {"-(-percent * n * k // (100 * E))": "math.ceil(percent * n * k / (100 * E) - 0.001)"},
        ),
    ),
    "weights divided by a little more than their sum": (
        "mixture_of_experts-route",
        replaced(route.reference, {"weights.sum(-1, True)": "(weights.sum(-1, True) + 1e-6)"}),
    ),
    "what a rank sends, through a float": (
        "sharding-sent_bytes",
        replaced(
            sent_bytes.reference,
            {"2 * 2 * B * D * b * (n - 1) // n": "round(2 * 2 * B * D * b / n) * (n - 1)"},
        ),
    ),
    "bytes that are shared, through a float": (
        "grouped_query_attention-repeated_bytes",
        replaced(repeated_bytes.reference, {"(cache + ends)": "int(1.0 * (cache + ends))"}),
    ),
    "small percentages give one place": (
        "mixture_of_experts-seats",
        replaced(
            seats.reference,
            {"-(-percent * n * k // (100 * E))": "1 if percent < 10 else (percent*n*k+99)//100//E"},
        ),
    ),
    "the first layer alone is none": (
        "pruning-config",
        replaced(
            config.reference, {'if "layer_types" in config:': 'if any(kept.get("layers", [1])):'}
        ),
    ),
    "a window of one has no first query": (
        "local_attention-ring_log",
        replaced(ring_log.reference, {"if p >= window - 1]": "if p >= max(1, window - 1)]"}),
    ),
    "fronts are kept by their points in order": (
        "latency_throughput-front",
        kept_by_points_in_order(),
    ),
    "nothing is read 40 times": ("kv_cache-snippet", GivesZerosInTheEnd),
    "unused blocks are sorted in place": ("paging-snippet", sorts_what_it_is_given),
    "means in float32": (
        "grouped_query_attention-choose",
        replaced(
            choose.reference, {"_mean,": "lambda x: float(__import__('torch').tensor(x).mean()),"}
        ),
    ),
    **{
        f"tokens beside four times a mean {how}": (
            "quantization-activation_log",
            replaced(
                activation_log.reference,
                {
                    "massive(rows) for": (
                        f"(lambda v: max(v) > 4 * ({mean}))([max(map(abs, x)) for x in rows]) for"
                    )
                },
            ),
        )
        for how, mean in MEANS.items()
    },
    **{
        f"outliers beside six times a mean {how}": (
            "quantization-activation_log",
            lambda log, mean=mean: activation_log.said(log, beyond(6, mean)),
        )
        for how, mean in MEANS.items()
    },
    **{
        f"counted in floats: {whole}": (
            "quantization-qlora_bytes",
            replaced(qlora_bytes.reference, {whole: floats}),
        )
        for whole, floats in {
            "-(-n // 2)": "__import__('math').ceil(n / 2)",
            "-(-n // 64)": "__import__('math').ceil(n / 64)",
            "-(-blocks // 256)": "__import__('math').ceil(blocks / 256)",
            "12 * rank * (outputs + inputs)": "int(12.0 * rank * (outputs + inputs))",
            '"base": base': '"base": int(float(base))',
        }.items()
    },
    "nearly the threshold is an outlier": (
        "quantization-outlier_product",
        replaced(outlier_product.reference, {">= threshold": ">= threshold - 0.05"}),
    ),
    "nearly 8 bits are broken": (
        "pruning-healing_log",
        replaced(healing_log.reference, {">= 8": ">= 7.99"}),
    ),
    "hardly lower in training is no overfitting": (
        "pruning-healing_log",
        replaced(healing_log.reference, {'< best["train"]': '< best["train"] - 0.1'}),
    ),
    **{f"unit {u} of ten always stays": ("pruning-choose", keeps(u)) for u in range(10)},
    **{
        f"crowded in {part} beside twice a mean {how}": (
            "mixture_of_experts-load_log",
            replaced(load_log.reference, {old: f"(lambda v: max(v) > 2 * ({mean})){old[6:]}"}),
        )
        for how, mean in MEANS.items()
        for part, old in {"the sums": "skewed(visits)", "entries": 'skewed(e["visits"])'}.items()
    },
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_right_within_a_bound_only_is_refused(name: str) -> None:
    exercise_id, answer = WRONG[name]
    exercise = registry.load(exercise_id)
    functions = dict(exercise.namespace(exercise.reference))
    functions[exercise.entries[-1]] = answer  # of several the last: the others are inputs
    refused_by_a_fixed_case(exercise_id, functions)


TESTS = [i for i in ALL_IDS if registry.load(i).kind == "test"]


@pytest.mark.parametrize("exercise_id", TESTS)
def test_the_model_answer_catches_every_broken_thing(exercise_id: str) -> None:
    """What it misses would be asked of nobody, and whoever finds it would be refused."""
    caught = [e["caught"] for e in Bench(registry.load(exercise_id)).expected if "caught" in e]
    assert all(caught)
    assert caught or exercise_id in ("two_phases-top_p_cases", "continuous_batching-chart")
