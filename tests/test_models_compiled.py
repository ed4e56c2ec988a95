"""The compiled decode step is the plain model: the same logits and tokens for every kind of model,
on the same caches, and what it has no loops for runs in torch and is named."""

import copy
import functools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from hugging_face_cases import CASES, FAMILY_USUAL, USUAL, Case
from torch import nn

from twophase.kernels.compiled.linear import project_add
from twophase.models.bf16_products import multiplies_bf16
from twophase.models.checkpoints import load
from twophase.models.compiled import CompiledTransformer, batch_linear, transformer
from twophase.models.compiled.batch_linear import (
    PackedLinear,
    WideningLinear,
    with_batch_linears,
)
from twophase.models.family import FAMILY
from twophase.models.generate import complete, complete_batch, on_path
from twophase.models.hugging_face.config import read_config
from twophase.models.layer_sizes import LinearAttention, StateSpace
from twophase.models.linear import Linear, replace_linears
from twophase.models.transformer import Config, Transformer

# Largest difference of two logits as a share of their deviation: sums in another order.
TOLERANCE = 1e-5
# Linear attention sums 273 features of both signs: in fp32 the plain path is 2e-5 from fp64, the
# compiled one 1e-5.
TOLERANCE_OF = {"linear": 4e-5}
DECODERS = sorted(name for name, config in FAMILY.items() if config.causal)
# heads of 5 numbers in groups of 3, and no two sizes equal
ODD = Config(L=3, D=22, F=37, N=6, K=2, H=10, V=31, tied=False)


