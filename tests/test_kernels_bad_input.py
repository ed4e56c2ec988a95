"""Bad input to a kernel is one sentence, and never an answer that is wrong without a word."""

import math

import pytest
import torch

from twophase.kernels.attention import causal_attention, full_attention, naive_attention, visible
from twophase.kernels.continuous_batching import padded_attention, ragged_attention
from twophase.kernels.expert_capacity import combine, dispatch, seats
from twophase.kernels.grouped_query_attention import pool_heads
from twophase.kernels.kv_cache import KVCache
from twophase.kernels.latent_attention import attend_latents, attend_unfolded
from twophase.kernels.linear_attention import (
    chunked_linear_attention,
    parallel_linear_attention,
    sums_shape,
)
from twophase.kernels.local_attention import RingKVCache
from twophase.kernels.mixture_of_experts import (
    by_expert,
    load_balance_loss,
    route,
    run_experts,
    visit,
)
from twophase.kernels.mlp import gated_mlp
from twophase.kernels.norm import rms_norm
from twophase.kernels.online_softmax import flash_attention
from twophase.kernels.paging import FlatSpan, PagedKV, PagedLatents
from twophase.kernels.pruning.masks import wanda
from twophase.kernels.rope import RopeScaling, apply_rope, rope_tables, yarn_mscale
from twophase.kernels.sharding import columns, head_parts, rows
from twophase.kernels.span import Span
from twophase.kernels.speculative_decoding import acceptance_probability, depths, residual
from twophase.kernels.state import State
from twophase.kernels.state_space import causal_conv

Q, K, V = torch.randn(1, 3, 4, 8), torch.randn(1, 5, 2, 8), torch.randn(1, 5, 2, 8)


@pytest.mark.parametrize("kernel", [causal_attention, full_attention])
@pytest.mark.parametrize(
    ("q", "options", "says"),
    [
        (Q.tolist(), {}, "attention takes torch tensors; got list, Tensor, Tensor"),
        (Q.numpy(), {}, "attention takes torch tensors; got ndarray"),
        (Q.long(), {}, "floating-point tensors on one device; got torch.int64 on cpu"),
        (Q.to("meta"), {}, "on one device; got torch.float32 on meta"),
        (Q.double(), {}, "one dtype; got torch.float64, torch.float32"),
        (Q, {"scale": math.inf}, "a scale that must be positive; got inf"),
        (Q, {"scale": "1"}, "a scale that must be positive; got '1'"),
        (Q, {"softcap": math.inf}, "a soft cap bounds the scores and must be positive; got inf"),
    ],
)
def test_attention_refuses_what_are_no_floats_of_one_kind_and_options_that_give_nan(
    kernel, q, options, says
):
    with pytest.raises(ValueError, match=says):
        kernel(q, K, V, **options)


def test_attention_takes_several_dtypes_where_autocast_makes_them_one():
    with torch.autocast("cpu", torch.bfloat16):
        assert causal_attention(Q.bfloat16(), K, V).shape == Q.shape


@pytest.mark.parametrize("mask", [[[[True]]], torch.ones(1, 3, 5), torch.ones(1, 3, 5).bool()])
def test_a_mask_is_a_bool_tensor_where_the_queries_are(mask):
    if getattr(mask, "dtype", None) == torch.bool:
        mask = mask.to("meta")
    with pytest.raises(ValueError, match="a mask is a bool tensor"):
        causal_attention(Q, K, V, mask=mask)


@pytest.mark.parametrize(("T", "S"), [(1.5, 3), (-1, 3), (True, 3), (1, math.nan)])
def test_only_whole_numbers_of_tokens_see_each_other(T, S):
    with pytest.raises(ValueError, match="is a whole number"):
        visible(T, S)


