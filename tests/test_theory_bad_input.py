"""What is no formula refuses bad input as formulas do: in one sentence that names it."""

import math
from dataclasses import replace

import pytest
import torch

from twophase.theory import catalog, messages, sharded_step
from twophase.theory.arithmetic_intensity import matmul_flops
from twophase.theory.continuous_batching import chunk_flops
from twophase.theory.engine_memory import chips_for_engine, usual_limits
from twophase.theory.floors import floor_request_s
from twophase.theory.layout import heads_per_chip, some_layers, uneven_cuts
from twophase.theory.plan import deployment
from twophase.theory.sharded_pass import Pass
from twophase.theory.workload import Workload

LLAMA = catalog.model("llama-3-8b")
PLAN = deployment(LLAMA, catalog.hardware("h100"), Workload(context=1000))


@pytest.mark.parametrize("B", [-1, 1.5, math.nan, math.inf, True, None])
def test_no_plan_is_for_a_part_of_a_sequence(B):
    for ask in (
        lambda: PLAN.fits(B, 1000),
        lambda: PLAN.max_context(B),
        lambda: PLAN.chips_needed(B, 1000),
        lambda: PLAN.held_by_stages(B, 1000),
        lambda: PLAN.total_bytes(B, 1000),
        lambda: chips_for_engine(PLAN, B, 1000),
        lambda: Pass(LLAMA, B, 1000),
    ):
        with pytest.raises(ValueError, match="B must be"):
            ask()


@pytest.mark.parametrize("T", [-1, 0, 1.5, math.nan])
def test_no_step_is_of_a_part_of_a_token(T):
    for ask in (
        lambda: PLAN.step_flops(1, 1000, T),
        lambda: Pass(LLAMA, 1, 1000, T),
        lambda: chunk_flops(PLAN, 0, T),
        lambda: floor_request_s(PLAN, T),
    ):
        with pytest.raises(
            ValueError, match=r"(T|n|n_output) must be a whole number|finite number"
        ):
            ask()
    with pytest.raises(ValueError, match="S must be at least T = 9"):
        Pass(LLAMA, 1, 8, 9)


@pytest.mark.parametrize("sides", [(0,), (-2,), (1.5,), (True,), (4, 0)])
def test_a_mesh_has_whole_sides(sides):
    p = Pass(LLAMA, 1, 8)
    for layout in (
        lambda: sharded_step.tensor(p, sides),
        lambda: sharded_step.tensor(p, sides, "batch"),
        lambda: sharded_step.gathered(p, sides),
        lambda: sharded_step.stationary(p, sides, (1,)),
    ):
        with pytest.raises(ValueError, match="A mesh has sides of whole numbers"):
            layout()


@pytest.mark.parametrize(
    ("n_tokens", "sides"),
    [(-1, (2,)), (math.nan, (2,)), (8, (0,)), (8, (-2,)), (8, [2]), ("8", (2,))],
)
def test_a_message_is_of_bytes_and_between_chips(n_tokens, sides):
    with pytest.raises(
        ValueError, match=r"array_bytes must|a side of a mesh must|sides is a tuple"
    ):
        messages.tensor_part(n_tokens, 4, sides, 2)


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (0, 33), (2, 2), (0, 1.5)])
def test_a_stage_is_of_layers_that_there_are(start, end):
    with pytest.raises(ValueError, match="has layers 0 to 31; none are from"):
        some_layers(LLAMA, start, end)


def test_words_and_counts_that_mean_nothing_are_named():
    with pytest.raises(ValueError, match="a cache is split by 'heads' or 'evenly'"):
        uneven_cuts(LLAMA, 3, "nonsense")
    with pytest.raises(ValueError, match="N must be a whole number"):
        heads_per_chip(1.5, 4, 2)
    with pytest.raises(ValueError, match="memory_bytes must be"):
        usual_limits("H100", math.nan)
    for name, value in (("norms_per_layer", -1), ("other_params", 1.5), ("state_flops", True)):
        with pytest.raises(ValueError, match=f"{name} must be an integer of at least 0"):
            replace(LLAMA, **{name: value})


def test_a_formula_takes_no_tensors():
    with pytest.raises(ValueError, match="B must be a finite number, a numeric array or a symbol"):
        matmul_flops(torch.tensor(2.0), 4, 8)
