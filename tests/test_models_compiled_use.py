"""The compiled decode step as people use it: on caches of other models, after changes, with layers
of their own, from several threads, in forked processes. Right, or refused in one sentence."""

import copy
import io
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
import torch
from test_models_compiled import ODD, TOLERANCE, disagreement, random_model, steps, tokens
from torch import nn

from twophase.kernels.mlp import ACTIVATIONS
from twophase.models.compiled import CompiledTransformer
from twophase.models.compiled.transformer import MOST
from twophase.models.generate import complete, on_path
from twophase.models.layer_sizes import LinearAttention, StateSpace
from twophase.models.linear import Linear
from twophase.models.norm import LayerNorm
from twophase.models.transformer import Config, Transformer
from twophase.theory.sizes import LatentAttention

TOKEN = torch.tensor([[3]])
SLIDING = replace(ODD, attention="sliding", window=8)
LATENT = replace(ODD, attention="mla", mla=LatentAttention(12, 4, 6, 5, None))
LINEAR = replace(ODD, attention="linear", linear=LinearAttention(feature_dim=4))
STATE_SPACE = replace(ODD, attention="ssm", ssm=StateSpace(20, 4, 3, 2))


def test_all_kinds_of_odd_sizes_are_the_plain_model():
    for config in (SLIDING, LATENT, LINEAR, STATE_SPACE):
        model = random_model(config)
        compiled = CompiledTransformer(model)
        assert not compiled.plain
        assert disagreement(model, compiled, tokens(model, 20), prompt=3) < TOLERANCE


@pytest.mark.parametrize(("config", "other"), [
    (SLIDING, replace(SLIDING, window=4)),
    (LATENT, replace(LATENT, mla=LatentAttention(11, 4, 6, 5, None))),
    (LATENT, replace(LATENT, mla=LatentAttention(12, 2, 6, 5, None))),
    (LINEAR, replace(LINEAR, linear=LinearAttention(feature_dim=6))),
    (STATE_SPACE, replace(STATE_SPACE, ssm=StateSpace(18, 4, 3, 2))),
    (STATE_SPACE, replace(STATE_SPACE, ssm=StateSpace(20, 4, 4, 2))),
])  # fmt: skip
def test_a_cache_with_other_sizes_is_refused_before_memory_beyond_it_is_touched(
    config: Config, other: Config
):
    compiled, cache = CompiledTransformer(random_model(config)), random_model(other).new_cache(1, 9)
    with pytest.raises(ValueError, match="make one with `new_cache` of this model"):
        compiled(TOKEN, cache)
    assert cache.length == 0


@pytest.mark.parametrize(("own", "others"), [
    ("sliding", ("gqa", "sliding", "sliding")),
    ("sliding", ("sliding", "gqa", "sliding")),
    ("sliding", ("sliding", "sliding", "gqa")),
])  # fmt: skip
def test_a_cache_whose_layers_differ_is_refused_where_those_of_the_model_do_not(own, others):
    """Loops take the first layer's slots for all: they would write behind a ring."""
    config = replace(SLIDING, L=3, attention=own)
    compiled = CompiledTransformer(random_model(config))
    cache = random_model(replace(config, attention=others)).new_cache(1, 64)
    with pytest.raises(ValueError, match="make one with `new_cache` of this model"):
        compiled(TOKEN, cache)
    assert cache.length == 0


def test_a_cache_with_a_layer_in_another_dtype_is_refused():
    model = random_model(ODD)
    cache, other = model.new_cache(1, 64), random_model(ODD).bfloat16().new_cache(1, 64)
    cache.stores[1] = other.stores[1]
    with pytest.raises(ValueError, match=r"layer 1 of this cache holds .* in bfloat16"):
        CompiledTransformer(model)(TOKEN, cache)


