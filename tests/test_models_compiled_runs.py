"""Layers in one call: whatever they may differ in, each is read in its own sizes, sees as far as it
should, and turns by its own angles."""

from dataclasses import replace

import pytest
import torch
from test_models_compiled import ODD, TOLERANCE, disagreement, random_model, tokens
from test_models_compiled_use import LINEAR, STATE_SPACE, TOKEN

from twophase.models.compiled import CompiledTransformer
from twophase.models.layer_sizes import LinearAttention, StateSpace
from twophase.models.transformer import Config
from twophase.theory.sizes import LayerWidths

WIDTHS = (LayerWidths(F=7, N=2, K=1), LayerWidths(F=20, N=6, K=3), LayerWidths(F=37, N=3, K=3))
MIXED = replace(ODD, attention=("sliding", "gqa", "sliding"), window=3)
HYBRID = replace(
    ODD, L=6, attention=("ssm", "ssm", "linear", "gqa", "linear", "ssm"),
    ssm=StateSpace(20, 4, 3, 2), linear=LinearAttention(feature_dim=4),
)  # fmt: skip


def names(compiled: CompiledTransformer) -> list[str]:
    return [type(half).__name__ for half in compiled._halves]


@pytest.mark.parametrize(("config", "calls"), [
    (replace(ODD, widths=WIDTHS), ["Run"]),
    (replace(ODD, widths=WIDTHS, kv_source=(0, 1, 1)), ["Run"]),
    (replace(MIXED, local_rope_theta=100.0, qkv_bias=True), ["Run"]),
    (replace(MIXED, kv_source=(0, 1, 0), qk_norm=True), ["Run"]),
    (replace(MIXED, learned_positions=64), ["Run"]),
    (replace(LINEAR, qkv_bias=True, o_bias=True, norm="layer"), ["StateRun"]),
    (replace(STATE_SPACE, gated_mlp=False, mlp_bias=True), ["StateRun"]),
    (HYBRID, ["StateRun", "StateRun", "Run", "StateRun", "StateRun"]),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("narrow", [False, True], ids=["fp32", "bf16 in fp32"])
def test_layers_of_one_call_may_differ_in_sizes_and_sight_and_find_what_each_finds_alone(
    config: Config, calls, narrow
):
    model = random_model(config)
    if narrow:  # numbers that are bf16: loops read half the bytes
        model = model.bfloat16().float()
    compiled = CompiledTransformer(model)
    assert names(compiled) == calls
    for _ in range(2):  # each time with another cache
        assert disagreement(model, compiled, tokens(model, 24), prompt=3) < TOLERANCE


def test_angles_of_both_kinds_grow_with_the_positions():
    """Tables are made for 256 positions at first."""
    model = random_model(replace(MIXED, local_rope_theta=100.0))
    compiled, caches = CompiledTransformer(model), [model.new_cache(1, 300) for _ in "ab"]
    ids = tokens(model, 260)
    with torch.inference_mode():
        compiled(ids[:, :1], caches[0])
        model(ids[:, :1], caches[1])
        for cache in caches:
            model(ids[:, 1:255], cache)
        for t in range(255, 260):
            found, wanted = (
                run(ids[:, t : t + 1], cache)
                for run, cache in zip((compiled, model), caches, strict=True)
            )
            assert (found - wanted).abs().max() < TOLERANCE * wanted.std()


@pytest.mark.parametrize("config", [LINEAR, STATE_SPACE], ids=["linear", "ssm"])
def test_a_state_in_another_dtype_is_refused_before_loops_read_its_bytes(config):
    model = random_model(config)
    cache = model.new_cache(1, 9)
    for store in cache.stores.values():
        store.held = tuple(held.bfloat16() for held in store.held)
    with pytest.raises(ValueError, match="make one with `new_cache` of this model"):
        CompiledTransformer(model)(TOKEN, cache)


@pytest.mark.parametrize("config", [LINEAR, STATE_SPACE, HYBRID], ids=["linear", "ssm", "hybrid"])
def test_states_that_were_put_into_a_cache_are_those_that_are_read(config):
    model = random_model(config)
    compiled, cache, other = CompiledTransformer(model), *(model.new_cache(1, 9) for _ in "ab")
    compiled(TOKEN, cache)
    model(tokens(model, 1), other)
    cache.stores = dict(other.stores)
    cache._states = other._states
    found, wanted = compiled(TOKEN, cache, commit=False), model(TOKEN, other, commit=False)
    assert (found - wanted).abs().max() < TOLERANCE * wanted.std()