def random_model(config: Config, seed: int = 0) -> Transformer:
    """Weights so large that no mistake hides in the tolerance, but no larger, since they magnify
    what fp32 rounds away; norms and biases that do something."""
    torch.manual_seed(seed)
    model = Transformer(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(("A_log", ".D", "dt_proj.bias")):  # a state must fade
                continue
            if p.ndim > 1:
                p.normal_(std=0.3 if name == "embed_tokens.weight" else p.shape[-1] ** -0.5)
            else:
                p.uniform_(0.5, 1.5).sub_(0.9 if name.endswith("bias") else config.norm_offset)
    return model.eval().requires_grad_(False)


def tokens(model: Transformer, T: int, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, model.config.V, (1, T), generator=generator)


def steps(run, cache, ids: torch.Tensor) -> Iterator[torch.Tensor]:
    """Logits [V] after each of the tokens [1, T], one pass for each."""
    for token in ids.split(1, dim=1):
        with torch.inference_mode():  # left before the yield: two of these run in turn
            logits = run(token, cache, at=-1)[0]
        yield logits


def exact(model: Transformer) -> Transformer:
    """The same model in fp64. To it each of two ways to compute in fp32 is nearer than they are to
    each other, on whatever processor: torch sums in an order of its own on each."""
    return copy.deepcopy(model).double()


def disagreement(model: Transformer, compiled, ids: torch.Tensor, prompt: int, dtype=None) -> float:
    """The largest difference to a plain model over all steps behind a prompt, in deviations. The
    model is that of `compiled`, or `exact` of it."""
    worst = 0.0
    models = model, compiled.model
    caches = [m.new_cache(1, ids.shape[1], dtype=dtype) for m in models]
    with torch.inference_mode():
        for m, cache in zip(models, caches, strict=True):
            m(ids[:, :prompt], cache)
    pairs = zip(
        steps(model, caches[0], ids[:, prompt:]), steps(compiled, caches[1], ids[:, prompt:]),
        strict=True,
    )  # fmt: skip
    for plain, ours in pairs:
        worst = max(worst, float((plain - ours).abs().max() / plain.std()))
        assert not torch.isnan(ours).any()
    return worst


@pytest.mark.parametrize("name", DECODERS)
def test_every_member_of_the_family_has_the_same_logits_and_tokens(name):
    model = load(name)
    compiled = CompiledTransformer(model)
    assert not compiled.plain
    assert disagreement(model, compiled, tokens(model, 60), prompt=7) < TOLERANCE_OF.get(
        name, TOLERANCE
    )
    plain, ours = (complete(model, b"def f(x):", 24, path=path) for path in ("plain", "compiled"))
    assert plain.tokens == ours.tokens


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_family_of_hugging_face_has_the_same_logits(case: Case):
    given = {**USUAL, **FAMILY_USUAL.get(case.family, {}), **case.more, "model_type": case.family}
    model = random_model(read_config(given))
    compiled = CompiledTransformer(model)
    assert not compiled.plain
    assert disagreement(exact(model), compiled, tokens(model, 34), prompt=3) < TOLERANCE


@pytest.mark.parametrize("more", [
    {"norm": "layer", "learned_positions": 64, "gated_mlp": False, "activation": "gelu"},
    {"activation": "relu", "qkv_bias": True, "o_bias": True, "mlp_bias": True},
    {"K": 1, "rope_pairing": "interleaved", "rotary_dim": 6},
    {"K": 6, "score_cap": 2.0, "logit_cap": 3.0, "embedding_scale": 4.7, "norm_offset": 1.0},
    {"kv_source": (0, 0, 2), "attention": "sliding", "window": 5, "qk_norm": True},
    {"norms_per_layer": 4, "norm": "layer", "attention": ("gqa", "sliding", "gqa"), "window": 1},
], ids=str)  # fmt: skip
def test_whatever_a_config_can_say_is_in_the_loops(more):
    model = random_model(replace(ODD, **more))
    compiled = CompiledTransformer(model)
    assert not compiled.plain
    assert disagreement(model, compiled, tokens(model, 24), prompt=3) < TOLERANCE


def test_a_loop_on_all_cores_gives_what_it_gives_on_one():
    """One loop, since compiling takes seconds; all of them are below, for the patient."""
    w, h, bias = np.random.default_rng(0).normal(size=(3, 33, 33)).astype(np.float32)
    one, all_cores = np.ones((2, 33), np.float32)
    project_add.serial(w, bias[0], h[0], one, 1)
    project_add.parallel(w, bias[0], h[0], all_cores, 2)
    for found in (one, all_cores):
        np.testing.assert_allclose(found, 1 + w @ h[0] + bias[0], rtol=1e-5, atol=1e-5)


def test_a_loop_wants_to_know_on_how_many_cores():
    with pytest.raises(TypeError, match="on\\(workers\\)"):
        project_add(np.zeros((1, 1), np.float32))


@pytest.mark.more
@pytest.mark.parametrize(("more", "calls"), [
    ({}, ["Run"]),
    ({"qkv_bias": True, "o_bias": True, "mlp_bias": True, "activation": "relu"}, ["Run"]),
    ({"attention": "sliding", "window": 5, "qk_norm": True, "score_cap": 2.0}, ["Run"]),
    ({"gated_mlp": False, "norm": "layer", "learned_positions": 64}, ["Run"]),
    ({"attention": ("gqa", "sliding", "sliding"), "window": 3, "kv_source": (0, 1, 1)}, ["Run"]),
    ({"attention": ("ssm", "ssm", "gqa"), "ssm": StateSpace(20, 4, 3, 2)}, ["StateRun", "Run"]),
    ({"attention": "linear", "linear": LinearAttention(feature_dim=4)}, ["StateRun"]),
    ({"norms_per_layer": 4}, ["Attention", "MLP"] * 3),
], ids=str)  # fmt: skip
def test_layers_of_one_kind_are_one_call_on_all_cores_and_find_the_same(more, calls):
    model = random_model(replace(ODD, **more))
    compiled = CompiledTransformer(model, parallel=True)
    assert [type(half).__name__ for half in compiled._halves] == calls
    for _ in range(2):  # each time with another cache
        assert disagreement(model, compiled, tokens(model, 24), prompt=3) < TOLERANCE


@pytest.mark.parametrize("parallel", [False, pytest.param(True, marks=pytest.mark.more)])
def test_bf16_weights_are_read_as_they_are(parallel):
    """Against the same numbers in fp32: only the rounding of the stream in torch is left out."""
    model = random_model(ODD).bfloat16()
    compiled = CompiledTransformer(model, parallel=parallel)
    wide = random_model(ODD)
    wide.load_state_dict({name: w.float() for name, w in model.state_dict().items()})
    a, b = wide.new_cache(1, 20), model.new_cache(1, 20, dtype=torch.float32)
    ids = tokens(model, 20)
    for plain, ours in zip(steps(wide, a, ids), steps(compiled, b, ids), strict=True):
        assert ours.dtype == torch.float32
        assert (plain - ours).abs().max() < TOLERANCE * plain.std()
    # a cache in bf16 rounds keys and values, by 2**-9 at most, and little else
    a, b = (wide.new_cache(1, 20, dtype=torch.bfloat16) for _ in range(2))
    for plain, ours in zip(steps(wide, a, ids), steps(compiled, b, ids), strict=True):
        assert (plain - ours).abs().max() < 0.05 * plain.std()
    assert torch.equal(a.stores[0].keys, b.stores[0].keys)


@pytest.mark.parametrize("name", ["gqa", "local_global", "ssm_attention", "mla", "linear"])
def test_one_can_go_to_and_fro_between_the_paths_and_take_tokens_back(name):
    model = load(name)
    compiled = CompiledTransformer(model)
    ids = tokens(model, 86)
    mixed, plain = (model.new_cache(1, 86, rollback=3) for _ in range(2))

    def feed(run, n: int) -> None:
        """The next n tokens on the path `run`, and in the plain model, are the same."""
        block = ids[:, mixed.length : mixed.length + n]
        found, expected = run(block, mixed, at=-1), model(block, plain, at=-1)
        most = TOLERANCE_OF.get(name, TOLERANCE) * expected.std()
        assert (found - expected).abs().max() < most

    with torch.inference_mode():
        for run, n in [(model, 40), (compiled, 1), (compiled, 1), (model, 1), (compiled, 1)]:
            feed(run, n)
        for run, n in [(model, 16), *[(compiled, 1)] * 19]:
            feed(run, n)
        compiled(ids[:, :1], mixed, commit=False)  # not kept
        for wrong in (5, 6, 7):
            compiled(torch.tensor([[wrong]]), mixed)
        mixed.truncate(plain.length)
        for run, n in [(compiled, 1), (model, 1), (model, 4), (compiled, 1)]:
            feed(run, n)


def test_a_pass_that_breaks_off_leaves_the_cache_as_it_was():
    model = load("gqa")
    compiled = CompiledTransformer(model)
    cache = model.new_cache(1, 3)
    for _ in range(3):
        compiled(torch.tensor([[65]]), cache)
    with pytest.raises(ValueError, match="room for 3 tokens"):
        compiled(torch.tensor([[65]]), cache)
    cache.truncate(2)
    with pytest.raises(ValueError, match="outside the vocabulary: 0 to 255"):
        compiled(torch.tensor([[256]]), cache)
    assert cache.length == 2
    with pytest.raises(ValueError, match="nothing to commit"):
        cache.commit()


@pytest.mark.parametrize("name", ["gqa", "sliding", "cross_layer", "mla", "ssm_attention", "moe"])
def test_a_batch_of_uneven_sequences_attends_in_loops_and_some_may_rest(name):
    model = load(name)
    compiled = CompiledTransformer(model)
    ids = torch.randint(0, 256, (3, 60), generator=torch.Generator().manual_seed(3))
    caches = [model.new_cache(3, 64) for _ in range(2)]
    counts = [45, 0, 3]
    with torch.inference_mode():
        for cache in caches:
            model(ids[:, :45], cache, n_new=counts)
        for going in ([1, 1, 1], [0, 1, 1], [1, 1, 0], [1, 1, 1]):
            token = ids[:, :1]
            plain, ours = (
                run(token, cache, n_new=going, at=-1)[[n > 0 for n in going]]
                for run, cache in zip((model, compiled), caches, strict=True)
            )
            assert (plain - ours).abs().max() < TOLERANCE * plain.std()
    assert caches[0].lengths == caches[1].lengths == (48, 4, 6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("more", [{}, {"qkv_bias": True, "o_bias": True, "mlp_bias": True}])
def test_packed_matrices_multiply_a_batch_as_they_are_kept(more, dtype):
    """oneDNN's sums in another order; in bf16 what is rounded differs by one place at most."""
    model = random_model(replace(ODD, **more)).to(dtype)
    packed = with_batch_linears(model, pack=True)
    kind = PackedLinear if dtype == torch.float32 or multiplies_bf16() else WideningLinear
    assert isinstance(packed.lm_head, kind)
    assert isinstance(packed.layers[0].mlp.up_proj, kind)
    assert packed.embed_tokens.weight is model.embed_tokens.weight
    tolerance = TOLERANCE if dtype == torch.float32 else 2**-6
    for B in (1, 2, 17):
        ids = torch.randint(0, ODD.V, (B, 1), generator=torch.Generator().manual_seed(B))
        plain, ours = (run(ids, run.new_cache(B, 4), at=-1) for run in (model, packed))
        assert (plain - ours).abs().max() < tolerance * plain.std()


def without_products_of_bf16(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_linear, "multiplies_bf16", lambda: False)


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(lambda: random_model(ODD), id="grouped queries"),
        pytest.param(
            lambda: random_model(replace(ODD, qkv_bias=True, o_bias=True, mlp_bias=True)),
            id="biases",
        ),
        *(
            pytest.param(functools.partial(load, name), id=name)
            for name in ("gqa", "mla", "ssm", "linear")
        ),
    ],
)
def test_without_products_of_bf16_a_batch_of_a_model_in_bf16_is_multiplied_in_fp32(
    made, monkeypatch
):
    without_products_of_bf16(monkeypatch)
    model = made().to(torch.bfloat16)
    exact, compiled = copy.deepcopy(model).float(), CompiledTransformer(model)
    for B in (2, 4, 17):
        ids = torch.randint(0, 31, (B, 1), generator=torch.Generator().manual_seed(B))
        wanted, plain, ours = (
            run(ids, run.new_cache(B, 4), at=-1).float() for run in (exact, model, compiled)
        )
        # as near as torch's own products: what is rounded is a place or two of a bf16 apart
        far = (plain - wanted).abs().max()
        assert (ours - wanted).abs().max() < 2 * far + 2**-8 * wanted.abs().max()
    layers = list(compiled._of_batches().modules())
    assert not any(type(m) in (Linear, nn.Linear) for m in layers)
    widened = [m for m in layers if isinstance(m, WideningLinear)]
    assert len(widened) == sum(type(m) in (Linear, nn.Linear) for m in model.modules())
    assert compiled._of_batches().lm_head.weight is model.lm_head.weight


