"""The transformer: cached equals uncached, ragged equals one by one, and its size is what the
theory says."""

import pytest
import torch

from twophase.models.layer_sizes import LinearAttention, StateSpace
from twophase.models.transformer import Config, Transformer
from twophase.theory.sizes import MixtureOfExperts

# N·H = 30 is not D = 16, and no two sizes are equal, so that a mixed-up pair cannot pass unseen.
ODD = Config(L=3, D=16, F=20, N=6, K=2, H=5 * 2, V=31, context=64)

# Cached and uncached runs add the same numbers in another order (fused kernel against folded
# matmul): fp32 rounding of a few 1e-7 per sum, through L layers. Logits are of order 1.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def model() -> Transformer:
    torch.manual_seed(0)
    model = Transformer(ODD)
    for p in (
        model.parameters()
    ):  # initial weights are so small that every mistake would hide in the tolerance
        if p.ndim > 1:
            torch.nn.init.normal_(p, std=0.3)
    return model.eval().requires_grad_(False)


def tokens(B: int, T: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, ODD.V, (B, T), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("blocks", [[12], [1] * 12, [5, 1, 1, 5], [1, 11], [7, 4, 1]])
def test_cached_logits_equal_uncached_ones_however_the_tokens_are_fed(model, blocks):
    ids = tokens(2, 12)
    cache = model.new_cache(2, 12)
    cached = torch.cat([model(block, cache) for block in ids.split(blocks, dim=1)], dim=1)
    torch.testing.assert_close(cached, model(ids), **TOLERANCE)


def test_a_ragged_batch_equals_its_sequences_one_by_one(model):
    prompts, steps = [tokens(1, n, seed=n) for n in (3, 9, 1)], tokens(3, 4, seed=7)
    cache = model.new_cache(3, 16)
    padded = torch.zeros(3, 9, dtype=torch.long)
    for b, prompt in enumerate(prompts):
        padded[b, : prompt.shape[1]] = prompt
    counts = torch.tensor([p.shape[1] for p in prompts])
    first = model(padded, cache, n_new=counts)
    later = [model(steps[:, i : i + 1], cache) for i in range(4)]
    for b, prompt in enumerate(prompts):
        n = prompt.shape[1]
        alone = model(torch.cat([prompt, steps[b : b + 1]], dim=1))[0]
        torch.testing.assert_close(first[b, :n], alone[:n], **TOLERANCE)
        torch.testing.assert_close(torch.cat([x[b] for x in later]), alone[n:], **TOLERANCE)
    assert cache.lengths == (7, 13, 5)


def test_a_token_never_sees_a_later_one(model):
    a = tokens(1, 8)
    b = a.clone()
    b[0, 5:] = (b[0, 5:] + 1) % ODD.V
    assert torch.equal(model(a)[:, :5], model(b)[:, :5])
    assert not torch.allclose(model(a)[:, 5:], model(b)[:, 5:])


def test_the_order_of_tokens_matters_and_a_common_shift_of_positions_does_not(model):
    ids = tokens(1, 6)
    shifted = model(ids, positions=torch.arange(100, 106))
    torch.testing.assert_close(shifted, model(ids), rtol=1e-3, atol=1e-4)
    stuck = model(ids, positions=torch.zeros(6, dtype=torch.long))
    assert not torch.allclose(stuck, model(ids), rtol=1e-3, atol=1e-3)


def test_a_full_cache_refuses_a_forward_pass_and_stays_as_it_was(model):
    cache = model.new_cache(1, 4)
    model(tokens(1, 3), cache)
    keys = cache.stores[0].keys.clone()
    with pytest.raises(ValueError, match="2 more do not fit"):
        model(tokens(1, 2), cache)
    assert torch.equal(cache.stores[0].keys, keys)
    assert cache.length == 3


@pytest.mark.parametrize("config", [ODD, Config(L=1, D=8, F=12, N=2, K=2, H=4, V=17, tied=False)])
def test_the_model_has_as_many_parameters_as_the_theory_counts(config):
    assert Transformer(config).n_params == config.architecture().n_params()


def test_the_cache_holds_only_the_kv_heads(model):
    assert model.new_cache(2, 9).nbytes == 2 * ODD.L * 2 * 9 * ODD.K * ODD.H * 4


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"N": 5}, "shared evenly"),
        ({"H": 7}, "must be even"),
        ({"L": 0}, "at least 1"),
        ({"attention": "mla9"}, 'unknown attention kind "mla9"; known: gqa'),
    ],
)
def test_impossible_configs_are_refused(change, says):
    with pytest.raises(ValueError, match=says):
        Config(**{**ODD.to_dict(), **change})


