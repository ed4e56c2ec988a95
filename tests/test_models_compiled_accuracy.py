"""How far the compiled path is from fp64, and the plain path: equally far. A norm of few numbers
that lie near each other divides by a root of hardly more than eps, so it magnifies what was rounded
before it up to 1/sqrt(eps), a thousandfold: there no two ways to compute in fp32 agree to 1e-5."""

import copy
from dataclasses import replace
from statistics import median

import pytest
import torch
from test_models_compiled import TOLERANCE, random_model, steps, tokens

from twophase.models.compiled import CompiledTransformer
from twophase.models.layer_sizes import LinearAttention, StateSpace
from twophase.models.transformer import Config, Transformer
from twophase.theory.sizes import LatentAttention

LENGTH = 10
NEIGHBORS = 31
# How much further the compiled path may be than the plain one, in the median of the neighbors of a
# model. Of 52 models that a search had found, with 24 neighbors each, it was 0.1 to 2.1 times as
# far, 0.9 in the middle; with a variance as E[x²] - E[x]² it is 200 times as far for "window".
FACTOR = 4.0

TINY = Config(L=2, D=3, F=1, N=1, K=1, H=2, V=5, tied=False, norms_per_layer=4)
LAYER_NORMS = replace(TINY, norm="layer")
# Configs, each with that of the seeds below 250 whose paths were furthest from fp64.
GENERATED = {
    "latents": (
        replace(LAYER_NORMS, attention="mla", mla=LatentAttention(2, 2, 2, 2), activation="gelu"),
        8,
    ),
    "grouped queries": (replace(TINY, D=5, N=4, K=2, H=6, V=31, qkv_bias=True), 210),
    "window": (
        replace(
            LAYER_NORMS, L=3, D=2, N=2, H=5, norms_per_layer=2, learned_positions=32,
            attention="sliding", window=2, gated_mlp=False, mlp_bias=True, activation="gelu",
        ),
        47,
    ),
    "linear": (
        replace(
            LAYER_NORMS, D=5, N=2, K=2, H=4, attention="linear", linear=LinearAttention(6),
            activation="relu", norm_eps=1e-5,
        ),
        238,
    ),
    "ssm": (replace(TINY, L=3, D=2, F=2, attention="ssm", ssm=StateSpace(2, 1, 3, 2)), 123),
    "one number": (replace(TINY, D=1, F=37, N=3, H=5, learned_positions=32, norm_offset=1.0), 126),
}  # fmt: skip


def exact_logits(model: Transformer, ids: torch.Tensor) -> torch.Tensor:
    """Logits [T, V] of tokens [1, T] in fp64, all at once and without a cache, whose states are
    fp32. Norms, routers and tables of RoPE ask for `float()`, whatever the model computes in."""
    with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        logits: torch.Tensor = copy.deepcopy(model).double()(ids)[0]
    assert logits.dtype == torch.float64
    return logits


def distances(model: Transformer) -> tuple[float, float]:
    """The largest distance of logits from fp64, of the compiled path and of the plain one: as a
    share of the logit, where that is above 1."""
    ids = tokens(model, LENGTH)
    exact = exact_logits(model, ids)
    found = (
        torch.stack(list(steps(run, model.new_cache(1, LENGTH), ids)))
        for run in (CompiledTransformer(model), model)
    )
    ours, plain = (float(((x - exact).abs() / exact.abs().clamp(min=1)).max()) for x in found)
    return ours, plain


def neighbor(model: Transformer, seed: int) -> Transformer:
    """The model with all its numbers moved by a thousandth at most."""
    generator = torch.Generator().manual_seed(seed)
    near = copy.deepcopy(model)
    for p in near.parameters():
        p.mul_(1 + 1e-3 * (2 * torch.rand(p.shape, generator=generator) - 1))
    return near


@pytest.mark.parametrize("name", GENERATED)
def test_the_compiled_path_is_as_near_to_fp64_as_the_plain_one(name):
    """In the median of neighbors: one distance is one draw of what fp32 rounds away, and by luck
    the plain path is 30 times nearer in one model and 30 times further in the next."""
    config, seed = GENERATED[name]
    model = random_model(config, seed)
    found = [distances(neighbor(model, i)) for i in range(NEIGHBORS)]
    ours, plain = zip(*found, strict=True)
    assert max(plain) > TOLERANCE  # else there were nothing to see here
    assert median(ours) < FACTOR * median(plain) + TOLERANCE


def test_what_gelu_tanh_makes_of_a_negative_number_has_all_its_digits():
    """It is small there, and with one number inside the MLP the norm behind magnifies it. By the
    formula as it is written, which adds to 1 what is nearly -1, both paths were 3e-5 to 9e-5 off.
    """
    config = replace(LAYER_NORMS, D=5, L=1, gated_mlp=False, activation="gelu_tanh", mlp_bias=True)
    model = random_model(config)
    mlp = model.layers[0].mlp
    mlp.down_proj.bias.zero_()
    for bias in (-3.0, -4.0, -5.0):
        mlp.up_proj.bias.fill_(bias)
        ours, _ = distances(model)
        assert ours < TOLERANCE
