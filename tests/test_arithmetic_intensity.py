"""What the checks of chapter 2 rest on, beyond the kill matrix."""

from __future__ import annotations

import ast
import inspect
import json
import math
import random
import re
import textwrap
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from twophase.checks.answer import LocalAnswer
from twophase.checks.arithmetic_intensity import (
    _batches,
    _merges,
    _sequences,
    choose,
    critical_batch,
    flash,
    matmul,
    merge,
    overlap,
    predict,
)
from twophase.checks.arithmetic_intensity import online_softmax as online
from twophase.checks.arithmetic_intensity._workloads import TRAPS, _draw
from twophase.checks.judge import Bench
from twophase.kernels.attention import causal_attention, naive_attention
from twophase.kernels.mlp import gated_mlp
from twophase.measure.meter import Meter
from twophase.theory import arithmetic_intensity as theory
from twophase.theory.catalog import hardware
from twophase.theory.catalog import model as published

ROOT = Path(__file__).resolve().parents[1]
INF = float("inf")


def test_the_function_printed_in_the_notebook_is_the_one_that_the_check_judges() -> None:
    cells = json.loads(
        (ROOT / "solutions" / "02_arithmetic_intensity.ipynb").read_text(encoding="utf-8")
    )["cells"]
    task = next("".join(c["source"]) for c in cells if c["id"] == "arithmetic_intensity-merge-task")
    found = re.search(r"```python\n(.*?)```", task, re.DOTALL)
    assert found is not None
    ours = ast.parse(
        textwrap.dedent(inspect.getsource(_merges.printed)).replace("def printed", "def merge")
    ).body[0]
    assert isinstance(ours, ast.FunctionDef)
    ours.body = ours.body[1:]  # without docstring and annotations, which the notebook leaves out
    ours.returns = None
    for argument in ours.args.args:
        argument.annotation = None
    assert ast.dump(ours) == ast.dump(ast.parse(found[1]).body[0])


@pytest.mark.parametrize("seed", range(3))
def test_the_references_of_the_formulas_are_the_theory(seed: int) -> None:
    rng = random.Random(seed)
    for case in matmul.cases(rng):
        assert matmul.reference(*case.args) == pytest.approx(
            theory.matmul_intensity(*case.args), rel=1e-12
        )
    for case in critical_batch.cases(rng):
        C, W, param, _, E, k = case.args
        assert critical_batch.reference(*case.args) == pytest.approx(
            theory.critical_batch(C, W, param / 8, E, k)
        )


def metered(
    B: int, T: int, S: int, D: int, F: int, N: int, K: int, H: int, bytes_per_value: int
) -> dict[str, int]:
    """What the meter counts while both kernels run, each fused."""
    dtype = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}[bytes_per_value]

    def made(*shape: int) -> torch.Tensor:
        return torch.ones(*shape, dtype=dtype)

    x, gate, up, down = made(B, T, D), made(F, D), made(F, D), made(D, F)
    q, k, v = made(B, T, N, H), made(B, S, K, H), made(B, S, K, H)
    with Meter() as meter:
        with meter.fused("mlp"):
            gated_mlp(x, gate, up, down)
        with meter.fused("attention"):
            causal_attention(q, k, v)
    mlp, attention = meter.by_region["mlp"], meter.by_region["attention"]
    return {
        "mlp_flops": mlp.matmul_flops,
        "mlp_bytes": mlp.bytes,
        "attention_flops": attention.matmul_flops,
        "attention_bytes": attention.bytes,
    }


def test_the_reference_of_predict_is_what_the_meter_counts_and_the_theory_says() -> None:
    run = 0
    for case in predict.cases(random.Random(4)):
        B, T, S, D, F, N, K, H, width = case.args
        expected = {
            "mlp_flops": theory.mlp_flops(B, T, D, F),
            "mlp_bytes": theory.mlp_bytes(B, T, D, F, True, width, width),
            "attention_flops": theory.attention_flops(B, T, S, N, H),
            "attention_bytes": theory.attention_bytes(B, T, S, N, K, H, width, width),
        }
        assert predict.reference(*case.args) == expected
        if width > 1 and S < 1000:  # no machine runs the largest, nor torch all products of bytes
            assert metered(*case.args) == expected
            run += 1
    assert run >= 7


def test_the_largest_case_of_predict_needs_whole_numbers() -> None:
    for count in predict.reference(*predict.BEYOND_FLOATS).values():
        assert count < 2**63
        assert int(float(count)) != count


def test_the_three_times_are_ordered_and_the_last_is_at_most_twice_the_second() -> None:
    for seed in range(20):
        for case in overlap.cases(random.Random(seed)):
            everything, within, nothing = overlap._times()(*case.args)
            assert everything <= within * (1 + 1e-12)
            assert within <= nothing * (1 + 1e-12) <= 2 * within * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_the_state_of_online_softmax_gives_the_softmax_of_all_blocks_together(seed: int) -> None:
    for case in online.cases(random.Random(seed)):
        (blocks,) = case.args
        m, l = torch.full((len(blocks[0]),), -INF), torch.zeros(len(blocks[0]))
        for block in blocks:
            m, l = online.reference(m, l, block)
        torch.testing.assert_close(
            m + l.log(), torch.cat(blocks, -1).logsumexp(-1), rtol=1e-6, atol=1e-5
        )


@pytest.mark.parametrize("seed", range(3))
def test_attention_in_blocks_is_attention(seed: int) -> None:
    """Also when the blocks come in any order, and states side by side."""
    exercise = flash.EXERCISE
    for case in flash.cases(random.Random(seed)):
        seen = exercise.look(LocalAnswer(exercise.reference), case)
        for state in {step[2] for step in case.args[0] if step[0] == "add_block"} & {"one", "two"}:
            whole = _attention(case.args[0], state)
            torch.testing.assert_close(
                seen[f"output {state}"].double(), whole, rtol=5e-4, atol=5e-5
            )


