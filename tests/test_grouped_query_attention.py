"""What the checks of chapter 5 rest on, beyond the kill matrix."""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from pathlib import Path

import pytest
import torch

from twophase.checks import registry
from twophase.checks.grouped_query_attention import _budgets, _chips
from twophase.checks.grouped_query_attention._mappings import MUTANTS, RIGHT
from twophase.checks.grouped_query_attention.head_tests import gives, passes, problem
from twophase.kernels.attention import causal_attention
from twophase.kernels.grouped_query_attention import pool_heads
from twophase.measure.meter import Meter
from twophase.theory import kv_cache, latency_throughput
from twophase.theory.layout import heads_of_chip
from twophase.theory.params import attention_params

ROOT = Path(__file__).resolve().parents[1]
DTYPES = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}
METERED = 10_000  # positions: more would take the meter seconds, and the formula has no threshold
SHAPES = [(N, K) for N in range(1, 65) for K in range(1, N + 1) if N % K == 0]
DEALT = [  # layouts that divide evenly
    (n_chips, N, K)
    for N, K in SHAPES
    for n_chips in range(1, N + 1)
    if N % n_chips == 0 and (K % n_chips == 0 or n_chips % K == 0)
]


def test_the_function_printed_in_the_notebook_is_the_one_that_the_check_judges() -> None:
    path = ROOT / "solutions" / "05_grouped_query_attention.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    task = next(
        "".join(c["source"]) for c in cells if c["id"] == "grouped_query_attention-chip_heads-task"
    )
    found = re.search(r"```python\n(.*?)```", task, re.DOTALL)
    assert found is not None
    printed, judged = (
        ast.parse(text).body[0]
        for text in (found[1], textwrap.dedent(inspect.getsource(_chips.printed)))
    )
    assert isinstance(printed, ast.FunctionDef)
    assert isinstance(judged, ast.FunctionDef)
    heads = [arg.arg for arg in printed.args.args], [arg.arg for arg in judged.args.args]
    assert heads[0] == heads[1]

    def one_by_one(body: list[ast.stmt]) -> list[str]:
        return sorted(ast.dump(statement) for statement in body)

    assert one_by_one(printed.body) == one_by_one(judged.body)


def test_the_printed_assignment_is_right_wherever_no_kv_head_is_copied() -> None:
    for n_chips, N, K in DEALT:
        for rank in range(n_chips):
            differs = _chips.printed(rank, n_chips, N, K) != _chips.right(rank, n_chips, N, K)
            assert not differs or n_chips > K > 1


def test_the_right_assignment_is_that_of_the_planner() -> None:
    for n_chips, N, K in DEALT:
        for rank in range(n_chips):
            queries, held = heads_of_chip(rank, n_chips, N, K)
            assert _chips.right(rank, n_chips, N, K) == (list(queries), list(held))


@pytest.mark.parametrize(
    "inputs",
    [
        None,
        [],
        [(0, 1, 2)],
        [(0, 1, 2, 2.0)],
        [(True, 2, 4, 2)],
        [(0, 6, 32, 4)],
        [(0, 6, 12, 4)],
        [(8, 8, 32, 4)],
        [(-1, 8, 32, 4)],
        [(0, 8, 32, 5)],
        [(0, 1, 2048, 1)],
    ],
)
def test_inputs_outside_the_contract_expose_nothing(inputs: object) -> None:
    assert _chips.problem(inputs)


def test_both_right_mappings_agree_on_every_shape_that_a_case_can_have() -> None:
    for N, K in SHAPES:
        assert gives(RIGHT[0], N, K) == gives(RIGHT[1], N, K) == [n // (N // K) for n in range(N)]


@pytest.mark.parametrize("name", MUTANTS)
def test_every_wrong_mapping_can_be_caught_and_passes_somewhere(name: str) -> None:
    caught = [(N, K) for N, K in SHAPES if gives(MUTANTS[name], N, K) != gives(RIGHT[0], N, K)]
    assert caught
    assert len(caught) < len(SHAPES)
    N, K = caught[0]
    assert not passes(MUTANTS[name], (N, K, gives(RIGHT[0], N, K)))


@pytest.mark.parametrize(
    "trials",
    [None, [], [(4, 2)], [(4, 3, [])], [(65, 1, [0] * 65)], [(4, 2, [0, 0, 1.0, 1])], [(4, 2, 0)]],
)
def test_cases_that_are_none_are_said_to_be_none(trials: object) -> None:
    assert problem(trials)


@pytest.mark.parametrize("seed", [0, 7])
def test_the_bytes_of_both_ways_are_those_the_meter_counts(seed: int) -> None:
    exercise = registry.load("grouped_query_attention-repeated_bytes")
    metered = [case.args for case in exercise.make_cases(seed) if case.args[1] < METERED]
    assert len(metered) > 10
    for sizes in metered:
        B, S, N, K, H, width = sizes
        q, (k, v) = (
            torch.zeros(B, 1, N, H, dtype=DTYPES[width]),
            torch.zeros(2, B, S, K, H, dtype=DTYPES[width]),
        )
        with Meter() as shared, shared.fused("attention"):
            causal_attention(q, k, v)
        with Meter() as repeated:
            copies = [x.repeat_interleave(N // K, dim=2) for x in (k, v)]
            with repeated.fused("attention"):
                causal_attention(q, *copies)
        counted = {"repeated": repeated.bytes, "shared": shared.bytes}
        assert exercise.reference(*sizes) == counted, sizes


@pytest.mark.parametrize("seed", [0, 7])
def test_heads_are_pooled_as_the_kernel_pools_them(seed: int) -> None:
    exercise = registry.load("grouped_query_attention-pool")
    for case in exercise.make_cases(seed):
        assert torch.allclose(exercise.reference(*case.args), pool_heads(*case.args))


@pytest.mark.parametrize("seed", [0, 7])
def test_a_choice_weighs_what_theory_weighs(seed: int) -> None:
    exercise = registry.load("grouped_query_attention-choose")
    for budget, options in (case.args for case in exercise.make_cases(seed)):
        for K in (option["K"] for option in options):
            L, D, N, H, b = (budget[n] for n in ("L", "D", "N", "H", "bytes_per_value"))
            weights = kv_cache.weight_bytes(
                budget["other_params"] + L * attention_params(D, N, K, H), b
            )
            cache = kv_cache.kv_bytes_per_sequence(budget["n_tokens"], L, K, H, b)
            fits = kv_cache.max_batch(budget["memory_bytes"], weights, cache) >= budget["batch"]
            step_s = latency_throughput.memory_step_time_s(
                weights, budget["batch"], cache, budget["bytes_per_s"]
            )
            assert _budgets.fits(budget, K) == fits
            assert _budgets.in_time(budget, K) == (step_s <= budget["step_limit_s"])
