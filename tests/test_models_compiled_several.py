"""A pass of a few tokens of one sequence in loops is the plain model's, whatever the layers, the
cache and the part of the tokens that stays; what is drafted on it is what the target says."""

import copy
import os
import subprocess
import sys
from dataclasses import replace
from itertools import accumulate

import pytest
import torch
from hugging_face_cases import CASES, FAMILY_USUAL, USUAL, Case
from test_models_compiled import DECODERS, ODD, TOLERANCE, TOLERANCE_OF, random_model, tokens
from test_models_compiled_use import LATENT, LINEAR, SLIDING, STATE_SPACE
from torch import nn

from twophase.kernels.quantization.integers import IntegerFormat
from twophase.models.checkpoints import load
from twophase.models.compiled import CompiledTransformer, several
from twophase.models.compiled.several_halves import (
    SeveralAttention,
    SeveralMLP,
    SeveralRun,
    SeveralStateRun,
)
from twophase.models.compiled.transformer import MOST
from twophase.models.hugging_face.config import read_config
from twophase.models.quantize import quantize
from twophase.models.transformer import Transformer

# passes of so many tokens, of which so many stay: lone ones between them, all, none, some
PASSES = [(1, 1), (2, 2), (5, 3), (1, 1), (7, 0), (MOST, 4), (3, 3), (4, 1), (1, 1), (6, 6)]
SHARED = replace(ODD, L=5, kv_source=(0, 0, 0, 3, 3))


def disagreement(
    model: Transformer, compiled, passes, prompt: int, dtype=None, rollback: int = MOST
) -> float:
    """The largest difference of logits, in deviations, over these passes behind a prompt."""
    worst, stay = 0.0, sum(kept for _, kept in passes)
    ids = tokens(model, prompt + stay + MOST)
    caches = [model.new_cache(1, ids.shape[1], rollback=rollback, dtype=dtype) for _ in range(2)]
    with torch.inference_mode():
        for cache in caches:
            if prompt:
                model(ids[:, :prompt], cache)
        for T, kept in passes:
            start = caches[0].length
            block = ids[:, start : start + T]
            plain, ours = (
                run(block, cache, commit=False)
                for run, cache in zip((model, compiled), caches, strict=True)
            )
            assert ours.shape == (1, T, model.config.V)
            worst = max(worst, float((plain - ours).abs().max() / plain.float().std()))
            for cache in caches:
                cache.commit(kept)
    return worst


def made_of(compiled: CompiledTransformer) -> list[type]:
    """What a pass of several tokens is made of."""
    compiled(torch.tensor([[1, 2]]), compiled.new_cache(1, 2))
    return [type(half) for half in compiled._several.halves]


@pytest.mark.parametrize("name", DECODERS)
def test_every_member_of_the_family_has_the_same_logits(name):
    model = load(name)
    compiled = CompiledTransformer(model)
    assert disagreement(model, compiled, PASSES, prompt=29) < TOLERANCE_OF.get(name, TOLERANCE)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_family_of_hugging_face_has_the_same_logits(case: Case):
    given = {**USUAL, **FAMILY_USUAL.get(case.family, {}), **case.more, "model_type": case.family}
    model = random_model(read_config(given))
    assert disagreement(model, CompiledTransformer(model), PASSES, prompt=3) < TOLERANCE