def test_tables_that_were_not_finished_are_made_again(monkeypatch):
    model = random_model(ODD)
    compiled, cache = CompiledTransformer(model), model.new_cache(1, 2000)
    compiled(TOKEN, cache)  # tables for 256 positions
    model(tokens(model, 1500), cache)

    def broken_off(positions):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(model, "rope", broken_off)
        with pytest.raises(KeyboardInterrupt):
            compiled(TOKEN, cache)
    found = compiled(TOKEN, cache, commit=False)
    torch.testing.assert_close(found, model(TOKEN, cache, commit=False), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("wrong", [3.7, True])
def test_what_are_no_tokens_is_refused_as_in_the_plain_model(wrong):
    model = random_model(ODD)
    for run in (model, CompiledTransformer(model)):
        with pytest.raises(ValueError, match="tokens are whole numbers in a tensor"):
            run(torch.tensor([[wrong]]), model.new_cache(1, 4))


@pytest.mark.parametrize("B", [1, 2])
def test_a_token_beyond_the_positions_that_were_learned_is_refused_at_every_batch(B):
    model = random_model(replace(ODD, learned_positions=2))
    for run in (model, CompiledTransformer(model)):
        cache = model.new_cache(B, 9)
        for _ in range(2):
            run(TOKEN.expand(B, 1), cache)
        with pytest.raises(ValueError, match="has learned 2 positions"):
            run(TOKEN.expand(B, 1), cache)
        assert cache.length == 2


def test_a_tensor_that_asks_for_a_token_beyond_the_new_ones_is_refused():
    model = random_model(ODD)
    for run in (model, CompiledTransformer(model)):
        assert run(TOKEN, model.new_cache(1, 4), at=torch.tensor([-1])).shape == (1, ODD.V)
        for wrong in (torch.tensor([1]), torch.tensor(5), torch.tensor([-2], dtype=torch.int32)):
            with pytest.raises(ValueError, match="`at` is a token's number, -1 to 0"):
                run(TOKEN, model.new_cache(1, 4), at=wrong)
        at = torch.tensor([0, 2])  # the second sequence has no such token
        with pytest.raises(ValueError, match=r"`at` is a token's number, -2 to 1, or int64 \[2\]"):
            run(TOKEN.expand(2, 2), model.new_cache(2, 4), at=at)


def other_forward(model: Transformer) -> None:
    up = model.layers[0].mlp.up_proj
    own = up.forward
    up.forward = lambda x: own(x) * 1.5  # as some libraries put adapters in


def sequence(model: Transformer) -> None:
    model.layers[0].mlp.up_proj = nn.Sequential(model.layers[0].mlp.up_proj)


def layer_norm_of_heads(model: Transformer) -> None:
    norm = LayerNorm(ODD.H, ODD).requires_grad_(False)
    norm.bias.fill_(0.7)
    model.layers[0].self_attn.q_norm = norm


def another_eps(model: Transformer) -> None:
    model.layers[0].self_attn.k_norm.eps = 1.0


@pytest.mark.parametrize("change", [other_forward, sequence, layer_norm_of_heads, another_eps])
def test_a_part_of_another_making_runs_in_torch(change):
    model = random_model(replace(ODD, qk_norm=True))
    change(model)
    compiled = CompiledTransformer(model)
    assert len(compiled.plain) == 1
    assert disagreement(model, compiled, tokens(model, 9), prompt=3) < TOLERANCE


def test_an_eps_of_the_norms_of_heads_is_theirs():
    model = random_model(replace(ODD, qk_norm=True))
    for name in ("q_norm", "k_norm"):
        getattr(model.layers[0].self_attn, name).eps = 1.0
    compiled = CompiledTransformer(model)
    assert not compiled.plain
    assert disagreement(model, compiled, tokens(model, 9), prompt=3) < TOLERANCE


def test_a_projection_to_steps_that_got_a_bias_runs_in_torch():
    model = random_model(STATE_SPACE)
    mixer = model.layers[1].self_attn
    mixer.x_proj = nn.Linear(20, 10).requires_grad_(False)
    mixer.x_proj.bias.fill_(0.5)
    compiled = CompiledTransformer(model)
    assert set(compiled.plain) == {"attention of layer 1"}
    assert disagreement(model, compiled, tokens(model, 9), prompt=3) < TOLERANCE


@pytest.mark.parametrize("listened", [False, True])
def test_the_report_says_which_prompts_run_in_torch_and_they_do(listened, monkeypatch):
    """Loops for a few tokens are those of MLPs here: latents have none, nor what somebody hears."""
    model = random_model(LATENT)
    for layer in model.layers if listened else ():
        layer.mlp.register_forward_hook(lambda *_: None)
    compiled = CompiledTransformer(model, parallel=False)
    most, which, end = MOST, f" of more than {MOST} tokens, or of several sequences,", "."
    if listened:
        most, which, end = 1, "", "; in plain torch, since a GatedMLP has hooks"
    said = f"compiled path, on one core; prompts{which} in plain torch{end}"
    assert compiled.report.startswith(said)
    forward, in_torch = Transformer.forward, []

    def noted(model: Transformer, ids: torch.Tensor, *given, **options):
        in_torch.append(ids.shape)
        return forward(model, ids, *given, **options)

    monkeypatch.setattr(Transformer, "forward", noted)
    passes = [(1, 1), (3, 1), (1, 2), (1, MOST), (1, MOST + 1), (2, 2)]
    for B, T in passes:
        compiled(torch.ones(B, T, dtype=torch.int64), compiled.new_cache(B, T))
    assert in_torch == [(B, T) for B, T in passes if (most if B == 1 else 1) < T]


def in_a_file(model: Transformer) -> Transformer:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("copied", [copy.deepcopy, in_a_file])
def test_a_copy_of_a_model_runs_in_the_same_loops(copied, activation):
    model = random_model(replace(ODD, activation=activation))
    compiled = CompiledTransformer(copied(model))
    assert not compiled.plain
    assert compiled.report == CompiledTransformer(model).report


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))])
@pytest.mark.parametrize("parallel", [False, True])
def test_a_copy_of_a_compiled_model_is_one_of_its_own_model(copied, parallel):
    compiled = CompiledTransformer(random_model(ODD), parallel=parallel)
    other = copied(compiled)
    assert (other.parallel, other.report) == (parallel, compiled.report)
    assert other.model is not compiled.model
    found, expected = (run(TOKEN, run.new_cache(1, 4)) for run in (other, compiled))
    assert torch.equal(found, expected)
    compiled.model.norm.weight.zero_()  # which is not that of the copy
    assert torch.equal(other(TOKEN, other.new_cache(1, 4)), expected)