def test_a_widened_layer_reads_its_matrix_where_it_lies_and_takes_any_number_of_tokens(monkeypatch):
    without_products_of_bf16(monkeypatch)
    model = random_model(ODD).to(torch.bfloat16)
    compiled, cache = CompiledTransformer(model), model.new_cache(2, 8)
    ids = tokens(model, 2).view(2, 1)
    before = compiled(ids, cache, at=-1, commit=False)
    model.lm_head.weight.mul_(2)
    assert torch.equal(compiled(ids, cache, at=-1, commit=False), 2 * before)
    layer = WideningLinear(model.lm_head)
    for shape in ((0, ODD.D), (1, 0, ODD.D), (ODD.D,), (2, 3, ODD.D)):
        x = torch.ones(shape, dtype=torch.bfloat16)
        assert layer(x).shape == model.lm_head(x).shape
    with pytest.raises(ValueError, match=r"multiplies bf16; got torch.float32"):
        layer(torch.ones(1, ODD.D))


def test_where_bf16_is_multiplied_or_numbers_are_fp32_nothing_is_widened(monkeypatch):
    for known, dtype in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(batch_linear, "multiplies_bf16", lambda known=known: known)
        compiled = CompiledTransformer(random_model(ODD).to(dtype))
        assert compiled._of_batches() is compiled.model


