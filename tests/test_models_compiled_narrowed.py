"""A model in fp32 whose numbers are bf16 all along is read as such: the same logits, to the bit."""

from dataclasses import replace

import pytest
import torch

from twophase.kernels.mlp import ACTIVATIONS
from twophase.models import load
from twophase.models.compiled import CompiledTransformer, transformer
from twophase.models.compiled.narrowed import narrowed
from twophase.models.config import Config
from twophase.models.transformer import Transformer

GEMMA = Config(
    L=2, D=24, F=40, N=4, K=2, H=8, V=50, embedding_scale=24**0.5, norm_offset=1.0, context=32
)
MEMBERS = ["gqa", "mla", "local_global", "cross_layer", "linear", "ssm", "moe"]


def steps(model: Transformer, compiled: CompiledTransformer, n: int = 5) -> torch.Tensor:
    """Logits [n, V] of tokens behind a prompt."""
    ids = torch.arange(7 + n)[None] % model.config.V  # [1, 7 + n]
    cache = compiled.new_cache(1, 7 + n)
    model(ids[:, :7], cache)
    return torch.cat([compiled(ids[:, t : t + 1], cache, at=-1) for t in range(7, 7 + n)])


def as_it_lies(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> CompiledTransformer:
    with monkeypatch.context() as patch:
        patch.setattr(transformer, "narrowed", lambda model: None)
        return CompiledTransformer(model)


def rounded(config: Config) -> Transformer:
    torch.manual_seed(0)
    model = Transformer(config).eval().requires_grad_(False)
    for p in model.parameters():
        p.copy_(p.bfloat16().float())
    return model


@pytest.mark.parametrize("name", MEMBERS)
def test_logits_are_those_of_the_weights_where_they_lie(monkeypatch, name):
    model = load(name)
    compiled = CompiledTransformer(model)
    assert "reading weights as the bf16 that they are" in compiled.report
    assert torch.equal(steps(model, compiled), steps(model, as_it_lies(model, monkeypatch)))


def test_a_scaled_embedding_is_scaled_as_the_plain_model_scales_it(monkeypatch):
    """By a factor that bf16 would round."""
    model = rounded(GEMMA)
    compiled = CompiledTransformer(model)
    assert "reading weights as" in compiled.report
    assert torch.equal(steps(model, compiled), steps(model, as_it_lies(model, monkeypatch)))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_model_of_any_activation_is_read_as_such(activation):
    compiled = CompiledTransformer(rounded(replace(GEMMA, activation=activation)))
    assert "reading weights as" in compiled.report


@pytest.mark.parametrize("number", [1 + 2.0**-8, 1e-45, -3.1415927])
def test_one_number_that_is_no_bf16_and_nothing_is_narrowed(number):
    model = rounded(GEMMA)
    for p in (model.layers[1].mlp.down_proj.weight, model.norm.weight):
        kept = p.flatten()[3].clone()
        p.view(-1)[3] = number
        assert narrowed(model) is None
        assert "reading weights" not in CompiledTransformer(model).report
        p.view(-1)[3] = kept
    assert narrowed(model) is not None


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), 0.0, -0.0, 2.0**-133])
def test_numbers_at_the_ends_of_bf16_are_kept(number):
    model = rounded(GEMMA)
    model.norm.weight[3] = number
    copied = narrowed(model)
    assert copied is not None
    assert torch.equal(copied.norm.weight.float(), model.norm.weight)


def test_another_number_in_such_a_matrix_is_noticed():
    model = rounded(GEMMA)
    compiled, cache = CompiledTransformer(model), model.new_cache(1, 4)
    compiled(torch.ones(1, 1, dtype=torch.long), cache)
    model.layers[0].mlp.up_proj.weight.mul_(2)
    with pytest.raises(ValueError, match="make another CompiledTransformer"):
        compiled(torch.ones(1, 1, dtype=torch.long), cache)


def test_large_models_and_models_with_a_plain_part_are_read_where_they_lie(monkeypatch):
    model = rounded(GEMMA)
    handle = model.layers[1].mlp.register_forward_hook(lambda *_: None)
    part = CompiledTransformer(model)
    assert "reading weights" not in part.report
    assert "in plain torch, since a GatedMLP has hooks: MLP of layer 1" in part.report
    handle.remove()
    monkeypatch.setattr(transformer, "LARGE_BYTES", 100)
    assert "reading weights" not in CompiledTransformer(model, parallel=False).report