def test_a_model_that_somebody_listens_to_as_a_whole_is_refused():
    model = random_model(ODD)
    model.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="the whole model has hooks"):
        CompiledTransformer(model)


def test_hooks_around_all_modules_there_are_are_noticed_before_and_after():
    model = random_model(ODD)
    compiled = CompiledTransformer(model)
    compiled(TOKEN, model.new_cache(1, 4))
    hook = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        with pytest.raises(ValueError, match="got a hook after its loops were made"):
            compiled(TOKEN, model.new_cache(1, 4))
        with pytest.raises(ValueError, match="hooks are called around every module"):
            CompiledTransformer(model)
    finally:
        hook.remove()
    compiled(TOKEN, model.new_cache(1, 4))


@pytest.mark.parametrize("B", [1, 2])
def test_a_hook_of_the_whole_model_that_comes_later_is_noticed_at_every_batch(B):
    model = random_model(ODD)
    compiled = CompiledTransformer(model)
    for _ in range(2):  # what runs batches is found in the first of them
        compiled(TOKEN.expand(B, 1), model.new_cache(B, 4))
    model.register_forward_hook(lambda module, given, logits: logits * 0)
    with pytest.raises(ValueError, match="got a hook after its loops were made"):
        compiled(TOKEN.expand(B, 1), model.new_cache(B, 4))


@pytest.mark.parametrize("change", [
    lambda model: model.load_state_dict(random_model(ODD, seed=5).state_dict()),
    lambda model: model.load_state_dict(random_model(ODD, seed=5).state_dict(), assign=True),
    lambda model: model.bfloat16(),
    lambda model: setattr(model.layers[0].mlp, "up_proj", Linear(ODD.D, ODD.F)),
    lambda model: setattr(model.layers[0].mlp.up_proj, "weight", nn.Parameter(torch.ones(37, 22))),
    lambda model: model.load_state_dict(
        {"layers.1.self_attn.o_proj.weight": torch.zeros(22, 60)}, strict=False, assign=True
    ),
    lambda model: model.layers.__delitem__(2),
    lambda model: model.layers[0].bfloat16().float(),
    lambda model: model.layers[1].mlp.up_proj.bfloat16().float(),
    lambda model: model.norm.bfloat16().float(),
])  # fmt: skip
def test_a_model_with_other_numbers_than_its_loops_is_refused(change):
    model = random_model(ODD)
    compiled = CompiledTransformer(model)
    compiled(TOKEN, model.new_cache(1, 4))
    change(model)
    with pytest.raises(ValueError, match="make another CompiledTransformer"):
        compiled(TOKEN, model.new_cache(1, 4))
    assert disagreement(model, CompiledTransformer(model), tokens(model, 4), prompt=3) < 0.1