def _attention(steps: list[_sequences.Step], state: str) -> torch.Tensor:
    """Softmax over all blocks that led to a state, in double precision."""
    scores, values = [], []
    for function, *given in reversed(steps):
        if function != "add_block" or given[1] != state:
            continue
        state, _, q, k, v, key_start, query_start = given
        hidden = (key_start + torch.arange(len(k))) > (query_start + torch.arange(len(q)))[:, None]
        score = q.double() @ k.double().T / math.sqrt(q.shape[1])
        scores.append(score.masked_fill(hidden, -INF))
        values.append(v.double())
    return torch.cat(scores, -1).softmax(-1) @ torch.cat(values)


def test_attention_over_blocks_in_order_is_the_kernel_s() -> None:
    q, k, v = (torch.randn(n, 4, generator=torch.Generator().manual_seed(n)) for n in (3, 7, 7))
    steps = _sequences.one(_sequences.Sequence(q, 4, [(k[:5], v[:5], 0), (k[5:], v[5:], 5)]))
    whole = naive_attention(*(x.double()[None, :, None] for x in (q, k, v)))[0, :, 0]
    torch.testing.assert_close(_attention(steps, "one"), whole)


def test_the_size_of_a_state_counts_every_number_in_it() -> None:
    assert (
        flash.size({"out": torch.zeros(3, 4), "m": [torch.zeros(3), 1.0], "n": 2, "none": None})
        == 12 + 3 + 1 + 1 + 1
    )
    assert flash.size("a text") == math.inf


@pytest.mark.parametrize("fault", _merges.FAULTS)
def test_each_fault_alone_is_shown_by_the_author_s_calls_and_not_by_a_harmless_one(
    fault: str,
) -> None:
    one = _merges.FAULTS[fault]
    assert any(merge._shows(one, call) for call in _merges.expose())
    assert not merge._shows(one, [[[1.0]], [60.0], [[3.0]], [-20.0]])


@pytest.mark.parametrize(
    "calls",
    [
        None,
        [],
        [[[[1.0]], [1.0], [[1.0]]]],
        [[[[1.0]], [1.0], [[1.0, 2.0]], [1.0]]],
        [[[[1.0]], [1.0, 2.0], [[1.0]], [1.0]]],
        [[[[1.0]], [INF], [[1.0]], [1.0]]],
        [[[[1.0]], [float("nan")], [[1.0]], [1.0]]],
        [[[[1.0]], [-INF], [[0.0]], [1.0]]],
        [[[[float("nan")]], [1.0], [[0.0]], [1.0]]],
        [[[[]], [1.0], [[]], [1.0]]],
        [[[[True]], [1.0], [[1.0]], [1.0]]],
        [[[["1"]], [1.0], [[1.0]], [1.0]]],
        [["abcd", [1.0], [[1.0]], [1.0]]],
    ],
)
def test_calls_outside_the_contract_expose_nothing(calls: object) -> None:
    assert merge.problem(calls)


def test_merged_parts_are_attention_over_all_their_keys_in_any_order() -> None:
    generator = torch.Generator().manual_seed(0)
    scores, v = 3 * torch.randn(4, 20, generator=generator), torch.randn(20, 5, generator=generator)
    parts = [
        (scores[:, i : i + 5].softmax(-1) @ v[i : i + 5], scores[:, i : i + 5].logsumexp(-1))
        for i in (10, 0, 15, 5)
    ]
    out, lse = parts[0]
    for part in parts[1:]:
        out, lse = _merges.RIGHT(out, lse, *part)
    torch.testing.assert_close(out, scores.softmax(-1) @ v)
    torch.testing.assert_close(lse, scores.logsumexp(-1))


@pytest.mark.parametrize("seed", range(8))
def test_every_trap_of_the_choice_catches_its_wrong_answer_and_has_a_right_one(seed: int) -> None:
    bench = Bench(choose.EXERCISE, seed)
    right = {
        "the batch": "valid",
        "memory": "fits",
        "step": "in time",
        "throughput": "within 5% of the best",
    }
    assert all(expected == right for expected in bench.expected)
    assert len(bench.cases) > len(TRAPS)
    for case, wrong in zip(bench.cases[-len(TRAPS) :], TRAPS.values(), strict=True):
        assert choose.EXERCISE.look(LocalAnswer({"choose": wrong}), case) != right


def test_a_step_never_gets_shorter_with_a_larger_batch() -> None:
    rng = random.Random(1)
    for _ in range(50):
        w, m = _draw(rng)
        times = [_batches.step_s(w, m, B) for B in range(1, 300)]
        assert all(a <= b for a, b in pairwise(times))


def test_at_the_critical_batch_of_a_step_both_clocks_show_the_same() -> None:
    llama, h100 = published("llama-3-8b"), hardware("h100")
    C, W = h100.peak_flops_per_s("bf16"), h100.hbm_bytes_per_s
    weights = 2 * llama.n_matmul_params()

    def critical(S: int) -> float:
        cache, flops = llama.cache_bytes(S), llama.decode_step_flops(1, S)
        return float(theory.critical_batch_of_step(weights, cache, flops, C, W))

    for S in (1, 100, 392):
        B = critical(S)
        both = B * llama.decode_step_flops(1, S) / C, (weights + B * llama.cache_bytes(S)) / W
        assert both[0] == pytest.approx(both[1], rel=1e-9)
    assert critical(393) < INF == critical(394)
    free = theory.critical_batch_of_step(weights, 0, weights, C, W)
    assert free == pytest.approx(theory.critical_batch(C, W))