@pytest.mark.parametrize("n", [2, 4])
def test_each_token_of_a_pass_has_a_query(n):
    span, keys = Span.of(1, 3), torch.randn(1, 3, 2, 8)
    for store in KVCache(1, 5, 2, 8), RingKVCache(1, 4, 2, 8):
        store.write(keys, keys, span)
        with pytest.raises(ValueError, match=r"a pass of \[1, 3\] tokens has queries"):
            store.attend(torch.randn(1, n, 4, 8), span)
    flat, pool = FlatSpan((0,), (3,), ((0, 1),), (0,), 2), PagedKV(2, 2, 2, 8)
    pool.write(keys, keys, flat)
    with pytest.raises(ValueError, match=r"a pass of \[1, 3\] tokens has queries"):
        pool.attend(torch.randn(1, n, 4, 8), flat)
    latents = PagedLatents(2, 2, 6, 2)
    latents.write(torch.randn(1, 3, 6), torch.randn(1, 3, 2), flat)
    with pytest.raises(ValueError, match=r"a pass of \[1, 3\] tokens has queries"):
        latents.attend(torch.randn(1, n, 4, 6), torch.randn(1, n, 4, 2), flat, scale=1.0)


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (torch.randn(1, 2, 2, 8), r"rows of \[1, 3, 2, 8\]"),
        (torch.randn(1, 3, 2, 7), r"rows of \[1, 3, 2, 8\]"),
        ([0.0], "the pool takes torch tensors; got Tensor, list"),
    ],
)
def test_a_pool_takes_whole_rows_and_writes_nothing_otherwise(first, says):
    flat, pool = FlatSpan((0,), (3,), ((0, 1),), (0,), 2), PagedKV(2, 2, 2, 8)
    with pytest.raises(ValueError, match=says):
        pool.write(torch.randn(1, 3, 2, 8), first, flat)
    assert not pool.keys.any()
    assert not pool.values.any()


@pytest.mark.parametrize("name", ["q_rope", "latent", "k_rope"])
@pytest.mark.parametrize("change", [lambda x: x[:, :0], lambda x: x[0], lambda x: x.to("meta")])
def test_latent_attention_refuses_what_does_not_fit_in_either_form(name, change):
    absorbed = {
        "q_latent": torch.randn(1, 2, 4, 6),
        "q_rope": torch.randn(1, 2, 4, 2),
        "latent": torch.randn(1, 3, 6),
        "k_rope": torch.randn(1, 3, 2),
    }
    with pytest.raises(ValueError, match=r"latent attention (needs|takes)"):
        attend_latents(**{**absorbed, name: change(absorbed[name])}, scale=1.0)
    if name != "latent":
        unfolded = {
            "q_nope": torch.randn(1, 2, 4, 5),
            "q_rope": absorbed["q_rope"],
            "k_nope": torch.randn(1, 3, 4, 5),
            "k_rope": absorbed["k_rope"],
            "v": torch.randn(1, 3, 4, 5),
        }
        with pytest.raises(ValueError, match=r"latent attention (needs|takes)"):
            attend_unfolded(**{**unfolded, name: change(unfolded[name])})


@pytest.mark.parametrize("change", [torch.Tensor.long, torch.Tensor.bool, torch.Tensor.tolist])
def test_linear_attention_never_rounds_values_or_sums_to_whole_numbers(change):
    q, v = torch.randn(1, 3, 2, 4), torch.randn(1, 3, 2, 5)
    sums = torch.zeros(1, *sums_shape(2, 4, 5))
    with pytest.raises(ValueError, match="linear attention takes"):
        parallel_linear_attention(q, q, change(v))
    with pytest.raises(ValueError, match="linear attention takes"):
        chunked_linear_attention(q, q, v, change(sums))
    with pytest.raises(ValueError, match="is a whole number of at least 1"):
        sums_shape(2, 4, -1)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scale": 0.0}, "a positive scale; got 0.0"),
        ({"scale": math.nan}, "a positive scale; got nan"),
        ({"k": 1.5}, "k is a whole number"),
        ({"k": True}, "k is a whole number"),
        ({"bias": torch.zeros(1)}, "a bias \\[E\\] or none"),
        ({"logits": torch.randn(4)}, r"logits \[tokens, E\]"),
        ({"logits": torch.ones(2, 4).long()}, "a router takes floating-point tensors"),
        ({"logits": [[0.0]]}, "a router takes torch tensors; got list"),
    ],
)
def test_a_router_refuses_scales_biases_and_logits_that_choose_nothing(change, says):
    arguments = {"logits": torch.randn(2, 4), "k": 2, **change}
    with pytest.raises(ValueError, match=says):
        route(**arguments)


def test_weights_of_one_visit_are_not_spread_over_all():
    x, experts = torch.randn(3, 4), torch.zeros(3, 2).long()
    with pytest.raises(ValueError, match="visits need x"):
        visit(x, experts, torch.ones(1, 2), 1, lambda e, rows: rows)
    up, down = torch.randn(1, 5, 4), torch.randn(1, 4, 5)
    with pytest.raises(ValueError, match="experts are an int64 tensor"):
        run_experts(x, experts.float(), torch.ones(3, 2), up, up, down)


