"""Chapter 6: what the theory says of latent attention is what its kernels do, and what the checks
rest on beyond the kill matrix."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from twophase.checks import registry
from twophase.checks.answer import LocalAnswer
from twophase.checks.judge import Bench
from twophase.checks.latent_attention import (
    _broken_forms,
    _form_times,
    _rotated_scores,
    rotated,
    shapes,
)
from twophase.kernels.latent_attention import (
    absorbed_attention,
    absorbing_is_cheaper,
    attend_latents,
    attend_unfolded,
    expanded_attention,
)
from twophase.measure import Meter
from twophase.theory import latent_attention as theory
from twophase.theory.arithmetic_intensity import attention_intensity
from twophase.theory.catalog import hardware, model

ROOT = Path(__file__).resolve().parents[1]
SIZE, WIDTH = st.integers(1, 6), st.integers(2, 7)  # a sum over one number is no product to torch
SIZES = {"N": SIZE, "R": WIDTH, "nope_dim": WIDTH, "rope_dim": WIDTH, "v_dim": WIDTH}
# Values as wide as keys: the narrower of the two is padded, for torch's fused kernel.
EVEN = st.fixed_dictionaries(SIZES).map(lambda s: {**s, "v_dim": s["nope_dim"] + s["rope_dim"]})


def tensors(B, T, S, N, R, nope_dim, rope_dim, v_dim):
    """q_nope, q_rope, latent, k_rope, w_uk, w_uv in bf16."""
    shapes = [
        (B, T, N, nope_dim),
        (B, T, N, rope_dim),
        (B, S, R),
        (B, S, rope_dim),
        (N, nope_dim, R),
        (N, v_dim, R),
    ]
    return [torch.zeros(shape, dtype=torch.bfloat16) for shape in shapes]


@draws(20)
@given(B=SIZE, T=SIZE, past=st.integers(0, 5), sizes=EVEN)
def test_each_form_takes_the_flops_that_the_theory_says(B, T, past, sizes):
    given_to = tensors(B, T, T + past, **sizes)
    for attend, flops in (
        (expanded_attention, theory.expanded_flops),
        (absorbed_attention, theory.absorbed_flops),
    ):
        with Meter() as m:
            attend(*given_to)
        assert m.matmul_flops == flops(B, T, T + past, **sizes)


@draws(15)
@given(B=SIZE, T=SIZE, past=st.integers(0, 5), sizes=EVEN)
def test_each_form_moves_the_bytes_that_the_theory_says(B, T, past, sizes):
    """Unfolding as one product, each half of absorbing as one, attention as one kernel."""
    N, nope, v_dim = sizes["N"], sizes["nope_dim"], sizes["v_dim"]
    q_nope, q_rope, latent, k_rope, w_uk, w_uv = tensors(B, T, T + past, **sizes)
    heads = torch.cat([w_uk, w_uv], dim=1).flatten(0, 1)  # [N·(nope + v), R]
    with Meter() as m:
        unfolded = functional.linear(latent, heads).view(B, T + past, N, -1)  # [B, S, N, nope + v]
        with m.fused("attention"):
            k_nope, v = unfolded.split([nope, v_dim], -1)
            attend_unfolded(q_nope, q_rope, k_nope, k_rope, v)
    assert m.bytes == theory.expanded_bytes(B, T, T + past, **sizes)
    with Meter() as m:
        with m.fused("absorb"):
            q_latent = torch.einsum("btnd,ndr->btnr", q_nope, w_uk)  # [B, T, N, R]
        with m.fused("attention"):
            summed = attend_latents(q_latent, q_rope, latent, k_rope, scale=1.0)  # [B, T, N, R]
        with m.fused("unfold"):
            torch.einsum("btnr,ndr->btnd", summed, w_uv)
    assert m.bytes == theory.absorbed_bytes(B, T, T + past, **sizes)
    inside = theory.absorbed_attention_bytes(B, T, T + past, N, sizes["R"], sizes["rope_dim"])
    assert m.by_region["attention"].bytes == inside


@draws(30)
@given(S=st.integers(1, 60), sizes=st.fixed_dictionaries(SIZES))
def test_below_the_crossing_and_nowhere_else_absorbing_takes_fewer_flops(S, sizes):
    crossing = theory.crossover_queries(S, sizes["R"], sizes["nope_dim"], sizes["v_dim"])
    for T in range(1, S + 1):
        fewer = theory.absorbed_flops(1, T, S, **sizes) < theory.expanded_flops(1, T, S, **sizes)
        assert fewer == (crossing > T)
        widths = {name: n for name, n in sizes.items() if name != "N"}
        assert absorbing_is_cheaper(T, S, **widths) == fewer


def test_the_crossing_of_a_long_context_is_a_limit_without_heads_or_rotated_part():
    S, R, u, w = sympy.symbols("S R u w", positive=True)
    crossing = S * R * (u + w) / (R * (u + w) + S * (2 * R - u - w))
    found = theory.crossover_queries(S, 512, 128, 128)
    assert sympy.simplify(found - crossing.subs({R: 512, u: 128, w: 128})) == 0
    assert sympy.limit(crossing, S, sympy.oo).equals(R * (u + w) / (2 * R - u - w))
    assert theory.crossover_queries(10**9, 512, 128, 128) == pytest.approx(512 * 256 / 768)
    assert theory.crossover_queries(10**9, 64, 128, 128) == math.inf  # two heads wider than 2 R


def test_a_prompt_is_cheaper_expanded_as_soon_as_two_heads_are_narrower_than_two_latents():
    for R, nope, v in ((32, 32, 31), (32, 32, 32), (32, 32, 33)):
        cheaper = absorbing_is_cheaper(100, 100, R, nope, 16, v)
        assert cheaper == (nope + v > 2 * R)


def test_absorbed_decode_of_deepseek_v2_is_compute_bound_on_an_a100_and_not_on_an_h100():
    arch = model("deepseek-v2")
    sizes = arch.N, arch.mla.R, arch.mla.rope_dim
    intensity = theory.absorbed_intensity(1, 32768, *sizes)
    assert hardware("A100 40GB SXM").critical_intensity() < intensity
    assert intensity < theory.absorbed_intensity_simple(1, *sizes) < 4 * arch.N / 2
    assert intensity < hardware("h100").critical_intensity()
    assert theory.absorbed_intensity(2, 32768, *sizes) > hardware("h100").critical_intensity()
    assert attention_intensity(1, 1, 32768, arch.N, arch.N, 128) < 1  # MHA's, in bf16


@draws(30)
@given(T=SIZE, S=st.integers(1, 300), sizes=st.fixed_dictionaries(SIZES))
def test_intensity_is_flops_over_bytes_and_never_above_its_limit(T, S, sizes):
    N, R, rope = sizes["N"], sizes["R"], sizes["rope_dim"]
    flops = T * S * theory.absorbed_flops_per_pair(N, R, rope)
    found = theory.absorbed_intensity(T, S, N, R, rope)
    assert found == flops / theory.absorbed_attention_bytes(1, T, S, N, R, rope)
    assert found < theory.absorbed_intensity_simple(T, N, R, rope)


def test_a_decode_step_of_an_architecture_is_absorbed_and_a_prefill_expanded():
    arch = model("deepseek-v3")
    m = arch.mla
    step, longer = (arch.decode_step_flops(1, S) for S in (1000, 1001))
    assert longer - step == arch.L * theory.absorbed_flops_per_pair(arch.N, m.R, m.rope_dim)
    sizes = arch.N, m.R, m.nope_dim, m.rope_dim, m.v_dim
    one, two = (arch.prefill_flops(1, T) for T in (1, 2))
    once = 2 * arch.n_matmul_params()
    pairs = theory.expanded_flops_per_pair(arch.N, m.nope_dim, m.rope_dim, m.v_dim)
    assert one == once + arch.L * pairs
    assert two == 2 * once + 3 * arch.L * pairs
    attention = arch.L * theory.absorbed_flops(1, 1, 1000, *sizes)
    up = arch.L * theory.up_projection_params(arch.N, m.R, m.nope_dim, m.v_dim)
    assert step == once - 2 * up + attention  # the weights of a step contain both projections


# The checks.


def printed_in_the_notebook(slug: str) -> dict[str, Any]:
    """What the code defines that the task of an exercise prints."""
    text = (ROOT / "solutions" / "06_latent_attention.ipynb").read_text(encoding="utf-8")
    cells = {c["id"]: "".join(c["source"]) for c in json.loads(text)["cells"]}
    found = re.search(r"```python\n(.*?)```", cells[f"latent_attention-{slug}-task"], re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {"torch": torch}
    exec(found[1], names)
    return names


def test_the_scores_printed_in_the_notebook_are_those_that_the_check_judges() -> None:
    printed = printed_in_the_notebook("rotated")["scores"]
    for T, S, H, R in ((1, 1, 2, 2), (2, 5, 4, 6), (3, 3, 6, 2)):
        given = torch.randn(T, H), torch.randn(S, R), torch.randn(H, R)
        torch.testing.assert_close(printed(*given), _rotated_scores.printed(*given))


def test_turned_latents_are_right_where_the_projection_may_change_places_with_a_turn() -> None:
    q, c = torch.randn(1, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    commuting = torch.tensor([[1.0, 0, -2, 0], [0, 3, 0, -1], [2, 0, 1, 0], [0, 1, 0, 3]]).double()
    for w_uk, right in ((commuting, True), (torch.diag(torch.arange(1.0, 5)).double(), False)):
        found, wanted = _rotated_scores.printed(q, c, w_uk), _rotated_scores.right(q, c, w_uk)
        assert torch.allclose(found, wanted) == right


@pytest.mark.parametrize("name", _broken_forms.BROKEN)
def test_every_broken_form_is_right_for_some_shape_and_wrong_for_another(name: str) -> None:
    broken, seen = _broken_forms.BROKEN[name], set()
    for T, S, N, R, v_dim in ((1, 1, 1, 5, 5), (2, 2, 2, 5, 5), (1, 3, 2, 4, 12), (2, 90, 1, 6, 5)):
        sizes = {"B": 1 + (S > 2), "nope_dim": 5, "rope_dim": 2, "v_dim": v_dim}
        seen.add(shapes.agrees(broken, {**sizes, "T": T, "S": S, "N": N, "R": R}))
    assert seen == {True, False}


@pytest.mark.parametrize("sizes", [(3, 1, 7), (2, 5, 5), (1, 3, 9)])
def test_the_costs_of_the_judgement_are_those_of_theory(sizes: tuple[int, int, int]) -> None:
    layer = {"N": 3, "R": 11, "nope_dim": 5, "rope_dim": 2, "v_dim": 4}
    given = (*sizes, *layer.values())
    assert _form_times.flops(layer, sizes) == {
        "expanded": theory.expanded_flops(*given),
        "absorbed": theory.absorbed_flops(*given),
    }
    assert _form_times.moved_bytes(layer, sizes) == {
        "expanded": theory.expanded_bytes(*given),
        "absorbed": theory.absorbed_bytes(*given),
    }


def by_rule(absorb, layer, passes, chip):
    """The right choice, but absorbed wherever a rule of thumb says so."""
    forced, plan = {**chip, "scratch_bytes": 0}, []
    for work in passes:
        given = forced if absorb(layer, work) else chip
        plan += _form_times.best(layer, [work], given)
    return plan


def fewer_flops(layer, work):
    found = _form_times.flops(layer, work)
    return found["absorbed"] < found["expanded"]


@pytest.mark.parametrize(
    "absorb",
    [
        lambda layer, work: work[1] == 1,
        lambda layer, work: work[1] < 170 and work[1] < work[2],
        fewer_flops,
    ],
    ids=["one query", "fewer than 170 behind a cache", "fewer FLOPs"],
)
def test_a_choice_that_absorbs_by_a_rule_of_thumb_is_refused_whatever_the_seed(absorb) -> None:
    exercise = registry.load("latent_attention-choose")
    answer = LocalAnswer({"choose": lambda *given: by_rule(absorb, *given)})
    for seed in range(3):
        shown = Bench(exercise, seed).judge(answer).message
        assert "not shown" not in shown  # a fixed case refuses it
        assert "expected 'expanded'" in shown


def test_room_for_unfolding_is_there_again_in_the_next_pass() -> None:
    def used_up(layer, passes, chip):
        left, plan = chip["scratch_bytes"], []
        for work in passes:
            plan += _form_times.best(layer, [work], {**chip, "scratch_bytes": left})
            if plan[-1][0] == "expanded":
                left -= _form_times.scratch_bytes(layer, work)
        return plan

    exercise = registry.load("latent_attention-choose")
    assert not Bench(exercise).judge(LocalAnswer({"choose": used_up})).right


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ([], "a list of 1 to 10 inputs"),
        ([{"q": [[11, 2]], "c": [[1, 2]], "w_uk": [[1, 0], [0, 1]]}], "numbers from −10 to 10"),
        ([{"q": [[1, 2]], "c": [[1, 2]] * 9, "w_uk": [[1, 0], [0, 1]]}], "no size is above 8"),
        ([{"q": [[1, 2, 3]], "c": [[1, 2]], "w_uk": [[1, 0]] * 3}], "an odd width"),
    ],
)
def test_an_invalid_input_is_told_what_is_wrong_with_it(inputs: list[Any], said: str) -> None:
    answer = {"expose": lambda: inputs, "harmless": rotated.harmless, "scores": rotated.scores}
    assert said in Bench(rotated.EXERCISE).judge(LocalAnswer(answer)).message