@pytest.mark.parametrize(
    "kind",
    [{"attention": "sliding", "window": 50}, {"attention": ("gqa", "sliding", "gqa"), "window": 2}],
)
def test_a_stack_with_windows_refuses_what_its_cache_has_no_room_for(kind):
    model = Transformer(Config(**{**ODD.to_dict(), **kind}))
    cache = model.new_cache(1, 4)
    model(tokens(1, 3), cache)
    with pytest.raises(ValueError, match="sequence 0 holds 3: 2 more do not fit"):
        model(tokens(1, 2), cache)
    assert cache.length == 3


def test_learned_positions_end_where_their_table_does():
    model = Transformer(Config(**{**ODD.to_dict(), "learned_positions": 5}))
    cache = model.new_cache(1, 9)
    torch.testing.assert_close(model(tokens(1, 5)), model(tokens(1, 5), cache), **TOLERANCE)
    with pytest.raises(ValueError, match="learned 5 positions"):
        model(tokens(1, 1), cache)


@pytest.mark.parametrize(
    "kind",
    [
        {"attention": ("linear", "gqa", "linear"), "linear": LinearAttention(feature_dim=4)},
        {"attention": ("ssm", "gqa", "ssm"), "ssm": StateSpace(d_inner=20, d_state=3, dt_rank=2)},
    ],
)
def test_a_model_in_bf16_keeps_its_states_in_fp32_and_the_theory_says_so(kind):
    config = Config(**{**ODD.to_dict(), **kind})
    cache = Transformer(config).bfloat16().new_cache(2, 9)
    assert cache.nbytes == 2 * config.architecture().cache_bytes(9, bytes_per_kv=2)
    assert cache.nbytes < 2 * config.architecture().cache_bytes(9, bytes_per_kv=4)


PRUNED = [{"F": 7, "N": 2, "K": 1}, {"F": 20, "N": 6, "K": 2}, {"F": 3, "N": 4, "K": 2}]