def test_a_large_model_packs_its_matrices_for_batches_and_notices_other_numbers(monkeypatch):
    monkeypatch.setattr(transformer, "LARGE_BYTES", 0)
    model = random_model(ODD)
    compiled = CompiledTransformer(model, parallel=False)
    ids, caches = tokens(model, 2).view(2, 1), [model.new_cache(2, 4) for _ in range(2)]
    plain, ours = (
        run(ids, cache, at=-1) for run, cache in zip((model, compiled), caches, strict=True)
    )
    assert (plain - ours).abs().max() < TOLERANCE * plain.std()
    assert isinstance(compiled._of_batches().lm_head, PackedLinear)
    model.lm_head.weight.mul_(2)
    with pytest.raises(ValueError, match="make another CompiledTransformer"):
        compiled(ids, caches[1], at=-1)


def test_a_batch_is_generated_as_its_sequences_are_alone():
    model = load("local_global")
    prompts = [b"def f(x):", b"import", b"class A:\n    "]
    together = complete_batch(model, prompts, 20, path="compiled")
    alone = [complete(model, prompt, 20) for prompt in prompts]
    assert [record.tokens for record in together] == [record.tokens for record in alone]


def test_what_is_no_decode_step_runs_in_the_plain_model():
    model = load("gqa")
    compiled = CompiledTransformer(model)
    ids = torch.randint(0, 256, (3, 5))
    with torch.inference_mode():
        assert torch.equal(compiled(ids), model(ids))
        caches = [model.new_cache(3, 8) for _ in range(2)]
        found = [run(ids, cache, n_new=[5, 2, 0])
                 for run, cache in zip((model, compiled), caches, strict=True)]  # fmt: skip
        assert torch.equal(*found)
        cache = model.new_cache(1, 8)
        compiled(ids[:1, :1], cache, n_new=[0])
        assert cache.length == 0