def test_layers_in_another_order_are_noticed():
    model = random_model(ODD)
    compiled, held = CompiledTransformer(model), model.layers._modules
    held["0"] = held.pop("0")
    with pytest.raises(ValueError, match="the model was changed"):
        compiled(TOKEN, model.new_cache(1, 4))


def test_a_buffer_of_one_number_that_was_replaced_by_its_equal_is_noticed():
    """To torch the two are equal: so whether it is the same object has to be asked."""
    model = random_model(ODD)
    model.layers[0].register_buffer("lone", torch.tensor([2.0]))
    compiled = CompiledTransformer(model)
    compiled(TOKEN, model.new_cache(1, 4))
    model.layers[0].lone = torch.tensor([2.0])
    with pytest.raises(ValueError, match="make another CompiledTransformer"):
        compiled(TOKEN, model.new_cache(1, 4))


@pytest.mark.parametrize("more", [
    {}, {"attention": "sliding", "window": 5}, {"learned_positions": 64, "norm": "layer"},
    {"gated_mlp": False, "qkv_bias": True, "logit_cap": 3.0, "embedding_scale": 2.0},
    {"attention": ("sliding", "gqa", "sliding"), "window": 3, "kv_source": (0, 1, 0)},
], ids=str)  # fmt: skip
def test_a_step_in_one_call_is_the_step_in_three(more):
    """Near, not bit for bit: LLVM may sum in another order in another function. (Once they differed
    in a last place, in one case of one run, and never again. It is what happens where the code of
    one was compiled under other settings of Numba; `compiling` keeps these apart since.)"""
    model = random_model(replace(ODD, **more))
    whole, parts = CompiledTransformer(model), CompiledTransformer(model)
    assert whole._whole is not None
    parts._whole = None
    for _ in range(2):  # each time with another cache
        caches, ids = [model.new_cache(1, 12) for _ in range(2)], tokens(model, 10)
        for t in range(10):
            one, other = (
                run(ids[:, t : t + 1], cache, at=-1)
                for run, cache in zip((whole, parts), caches, strict=True)
            )
            assert (one - other).abs().max() < TOLERANCE * one.std()
        assert caches[0].lengths == caches[1].lengths == (10,)


def test_stores_that_were_put_into_a_cache_are_those_that_a_step_in_one_call_reads():
    model = random_model(ODD)
    compiled, cache, other = CompiledTransformer(model), *(model.new_cache(1, 9) for _ in range(2))
    for held in (cache, other):
        compiled(TOKEN, held)
    model(TOKEN + 1, other)
    cache.stores, cache._rows = other.stores, other._rows
    expected = model(TOKEN, other, commit=False)
    assert float((compiled(TOKEN, cache) - expected).abs().max()) < TOLERANCE


def test_a_hook_that_comes_later_is_noticed_again_and_again():
    model = random_model(ODD)
    compiled = CompiledTransformer(model)
    compiled(TOKEN, model.new_cache(1, 4))
    nn.Linear(2, 2).register_forward_hook(lambda *_: None)  # of somebody else
    compiled(TOKEN, model.new_cache(1, 4))
    hook = model.layers[1].mlp.register_forward_pre_hook(lambda *_: None)
    for _ in range(2):
        with pytest.raises(ValueError, match="got a hook after its loops were made"):
            compiled(TOKEN, model.new_cache(1, 4))
    hook.remove()
    compiled(TOKEN, model.new_cache(1, 4))


