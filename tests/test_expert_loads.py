"""Loads of a model's experts, seen from outside, and what the committed balancing runs rest on."""

from dataclasses import replace

import pytest
import torch

from twophase.kernels.mixture_of_experts import route
from twophase.models import balance, checkpoints
from twophase.models.config import Config
from twophase.models.expert_loads import expert_choices, fullest, load_shares
from twophase.models.mixture_of_experts import MixtureOfExperts


def test_the_choices_seen_are_those_of_the_router_and_the_hooks_are_gone_afterwards():
    model = checkpoints.load("moe")
    tokens = torch.arange(12)[None]
    logits: list[torch.Tensor] = []
    layer = model.layers[0].get_submodule("mlp.gate")
    hook = layer.register_forward_hook(lambda m, args, out: logits.append(out))
    with expert_choices(model) as chosen, torch.inference_mode():
        model(tokens)
        model(tokens[:, :3])
    hook.remove()
    assert [len(passes) for passes in chosen.values()] == [2] * model.config.L
    assert [len(p) for p in chosen[0]] == [12, 3]
    assert torch.equal(chosen[0][0], route(logits[0], 2)[0])
    with torch.inference_mode():
        model(tokens)
    assert len(chosen[0]) == 2


def test_a_model_without_experts_is_refused():
    with (
        pytest.raises(ValueError, match="no layer of this model"),
        expert_choices(checkpoints.load("gqa")),
    ):
        pass


def test_shares_are_fractions_of_tokens_and_the_fullest_is_held_against_the_mean():
    shares = load_shares(torch.tensor([[0, 1], [0, 2], [0, 1], [0, 3]]), 5)
    assert shares.tolist() == [1, 0.5, 0.25, 0.25, 0]
    assert fullest(shares) == 2.5
    assert fullest(load_shares(torch.tensor([[0], [1]]), 2)) == 1


def test_the_bias_falls_where_there_are_more_visits_than_the_mean_and_rises_elsewhere():
    sizes = replace(balance.SIZES, router_bias=True)
    layer = MixtureOfExperts(replace(balance.CONFIG, moe=sizes))
    shares = torch.tensor([0.5, 0.25, 0.25, 0.0, 0.25, 0.25, 0.25, 0.25], dtype=torch.float64)
    balance.move_bias(layer, shares, 0.5)
    assert layer.gate.e_score_correction_bias.tolist() == [-0.5, 0, 0, 0.5, 0, 0, 0, 0]
    with pytest.raises(ValueError, match="has no bias"):
        balance.move_bias(MixtureOfExperts(balance.CONFIG), shares)


def test_the_committed_runs_are_of_the_recipe_and_model_that_the_module_has():
    found = balance.result()
    assert Config(**found["config"]) == balance.CONFIG
    assert found["recipe"]["n_tokens"] == balance.RECIPE.n_tokens
    assert found["bias_step"] == balance.BIAS_STEP
    assert [r["way"] for r in found["runs"]] == [*balance.WAYS] * 2
    for run in found["runs"]:
        for row in run["held_out_shares"]:
            assert sum(row) == pytest.approx(balance.SIZES.k, abs=1e-3)