def test_one_row_of_a_gate_is_not_spread_over_all():
    up, down = torch.randn(5, 4), torch.randn(4, 5)
    for gate in up[:1], up[0], up.mT:
        with pytest.raises(ValueError, match="a gated MLP needs"):
            gated_mlp(torch.randn(2, 4), gate, up, down)


@pytest.mark.parametrize("eps", [-1.0, math.nan, math.inf])
def test_a_norm_refuses_an_eps_that_leaves_no_numbers(eps):
    with pytest.raises(ValueError, match="eps keeps a root from 0"):
        rms_norm(torch.randn(2, 4), torch.ones(4), eps)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((torch.arange(3), 0), "the head width is a whole number of at least 2"),
        ((torch.arange(3), 4, -1.0), "theta, a positive number; got -1.0"),
        ((torch.arange(3), 4, math.nan), "theta, a positive number; got nan"),
        (([0, 1, 2], 4), "a tensor of whole numbers"),
        ((torch.arange(3).bool(), 4), "a tensor of whole numbers"),
        ((torch.arange(3) / 2, 4), "a tensor of whole numbers"),
    ],
)
def test_angles_are_of_whole_positions_and_a_positive_theta(arguments, says):
    with pytest.raises(ValueError, match=says):
        rope_tables(*arguments)


def test_a_table_of_one_position_turns_no_others():
    x, (cos, sin) = torch.randn(1, 3, 2, 4), rope_tables(torch.arange(3), 4)
    for tables in (cos[:1], sin[:1]), (cos, sin[:1]), (cos[:, :1], sin), (cos[0], sin[0]):
        with pytest.raises(ValueError, match="RoPE takes x"):
            apply_rope(x, *tables)


def test_the_reference_shows_a_nan_that_it_was_given():
    q = Q.clone()
    q[0, 0, 0, 0] = math.nan
    out = naive_attention(q, K, V)
    assert out[0, 0, 0].isnan().all()
    assert out[0, 1:].isfinite().all()


@pytest.mark.parametrize("sizes", [(0, 64), (64, -1), (64, 1.5), (True, 64)])
def test_blocks_of_no_queries_or_no_keys_are_refused(sizes):
    with pytest.raises(ValueError, match="in a block is a whole number of at least 1"):
        flash_attention(Q, K, V, *sizes)


@pytest.mark.parametrize("arguments", [(0, 3), (-1, 3), (1.5, 3), (2, True), (2, 1.5), (2, 3, -1)])
def test_a_span_is_of_whole_numbers_of_sequences_and_tokens(arguments):
    with pytest.raises(ValueError, match=r"whole number of at least|at least one token"):
        Span.of(*arguments)


@pytest.mark.parametrize("cut", [columns, rows])
@pytest.mark.parametrize(("rank", "n"), [(-1, 2), (2, 2), (0, 0), (0, 1.5), (True, 2)])
def test_a_part_is_of_a_rank_that_there_is(cut, rank, n):
    with pytest.raises(ValueError, match=r"is a whole number|there is no rank"):
        cut(torch.randn(4, 4), rank, n)


def test_heads_are_cut_from_projections_that_fit():
    wq, wk, wo = torch.randn(8, 6), torch.randn(4, 6), torch.randn(6, 8)
    for parts in (wq, wk, wk[:2], wo), (wq, wk, wk, wo[:, :4]), (wq[:7], wk, wk, wo[:, :7]):
        with pytest.raises(ValueError, match="heads of width 2 are cut from"):
            head_parts(*parts, 2, 0, 2)


@pytest.mark.parametrize("capacity", [-1, 1.5, True, math.inf])
def test_a_bin_has_a_whole_number_of_places(capacity):
    experts, x = torch.tensor([[0, 1]]), torch.randn(1, 4)
    with pytest.raises(ValueError, match="the capacity of a bin is a whole number"):
        seats(experts, 2, capacity)
    with pytest.raises(ValueError, match="the capacity of a bin is a whole number"):
        dispatch(x, experts, torch.zeros_like(experts), 2, capacity)


def test_what_is_combined_or_balanced_is_of_the_same_tokens():
    experts = torch.tensor([[0, 1], [1, 0]])
    with pytest.raises(ValueError, match="2 tokens have experts and places"):
        combine(torch.randn(2, 1, 4), experts[:1], experts, torch.ones(2, 2))
    with pytest.raises(ValueError, match="answers are combined from"):
        combine(torch.randn(2, 1, 4), experts, experts, torch.ones(2, 1))
    with pytest.raises(ValueError, match="balance is of scores"):
        load_balance_loss(torch.rand(3, 2), experts)


