"""Sharing KV heads: the loop that fetches each once, pooling, up-training."""

import json

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.kernels.attention import causal_attention
from twophase.kernels.grouped_query_attention import (
    attend,
    decode_by_head,
    fetch,
    pool_heads,
)
from twophase.measure.events import KINDS
from twophase.measure.fetches import kv_fetches
from twophase.models import checkpoints, uptrain
from twophase.models.config import Config
from twophase.models.recipe import Recipe
from twophase.models.transformer import Transformer
from twophase.theory.kv_cache import kv_bytes_per_token_per_layer

SMALL = Config(L=2, D=16, F=24, N=4, K=4, H=4, V=256, context=16)


@draws(30)
@given(S=st.integers(1, 9), K=st.integers(1, 4), G=st.integers(1, 4), seed=st.integers(0, 99))
def test_head_by_head_is_attention_as_models_have_it(S, K, G, seed):
    draw = torch.Generator().manual_seed(seed)
    q = torch.randn(G * K, 6, generator=draw)
    k, v = torch.randn(2, S, K, 6, generator=draw)
    whole = causal_attention(q[None, None], k[None], v[None])[0, 0]
    assert torch.allclose(decode_by_head(q, k, v), whole, atol=1e-6)


@pytest.mark.parametrize("K", [8, 4, 2, 1])
def test_a_step_fetches_each_kv_head_once_and_moves_the_bytes_of_the_formula(K):
    q, (k, v) = torch.randn(8, 4), torch.randn(2, 5, K, 4)
    alone = decode_by_head(q, k, v)
    with kv_fetches() as log:
        assert torch.equal(decode_by_head(q, k, v), alone)
    assert [e["kv_head"] for e in log.select("fetch")] == list(range(K))
    n_bytes = sum(e["n_bytes"] for e in log.select("fetch"))
    assert n_bytes == 5 * kv_bytes_per_token_per_layer(K, 4, 4)
    pairs = [(e["head"], e["kv_head"]) for e in log.select("attend")]
    assert pairs == [(n, n // (8 // K)) for n in range(8)]
    assert {e.kind for e in log} <= set(KINDS)


def test_watching_fetches_leaves_the_kernel_as_it_was():
    from twophase.kernels import grouped_query_attention as kernel

    with pytest.raises(ValueError, match="q \\[N, H\\]"), kv_fetches():
        decode_by_head(torch.zeros(2, 4), torch.zeros(3, 1, 5), torch.zeros(3, 1, 5))
    assert (kernel.fetch, kernel.attend) == (fetch, attend)


@pytest.mark.parametrize(
    ("q", "k", "v", "said"),
    [
        ((4, 2), (3, 3, 2), (3, 3, 2), "shared evenly"),
        ((4, 2), (3, 2, 2), (3, 1, 2), "a decode step needs"),
        ((4, 2), (3, 2, 3), (3, 2, 3), "a decode step needs"),
        ((1, 4, 2), (3, 2, 2), (3, 2, 2), "a decode step needs"),
        ((4, 2), (0, 2, 2), (0, 2, 2), "none of these 0"),
        ((4, 2), (3, 0, 2), (3, 0, 2), "none of these 0"),
        ((0, 2), (3, 2, 2), (3, 2, 2), "none of these 0"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_in_a_sentence(q, k, v, said):
    with pytest.raises(ValueError, match=said):
        decode_by_head(torch.zeros(q), torch.zeros(k), torch.zeros(v))


@draws(30)
@given(K=st.integers(1, 3), G=st.integers(1, 3), H=st.integers(1, 4), D=st.integers(1, 5))
def test_pooling_projections_pools_what_they_project(K, G, H, D):
    draw = torch.Generator().manual_seed(K + 10 * G)
    weight = torch.randn(K * G * H, D, generator=draw, dtype=torch.float64)
    x = torch.randn(7, D, generator=draw, dtype=torch.float64)
    heads = (x @ weight.T).view(7, K, G, H)  # [7, K, G, H]
    for how, pooled in (("mean", heads.mean(2)), ("first", heads[:, :, 0])):
        found = x @ pool_heads(weight, K * G, K, how).T
        assert torch.allclose(found.view(7, K, H), pooled)


def test_equal_heads_are_pooled_without_loss_and_a_bias_as_its_weights():
    one = torch.randn(2, 3, 5)
    weight = one.repeat_interleave(4, dim=0).flatten(0, 1)  # [8·3, 5]
    assert torch.allclose(pool_heads(weight, 8, 2), one.flatten(0, 1))
    assert torch.allclose(pool_heads(weight[:, 0], 8, 2), one.flatten(0, 1)[:, 0])


@pytest.mark.parametrize(
    ("rows", "N", "K", "how", "said"),
    [
        (12, 4, 3, "mean", "K must divide"),
        (13, 4, 2, "mean", "K must"),
        (12, 4, 2, "last", "by one"),
        (12, 4, 0, "mean", "K must divide"),
        (12, 0, 1, "mean", "K must divide"),
        (12, -4, -2, "mean", "K must divide"),
    ],
)
def test_heads_that_cannot_be_pooled_are_refused(rows, N, K, how, said):
    with pytest.raises(ValueError, match=said):
        pool_heads(torch.zeros(rows, 2), N, K, how)


def _with_equal_heads(model: Transformer) -> Transformer:
    """Every key and value head of a layer made equal to its first."""
    state = model.state_dict()
    for name, weight in state.items():
        if name.endswith(("k_proj.weight", "v_proj.weight")):
            weight[:] = pool_heads(weight, 4, 1, "first").repeat(4, 1)
    return model


@pytest.mark.parametrize("K", [2, 1])
@pytest.mark.parametrize("how", ["mean", "first"])
def test_a_model_of_equal_heads_loses_nothing_by_pooling(K, how):
    torch.manual_seed(0)
    model = _with_equal_heads(Transformer(SMALL)).eval()
    smaller = uptrain.with_fewer_kv_heads(model, K, how).eval()
    tokens = torch.randint(256, (2, 9))
    with torch.no_grad():
        assert torch.allclose(smaller(tokens), model(tokens), atol=1e-5)
    assert smaller.config.K == K
    assert model.n_params - smaller.n_params == 2 * 2 * 16 * (4 - K) * 4


def test_new_heads_are_not_the_old_ones_and_all_else_is():
    model = Transformer(SMALL)
    smaller = uptrain.with_fewer_kv_heads(model, 4, "new").state_dict()
    for name, weight in model.state_dict().items():
        assert torch.equal(smaller[name], weight) != name.endswith(
            ("k_proj.weight", "v_proj.weight")
        )


def test_a_grouped_model_is_not_pooled_again():
    with pytest.raises(ValueError, match="multi-head"):
        uptrain.with_fewer_kv_heads(checkpoints.load("gqa"), 1)


def test_training_on_starts_at_the_model_and_measures_where_it_says():
    recipe = Recipe(n_tokens=16 * 2 * 6, B=2, warmup_steps=1, seed=3, autocast=False)
    data = torch.randint(256, (2000,)).to(torch.uint8).numpy()
    model, met = Transformer(SMALL), []

    def first_weight(m: Transformer) -> float:
        met.append({name: w.clone() for name, w in m.state_dict().items()})
        return float(len(met))

    curve = uptrain.train_on(model, recipe, data, first_weight, points=3)
    assert curve == [(0, 1.0), (64, 2.0), (128, 3.0), (192, 4.0)]
    assert all(torch.equal(w, met[0][name]) for name, w in model.state_dict().items())
    assert not torch.equal(met[1]["embed_tokens.weight"], met[0]["embed_tokens.weight"])


def test_curves_of_other_weights_are_refused(tmp_path):
    path = tmp_path / "curves.json"
    path.write_text(json.dumps({"source": "mha", "source_sha256": "0"}))
    with pytest.raises(ValueError, match="run `python -m twophase"):
        uptrain.result(path)


def test_the_committed_curves_have_the_committed_budget_and_every_kind_of_start():
    found = uptrain.result()
    budget = checkpoints.card(found["source"])["recipe"]["n_tokens"]
    assert {(run["K"], run["how"]) for run in found["runs"]} == set(uptrain.kinds())
    for run in found["runs"]:
        assert run["curve"][0][0] == 0
        assert run["curve"][-1][0] == pytest.approx(budget * uptrain.SHARE, rel=0.03)
        assert len(run["curve"]) == uptrain.POINTS + 1