@pytest.mark.parametrize("more", [
    {"norm": "layer", "learned_positions": 64, "gated_mlp": False, "activation": "gelu"},
    {"activation": "relu", "qkv_bias": True, "o_bias": True, "mlp_bias": True},
    {"K": 1, "rope_pairing": "interleaved", "rotary_dim": 6},
    {"K": 6, "score_cap": 2.0, "logit_cap": 3.0, "embedding_scale": 4.7, "norm_offset": 1.0},
    {"kv_source": (0, 0, 2), "attention": "sliding", "window": 5, "qk_norm": True},
    {"norms_per_layer": 4, "norm": "layer", "attention": ("gqa", "sliding", "gqa"), "window": 1},
    {"D": 80, "F": 144, "N": 5, "K": 5, "H": 16},
    {"attention": "sliding", "window": 3},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("prompt", [0, 1, 17])
def test_whatever_a_config_can_say_is_in_the_loops(more, prompt):
    model = random_model(replace(ODD, **more))
    compiled = CompiledTransformer(model)
    assert set(made_of(compiled)) <= {SeveralRun, SeveralAttention, SeveralMLP}
    assert disagreement(model, compiled, PASSES, prompt) < TOLERANCE


@pytest.mark.parametrize("config", [SLIDING, LATENT, LINEAR, STATE_SPACE, SHARED], ids=str)
def test_layers_of_every_kind_do_their_part_in_loops_or_in_torch(config):
    model = random_model(config)
    assert disagreement(model, CompiledTransformer(model), PASSES, prompt=3) < TOLERANCE


@pytest.mark.parametrize("rollback", [0, 2, 4])
@pytest.mark.parametrize("config", [
    LINEAR, STATE_SPACE, replace(STATE_SPACE, attention=("ssm", "gqa", "ssm")),
], ids=str)  # fmt: skip
def test_a_state_takes_in_several_tokens_in_loops_whatever_it_can_give_back(config, rollback):
    """Where a pass is longer than what can be taken back, all of it stays, or nothing."""
    compiled = CompiledTransformer(random_model(config))
    assert set(made_of(compiled)) <= {SeveralStateRun, SeveralRun}
    whole = [(5, 5), (1, 1), (4, 0), (MOST, MOST), (2, 2), (3, 0), (1, 1), (6, 6), (1, 1)]
    short = [(T, kept if rollback + 1 >= T else T) for T, kept in [(3, 2), (5, 1), (2, 0), (4, 4)]]
    for passes in (whole, short, [*short, *whole]):
        found = disagreement(compiled.model, compiled, passes, 3, rollback=rollback)
        assert found < TOLERANCE


def test_layers_that_read_the_keys_of_others_may_be_a_run():
    model = random_model(replace(SHARED, kv_source=(0, 1, 0, 1, 1)))
    compiled = CompiledTransformer(model)
    assert made_of(compiled) == [SeveralRun]
    assert disagreement(model, compiled, PASSES, prompt=3) < TOLERANCE


@pytest.mark.parametrize("parallel", [False, True])
def test_bf16_weights_are_read_as_they_are(parallel):
    """Against the same numbers in fp32: only the rounding of the stream in torch is left out."""
    model = random_model(replace(ODD, D=96, F=128, H=32)).bfloat16()
    compiled = CompiledTransformer(model, parallel=parallel)
    wide = copy.deepcopy(model).float()
    assert disagreement(wide, compiled, PASSES, prompt=0, dtype=torch.float32) < TOLERANCE
    # a cache in bf16 rounds keys and values, by 2**-9 at most, and little else
    assert disagreement(wide, compiled, PASSES, prompt=0, dtype=torch.bfloat16) < 0.05
    logits = compiled(torch.tensor([[1, 2, 3]]), compiled.new_cache(1, 9))
    assert logits.dtype == torch.float32


def test_a_quantized_model_keeps_its_logits():
    model = quantize(load("gqa"), "nearest", IntegerFormat(8, 32))
    assert disagreement(model, CompiledTransformer(model), PASSES, prompt=9) < 10 * TOLERANCE


@pytest.mark.parametrize("heard", ["layers.0", "layers.0.self_attn.k_proj", "layers.1.self_attn"])
@pytest.mark.parametrize("kind", ["gqa", "sliding"])
def test_keys_made_in_torch_are_read_by_other_layers_and_those_of_loops_in_torch(kind, heard):
    model = random_model(replace(SHARED, attention=kind, window=5))
    model.get_submodule(heard).register_forward_hook(lambda *_: None)
    assert disagreement(model, CompiledTransformer(model), PASSES, prompt=3) < TOLERANCE


@pytest.mark.parametrize("at", [0, 3, -1, -4, torch.tensor(2), torch.tensor([-2])])
def test_one_token_may_be_asked_for(at):
    model = random_model(ODD)
    compiled, ids = CompiledTransformer(model), tokens(model, 4)
    with torch.inference_mode():
        plain, ours = (run(ids, run.new_cache(1, 4), at=at) for run in (model, compiled))
    assert ours.shape == (1, model.config.V)
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)


def test_more_tokens_than_loops_are_for_a_tree_and_several_sequences_are_the_plain_models(
    monkeypatch,
):
    model = random_model(ODD)
    compiled = CompiledTransformer(model)
    made_of(compiled)
    monkeypatch.setattr(several.Several, "__call__", nn.Module.forward)  # must not be called
    ids = tokens(model, MOST + 1)
    with torch.inference_mode():
        for block, options in (
            (ids, {}),
            (ids[:, :3], {"tree": torch.eye(3, dtype=torch.bool)}),
            (ids[:, :4].view(2, 2), {}),
            (ids[:, :4], {"n_new": [3]}),
            (ids[:, :3], {"positions": torch.arange(3)}),
        ):
            plain, ours = (
                run(block, run.new_cache(len(block), MOST + 1), commit=False, **options)
                for run in (model, compiled)
            )
            assert torch.equal(plain, ours)


@pytest.mark.parametrize("accepted", [(1, 1, 1), (4, 2, 5), (0, 0, 3)])
def test_rings_keep_what_stays_of_every_pass(accepted):
    """After any number of tokens that stay, one more token sees the same window."""
    model = random_model(replace(SLIDING, window=6))
    compiled, ids = CompiledTransformer(model), tokens(model, 24)
    cache = model.new_cache(1, 24, rollback=MOST)
    ends = [*accumulate(accepted, initial=7)]
    with torch.inference_mode():
        model(ids[:, :7], cache)
        for end, n in zip(ends, accepted, strict=False):
            compiled(ids[:, end : end + 5], cache, commit=False)
            cache.commit(n)
        end = ends[-1]
        ours, plain = compiled(ids[:, end : end + 1], cache), model(ids[:, : end + 1])[:, -1:]
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.more
def test_nothing_is_read_or_written_beyond_its_bounds(tmp_path):
    """The same in another process, where Numba checks every index (but for those of registers)."""
    program = (
        "import test_models_compiled_several as t; from dataclasses import replace\n"
        "for config in (t.ODD, t.SLIDING, t.SHARED, replace(t.ODD, D=80, F=144, N=4, H=32)):\n"
        "    model = t.random_model(config)\n"
        "    compiled = t.CompiledTransformer(model)\n"
        "    assert t.disagreement(model, compiled, t.PASSES, 3) < t.TOLERANCE\n"
    )
    here = os.path.dirname(__file__)
    checks = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_OPT": "1"}
    paths = {"PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])}
    subprocess.run([sys.executable, "-c", program], env=os.environ | checks | paths, check=True)