@pytest.mark.parametrize(
    "change",
    [
        {"original_context": math.nan},
        {"original_context": 1.5},
        {"kind": "yarn", "attention_factor": math.nan},
    ],
)
def test_a_stretching_of_positions_is_of_numbers(change):
    with pytest.raises(ValueError, match=r"original_context must be|must be positive"):
        RopeScaling(**{"kind": "llama3", "factor": 2.0, "original_context": 8, **change})


@pytest.mark.parametrize("arguments", [(-2.0,), (math.nan,), (math.inf,), (2.0, math.nan)])
def test_attention_is_sharpened_by_numbers(arguments):
    with pytest.raises(ValueError, match="positions are stretched by a positive factor"):
        yarn_mscale(*arguments)


@pytest.mark.parametrize("change", [torch.Tensor.tolist, torch.Tensor.float, torch.Tensor.long])
def test_sequences_of_several_lengths_are_tensors_of_one_dtype(change):
    q = k = torch.randn(3, 2, 4, dtype=torch.float64)
    for kernel in ragged_attention, padded_attention:
        with pytest.raises(ValueError, match="attention takes"):
            kernel(change(q), k, k, [1, 2])
        with pytest.raises(ValueError, match="new tokens is a whole number"):
            kernel(q, k, k, [1, 2.0])


@pytest.mark.parametrize("change", [lambda p: p[:1], lambda p: p[None], torch.Tensor.bool])
def test_a_draft_is_judged_by_laws_of_its_vocabulary(change):
    law = torch.full((4,), 0.25)
    with pytest.raises(ValueError, match=r"are laws \[V\]|the rule of acceptance takes"):
        acceptance_probability(change(law), law, 2)
    with pytest.raises(ValueError, match=r"are laws \[V\]|the rule of acceptance takes"):
        residual(law, change(law))


@pytest.mark.parametrize("token", [-1, 4, 1.5, True])
def test_a_drafted_token_is_one_of_the_vocabulary(token):
    law = torch.full((4,), 0.25)
    with pytest.raises(ValueError, match=r"a token is a whole number|tokens are from 0 to 3"):
        acceptance_probability(law, law, token)


@pytest.mark.parametrize("parents", [[0], [-1, 5], [-2], [-1, 0.0]])
def test_a_parent_comes_before_its_child(parents):
    with pytest.raises(ValueError, match="`parents` names"):
        depths(parents)


@pytest.mark.parametrize("row", [-1, 2, 1.5, True])
def test_a_row_that_there_is_not_is_neither_cleared_nor_copied(row):
    store = KVCache(2, 4, 1, 2)
    for ask in (
        lambda: store.clear(row),
        lambda: store.copy_row(0, row),
        lambda: store.copy_row(row, 0),
    ):
        with pytest.raises(ValueError, match=r"number of a row is a whole number|there are 2 rows"):
            ask()


@pytest.mark.parametrize(
    "sizes", [(True, 4, 1, 2), (2, 1.5, 1, 2), (2, 4, 0, 2), (2, 4, math.nan, 2)]
)
def test_a_store_has_whole_sizes(sizes):
    with pytest.raises(ValueError, match="needs sizes of at least 1"):
        KVCache(*sizes)
    with pytest.raises(ValueError, match="rollback is a whole number"):
        State(1, [(2, 2)], rollback=-1)


def test_a_bias_of_one_channel_is_not_spread_over_all():
    x, weight = torch.randn(1, 3, 4), torch.randn(4, 2)
    for bias in (torch.randn(1), torch.randn(())):
        with pytest.raises(ValueError, match="a convolution takes x"):
            causal_conv(x, weight, bias)
    with pytest.raises(ValueError, match="a convolution takes floating-point"):
        causal_conv(x.long(), weight)


def test_heads_are_pooled_in_whole_numbers_and_experts_are_numbered():
    with pytest.raises(ValueError, match="K is a whole number"):
        pool_heads(torch.randn(4, 2), 4, 2.0)
    with pytest.raises(ValueError, match="pooling takes floating-point"):
        pool_heads(torch.ones(4, 2).long(), 4, 2)
    with pytest.raises(ValueError, match="experts are int64"):
        by_expert(torch.zeros(2, 2), 3)
    with pytest.raises(ValueError, match="zero or more, for each"):
        wanda(torch.randn(2, 2), torch.tensor([1.0, math.nan]))