class Wrapped(nn.Module):
    """A linear layer of another making."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear, self.in_features, self.out_features = linear, 0, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * 1.5


@pytest.mark.parametrize("part", ["q_proj", "o_proj", "up_proj", "down_proj", "lm_head"])
def test_what_was_replaced_runs_in_torch_and_is_named(part):
    model = random_model(ODD)
    replace_linears(model, lambda name, linear: Wrapped(linear) if part in name else None)
    compiled = CompiledTransformer(model)
    assert disagreement(model, compiled, tokens(model, 12), prompt=3) < TOLERANCE
    assert len(compiled.plain) == (1 if part == "lm_head" else ODD.L)
    assert all("Wrapped" in reason for reason in compiled.plain.values())


def test_a_layer_that_somebody_listens_to_runs_in_torch():
    model = random_model(ODD)
    heard = []
    model.layers[1].register_forward_hook(lambda *_: heard.append(1))
    model.layers[2].mlp.up_proj.register_forward_pre_hook(lambda *_: heard.append(2))
    compiled = CompiledTransformer(model)
    assert disagreement(model, compiled, tokens(model, 6), prompt=3) < TOLERANCE
    assert set(compiled.plain) == {"layer 1", "MLP of layer 2"}
    assert heard == [1, 2] * (2 + 3 + 3)  # two prompts, three steps of each


def test_models_that_loops_cannot_run_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match="reads both ways"):
        CompiledTransformer(Transformer(replace(ODD, causal=False)))
    with pytest.raises(
        ValueError, match=r"float32 and bfloat16, and these weights are torch\.float16"
    ):
        CompiledTransformer(Transformer(ODD).half())
    with pytest.raises(ValueError, match="this model is on meta"):
        CompiledTransformer(Transformer(ODD).to("meta"))
    with pytest.raises(ValueError, match="got a Linear"):
        CompiledTransformer(nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one of plain, compiled; got 'quick'"):
        on_path(Transformer(ODD), "quick")


def test_a_cache_of_another_model_or_dtype_is_refused():
    model = random_model(ODD)
    compiled, token = CompiledTransformer(model), torch.tensor([[3]])
    with pytest.raises(ValueError, match="make one with `new_cache` of this model"):
        compiled(token, random_model(replace(ODD, K=1)).new_cache(1, 4))
    with pytest.raises(ValueError, match=r"float32 and bfloat16; got torch\.float16"):
        compiled(token, model.new_cache(1, 4, dtype=torch.float16))
    with pytest.raises(ValueError, match=r"float32 and bfloat16; got torch\.float16"):
        compiled(torch.tensor([[3], [4]]), model.new_cache(2, 4, dtype=torch.float16))