def test_a_layer_that_sees_every_token_refuses_the_ring_of_another_model():
    """Else it would see as many as that ring keeps, and say nothing."""
    model, other = random_model(ODD), random_model(SLIDING)
    for run in (model, CompiledTransformer(model)):
        for n in (1, 2):
            with pytest.raises(ValueError, match="sees every token, and this cache keeps the last"):
                run(TOKEN.expand(n, 1), other.new_cache(n, 20))


def test_a_compiled_model_generates_as_the_plain_one_does():
    model = random_model(ODD)
    compiled = CompiledTransformer(model)
    expected = complete(model, [3, 4], 6).tokens
    for path in ("plain", "compiled"):
        assert complete(compiled, [3, 4], 6, path=path).tokens == expected
    assert on_path(compiled, "compiled") is compiled


def test_a_stream_of_zeros_is_divided_as_torch_divides():
    model = random_model(replace(ODD, norm_eps=1e-60))  # 0 in fp32
    model.embed_tokens.weight.zero_()
    for run in (model, CompiledTransformer(model)):
        assert run(TOKEN, model.new_cache(1, 4)).isnan().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_default_dtype_of_torch_changes_nothing(dtype):
    model = random_model(replace(ODD, learned_positions=16))
    compiled, two = CompiledTransformer(model), torch.tensor([[3], [4]])
    torch.set_default_dtype(dtype)
    try:
        for token in (TOKEN, two):
            caches = [model.new_cache(len(token), 4) for _ in range(2)]
            plain, ours = (run(token, c) for run, c in zip((model, compiled), caches, strict=True))
            assert (plain - ours).abs().max() < TOLERANCE * plain.std()
    finally:
        torch.set_default_dtype(torch.float32)


SCALED = replace(ODD, embedding_scale=2.0)


@pytest.mark.parametrize("config", [SCALED, SLIDING, LATENT, LINEAR, STATE_SPACE])
def test_the_default_device_of_torch_changes_nothing(config):
    """Else loops would get the addresses of tensors that are not in the CPU's memory."""
    model = random_model(config)
    for ids in (TOKEN, torch.tensor([[3], [4]]), TOKEN.expand(1, 3)):
        before = CompiledTransformer(model)(ids, model.new_cache(len(ids), 4))
        cache = model.new_cache(len(ids), 4)
        with torch.device("meta"):
            after = CompiledTransformer(model)(ids, cache)
        assert torch.equal(before, after)


def test_threads_may_share_a_model_each_with_its_own_cache():
    model = random_model(ODD)
    compiled, found = CompiledTransformer(model), {}

    def run(seed: int) -> None:
        ids = tokens(model, 40, seed)
        found[seed] = torch.stack(list(steps(compiled, model.new_cache(1, 40), ids)))

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(4):
        expected = torch.stack(list(steps(model, model.new_cache(1, 40), tokens(model, 40, seed))))
        assert (found[seed] - expected).abs().max() < TOLERANCE * expected.std()


@pytest.mark.parametrize("name", ["score_scale", "score_cap", "logit_cap"])
def test_a_cap_or_scale_that_is_not_positive_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be positive"):
        replace(ODD, **{name: 0.0})


ONE_LOOP = """
import os, numpy as np, torch
torch.set_num_threads(1)
from twophase.kernels.compiled.linear import project_add
from twophase.kernels.compiled import threads
from twophase.kernels.compiled.threads import threading_layer, workers, workers_of_parallel_loops
assert workers_of_parallel_loops() == 1
w = np.ones((33, 33), np.float32)
project_add.parallel(w, w[0], w[0], w[0].copy(), 1)
assert torch.get_num_threads() == 1  # starting Numba's threads sets it
if threading_layer() == "omp":
    child = os.fork()
    if not child:
        torch.set_num_threads(2)
        assert workers() == threads.workers_even_if_forked() == 1
        try:
            workers_of_parallel_loops()
        except ValueError as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_process_refuses_loops_on_all_cores_and_torch_keeps_its_threads():
    """OpenMP would end it."""
    environment = {name: v for name, v in os.environ.items() if name != "OMP_NUM_THREADS"}
    subprocess.run([sys.executable, "-c", ONE_LOOP], check=True, env=environment)