def test_what_a_pruned_layer_lost_is_what_its_zeros_would_have_been(model):
    """Heads and MLP channels whose way out is zero add nothing, so leaving them out changes
    nothing."""
    config = Config(**{**ODD.to_dict(), "widths": PRUNED})
    small, state = Transformer(config), {k: v.clone() for k, v in model.state_dict().items()}
    kept, G = {}, ODD.G
    for i, w in enumerate(config.widths):
        own, groups = f"layers.{i}.", w.N // w.K  # the first queries of the first groups stay
        heads = [k * G + g for k in range(w.K) for g in range(groups)]
        rows = [n * ODD.H + h for n in heads for h in range(ODD.H)]
        out = state[own + "self_attn.o_proj.weight"]
        out[:, [r for r in range(out.shape[1]) if r not in rows]] = 0
        state[own + "mlp.down_proj.weight"][:, w.F :] = 0
        kept |= {
            own + "self_attn.q_proj.weight": state[own + "self_attn.q_proj.weight"][rows],
            own + "self_attn.k_proj.weight": state[own + "self_attn.k_proj.weight"][: w.K * ODD.H],
            own + "self_attn.v_proj.weight": state[own + "self_attn.v_proj.weight"][: w.K * ODD.H],
            own + "self_attn.o_proj.weight": out[:, rows],
            own + "mlp.gate_proj.weight": state[own + "mlp.gate_proj.weight"][: w.F],
            own + "mlp.up_proj.weight": state[own + "mlp.up_proj.weight"][: w.F],
            own + "mlp.down_proj.weight": state[own + "mlp.down_proj.weight"][:, : w.F],
        }
    zeroed = Transformer(ODD)
    zeroed.load_state_dict(state)
    small.load_state_dict(state | kept)
    ids = tokens(2, 9)
    torch.testing.assert_close(small(ids), zeroed(ids), **TOLERANCE)
    assert not torch.allclose(small(ids), model(ids), rtol=1e-2, atol=1e-2)
    assert small.n_params < zeroed.n_params
    assert small.new_cache(2, 9).nbytes == 2 * 9 * 2 * (1 + 2 + 2) * ODD.H * 4
    assert Config(**config.to_dict()) == config  # a model card says it all


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"widths": PRUNED[:2]}, "2 entries for 3 layers"),
        ({"widths": [*PRUNED[:2], {"F": 3, "N": 5, "K": 2}]}, "5 query heads cannot be shared"),
        ({"widths": PRUNED, "kv_source": (0, 0, 2)}, "layer 1 cannot read .* other KV heads"),
        ({"widths": ()}, "0 entries for 3 layers"),
        ({"widths": 5}, "`widths` has F, N and K for each layer; got 5"),
        ({"widths": "abc"}, "`widths` has F, N and K for each layer; got 'abc'"),
        ({"widths": [[1, 2, 2]] * 3}, r"`widths` has F, N and K for each layer; got \(\[1, 2, 2\]"),
        ({"widths": [{"F": 7, "N": 2}] * 3}, "`widths` has F, N and K for each layer"),
        ({"widths": [PRUNED[0] | {"D": 3}] * 3}, "`widths` has F, N and K for each layer"),
        ({"widths": [PRUNED[0] | {"F": 2.5}] * 3}, "F of a layer's widths is a whole .* got 2.5"),
        ({"widths": [PRUNED[0] | {"K": True}] * 3}, "K of a layer's widths is a whole .* got True"),
        ({"widths": [PRUNED[0] | {"N": 0}] * 3}, "N of a layer's widths is a whole .* got 0"),
        ({"widths": PRUNED, "moe": MixtureOfExperts(E=4, k=2, F=6)}, "layer 0 is a mixture of exp"),
    ],
)
def test_impossible_widths_are_refused(change, says):
    with pytest.raises(ValueError, match=says):
        Config(**{**ODD.to_dict(), **change})


@pytest.mark.parametrize(
    "bad", [[1, 2], torch.tensor([1, 2]), torch.ones(1, 2), torch.ones(1, 2, 3).long(), None]
)
def test_what_are_no_tokens_is_refused_in_a_sentence(model, bad):
    for cache in (None, model.new_cache(1, 4)):
        with pytest.raises(ValueError, match=r"whole numbers in a tensor \[B, T\]"):
            model(bad, cache)


@pytest.mark.parametrize(
    ("positions", "says"),
    [
        (torch.arange(4), r"positions are int64 \[3\], or \[2, 3\] .* got torch.int64 \[4\]"),
        (torch.zeros(3, 3).long(), r"positions are .* got torch.int64 \[3, 3\]"),
        (torch.tensor(5), r"positions are .* got torch.int64 \[\]"),
        (torch.arange(3.0), r"positions are .* got torch.float32 \[3\]"),
        ([0, 1, 2], r"positions are .* got <class 'list'>"),
        (torch.tensor([0, -1, 2]), "positions count from 0; got -1"),
    ],
)
def test_what_are_no_positions_is_refused_in_a_sentence(model, positions, says):
    for cache in (None, model.new_cache(2, 4)):
        with pytest.raises(ValueError, match=says):
            model(tokens(2, 3), cache, positions)
        if cache is not None:
            with pytest.raises(ValueError, match="nothing to commit"):
                cache.commit()


@pytest.mark.parametrize("token", [-1, ODD.V])
def test_a_token_outside_the_vocabulary_is_refused_in_a_sentence(model, token):
    with pytest.raises(ValueError, match=f"outside the vocabulary: 0 to {ODD.V - 1}"):
        model(torch.tensor([[0, token]]), model.new_cache(1, 4))
