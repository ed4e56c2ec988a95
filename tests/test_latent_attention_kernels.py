"""Latent attention: both forms equal the paper's formulas, cost what the theory says; the cache
keeps no more."""

import math

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from twophase.kernels.latent_attention import (
    LatentCache,
    absorbed_attention,
    attend_latents,
    expanded_attention,
)
from twophase.kernels.span import Span
from twophase.measure import Meter
from twophase.theory.kv_cache import latent_bytes_per_sequence

FORMS = [expanded_attention, absorbed_attention]
FAST = draws(30)
SIZE = st.integers(1, 7)
WIDTH = st.integers(2, 7)  # a sum over one number is no matrix product to torch, nor to the meter

# Both forms sum the same products in another order, in fp64. The exponentials of torch's fused CPU
# kernel are no better than 1e-7 even then.
EXACT = {"rtol": 1e-6, "atol": 1e-6}
# The same in fp32: 1e-7 per number, over some dozen numbers, cancellation included.
FP32 = {"rtol": 1e-4, "atol": 1e-5}


def inputs(B, T, S, N, R, rope_dim, nope_dim, v_dim, dtype=torch.float64, seed=0, device="cpu"):
    """q_nope, q_rope, latent, k_rope, w_uk, w_uv at random; scores of order 1, so that the softmax
    is neither flat nor sharp."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [
        (B, T, N, nope_dim),
        (B, T, N, rope_dim),
        (B, S, R),
        (B, S, rope_dim),
        (N, nope_dim, R),
        (N, v_dim, R),
    ]
    if device == "meta":
        return [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]
    made = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [x.to(dtype) for x in (*made[:4], made[4] / math.sqrt(R), made[5] / math.sqrt(R))]


def by_the_book(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale):
    """Equations 41 to 46 of the paper, one head and one query at a time."""
    B, T, N, _ = q_nope.shape
    S = latent.shape[1]
    out = torch.zeros(B, T, N, w_uv.shape[1], dtype=q_nope.dtype)
    for b in range(B):
        for n in range(N):
            keys = torch.stack(
                [torch.cat([w_uk[n] @ latent[b, s], k_rope[b, s]]) for s in range(S)]
            )  # [S, nope + rope]
            values = torch.stack([w_uv[n] @ latent[b, s] for s in range(S)])  # [S, v_dim]
            for t in range(T):
                seen = S - T + t + 1  # the query's own position is the last it sees
                query = torch.cat([q_nope[b, t, n], q_rope[b, t, n]])
                weights = (keys[:seen] @ query * scale).softmax(0)  # [seen]
                out[b, t, n] = weights @ values[:seen]
    return out


@pytest.mark.parametrize("attend", FORMS)
@FAST
@given(
    B=st.integers(1, 3),
    T=SIZE,
    past=st.integers(0, 5),
    N=SIZE,
    R=SIZE,
    rope_dim=SIZE,
    nope_dim=SIZE,
    v_dim=SIZE,
)
def test_each_form_is_the_papers_attention_head_by_head(
    attend, B, T, past, N, R, rope_dim, nope_dim, v_dim
):
    given_to = inputs(B, T, T + past, N, R, rope_dim, nope_dim, v_dim, seed=B + 7 * T + 49 * N)
    expected = by_the_book(*given_to, scale=1 / math.sqrt(nope_dim + rope_dim))
    torch.testing.assert_close(attend(*given_to), expected, **EXACT)
    torch.testing.assert_close(
        attend(*given_to, scale=0.3), by_the_book(*given_to, scale=0.3), **EXACT
    )


@pytest.mark.parametrize(("T", "S"), [(1, 129), (65, 65), (64, 130), (1, 1), (128, 128)])
def test_both_forms_agree_in_fp32_where_blocks_of_fused_kernels_begin_and_end(T, S):
    given_to = inputs(2, T, S, N=3, R=20, rope_dim=6, nope_dim=10, v_dim=14, dtype=torch.float32)
    torch.testing.assert_close(absorbed_attention(*given_to), expanded_attention(*given_to), **FP32)


@pytest.mark.parametrize("attend", FORMS)
@pytest.mark.parametrize("T", [1, 9])
def test_in_bf16_each_form_errs_by_no_more_than_a_few_roundings(attend, T):
    rounded = inputs(2, T, 40, N=4, R=64, rope_dim=16, nope_dim=32, v_dim=32, dtype=torch.bfloat16)
    exact = expanded_attention(*(x.double() for x in rounded))
    # One rounding is 2⁻⁹ = 0.2%; keys (or queries), scores, weights, values (or sums) and the
    # output are rounded once each.
    assert (attend(*rounded) - exact).abs().max() < 0.02 * exact.abs().max()


@FAST
@given(T=SIZE, past=st.integers(0, 4), N=st.integers(1, 4))
def test_both_forms_have_the_same_gradients(T, past, N):
    losses = []
    for attend in FORMS:
        leaves = [
            x.requires_grad_()
            for x in inputs(2, T, T + past, N, R=5, rope_dim=4, nope_dim=3, v_dim=6)
        ]
        attend(*leaves).square().sum().backward()
        losses.append([x.grad for x in leaves])
    for expanded, absorbed in zip(*losses, strict=True):
        torch.testing.assert_close(absorbed, expanded, **EXACT)


def test_a_query_never_sees_a_later_latent():
    q_nope, q_rope, latent, k_rope, w_uk, w_uv = inputs(
        1, 4, 6, N=2, R=5, rope_dim=4, nope_dim=3, v_dim=3
    )
    later, later_rope = latent.clone(), k_rope.clone()
    later[:, 4:], later_rope[:, 4:] = 99.0, -99.0
    for attend in FORMS:
        a, b = (
            attend(q_nope, q_rope, latent, k_rope, w_uk, w_uv),
            attend(q_nope, q_rope, later, later_rope, w_uk, w_uv),
        )
        torch.testing.assert_close(a[:, :2], b[:, :2], **EXACT)  # their positions are 2 and 3
        assert not torch.allclose(a[:, 2:], b[:, 2:], rtol=1e-2)


@pytest.mark.parametrize("attend", FORMS)
@pytest.mark.parametrize(
    ("which", "shape", "message"),
    [
        (
            1,
            (2, 3, 5, 4),
            r"q_rope must be \[2, 3, 4, 4\] to fit the other tensors; it is \[2, 3, 5, 4\]",
        ),
        (3, (2, 5, 4), r"k_rope must be \[2, 6, 4\]"),
        (4, (4, 7, 9), r"w_uk must be \[4, 3, 9\]"),
        (5, (3, 8, 9), r"w_uv must be \[4, 8, 9\]"),
        (2, (2, 9), "needs q_nope and q_rope of 4 axes"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_by_name(attend, which, shape, message):
    given_to = inputs(2, 3, 6, N=4, R=9, rope_dim=4, nope_dim=3, v_dim=8)
    given_to[which] = torch.zeros(shape)
    with pytest.raises(ValueError, match=message):
        attend(*given_to)


@pytest.mark.parametrize("attend", FORMS)
def test_more_queries_than_positions_are_refused(attend):
    with pytest.raises(ValueError, match="4 queries but 3 positions"):
        attend(*inputs(1, 4, 3, N=2, R=5, rope_dim=4, nope_dim=3, v_dim=3))


def test_attention_on_latents_refuses_more_queries_than_positions():
    q_latent, q_rope = torch.zeros(1, 4, 2, 5), torch.zeros(1, 4, 2, 2)
    with pytest.raises(ValueError, match="4 queries but 3 positions"):
        attend_latents(q_latent, q_rope, torch.zeros(1, 3, 5), torch.zeros(1, 3, 2), scale=1.0)


@pytest.mark.parametrize("attend", FORMS)
@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan])
def test_both_forms_refuse_the_same_scales(attend, scale):
    with pytest.raises(ValueError, match="scale that must be positive"):
        attend(*inputs(1, 2, 3, N=2, R=5, rope_dim=4, nope_dim=3, v_dim=3), scale=scale)


# Costs.


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that an operator made in memory of its own."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        given_to = {x.untyped_storage().data_ptr() for x in args if isinstance(x, torch.Tensor)}
        for x in out if isinstance(out, tuple) else [out]:
            if isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() not in given_to:
                self.numbers = max(self.numbers, x.numel())
        return out


def test_absorbed_decode_makes_nothing_larger_than_its_scores():
    B, S, N, R = 2, 50, 3, 32
    cache = LatentCache(B, S + 9, R, rope_dim=8)
    q_nope, q_rope, latent, k_rope, w_uk, w_uv = inputs(B, 1, S, N, R, 8, 6, 6, dtype=torch.float32)
    cache.write(latent, k_rope, span := Span.of(B, S))
    views = cache.read(span)
    with Largest() as absorbed:
        absorbed_attention(q_nope, q_rope, *views, w_uk, w_uv)
    with Largest() as expanded:
        expanded_attention(q_nope, q_rope, *views, w_uk, w_uv)
    assert absorbed.numbers == B * N * S  # a tenth of the latents
    assert expanded.numbers >= B * N * S * (
        6 + 8
    )  # the keys of all heads: the instrument sees what is made


@FAST
@given(B=SIZE, S=SIZE, N=SIZE, R=WIDTH, rope_dim=SIZE, nope_dim=WIDTH, v_dim=SIZE)
def test_absorbed_decode_costs_what_the_theory_counts(B, S, N, R, rope_dim, nope_dim, v_dim):
    with Meter() as m:
        absorbed_attention(*inputs(B, 1, S, N, R, rope_dim, nope_dim, v_dim))
    per_pair = 2 * N * (2 * R + rope_dim)
    absorbing = 2 * R * N * (nope_dim + v_dim)
    assert m.matmul_flops == B * (absorbing + S * per_pair)


@pytest.mark.parametrize(
    ("T", "cheaper"), [(1, "absorbed"), (170, "absorbed"), (171, "expanded"), (1000, "expanded")]
)
def test_absorbing_pays_for_up_to_170_queries_over_a_long_cache_of_deepseek_v2(T, cheaper):
    counted = {}
    for attend in FORMS:
        with Meter() as m:
            attend(
                *inputs(
                    1, T, 1_000_000, 128, 512, 64, 128, 128, dtype=torch.bfloat16, device="meta"
                )
            )
        counted[attend.__name__.removesuffix("_attention")] = m.matmul_flops
    assert min(counted, key=counted.get) == cheaper


# The cache.


@FAST
@given(
    blocks=st.lists(st.integers(1, 4), min_size=1, max_size=5), R=SIZE, rope_dim=st.integers(0, 4)
)
def test_the_cache_holds_everything_written_in_order(blocks, R, rope_dim):
    cache = LatentCache(2, 20, R, rope_dim)
    latents, keys = torch.randn(2, 20, R), torch.randn(2, 20, rope_dim)
    for i, T in enumerate(blocks):
        start, end = sum(blocks[:i]), sum(blocks[:i]) + T
        span = Span.of(2, T, start)
        cache.write(latents[:, start:end], keys[:, start:end], span)
        seen, seen_keys = cache.read(span)
        assert torch.equal(seen, latents[:, :end])
        assert torch.equal(seen_keys, keys[:, :end])


def test_what_is_held_are_views_of_the_cache():
    cache, span = LatentCache(2, 5, R=3, rope_dim=2), Span.of(2, 4)
    cache.write(torch.randn(2, 4, 3), torch.randn(2, 4, 2), span)
    latents, keys = cache.read(span)
    assert latents.data_ptr() == cache.latents.data_ptr()
    assert keys.data_ptr() == cache.rope_keys.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("B", "S_max", "R", "rope_dim"), [(1, 1, 1, 0), (3, 7, 5, 2), (2, 64, 32, 16)]
)
def test_the_cache_takes_the_bytes_that_the_theory_says(B, S_max, R, rope_dim, dtype):
    cache = LatentCache(B, S_max, R, rope_dim, dtype=dtype)
    assert cache.nbytes == B * latent_bytes_per_sequence(S_max, 1, R, rope_dim, dtype.itemsize)
    held = sum(
        x.untyped_storage().nbytes() for x in vars(cache).values() if isinstance(x, torch.Tensor)
    )
    assert cache.nbytes == held


def test_overflow_is_refused_before_anything_is_written():
    cache = LatentCache(2, 4, R=3, rope_dim=2)
    with pytest.raises(ValueError, match="sequence 0 holds 3: 2 more do not fit"):
        cache.write(torch.ones(2, 2, 3), torch.ones(2, 2, 2), Span.of(2, 2, 3))
    assert not cache.latents.any()
    assert not cache.rope_keys.any()


@pytest.mark.parametrize(
    ("latent", "key"),
    [
        ((2, 1, 4), (2, 1, 2)),
        ((2, 1, 3), (2, 1, 1)),
        ((1, 1, 3), (1, 1, 2)),
        ((2, 1, 3), (2, 2, 2)),
        ((2, 3), (2, 2)),
    ],
)
def test_blocks_of_another_shape_are_refused(latent, key):
    cache = LatentCache(2, 4, R=3, rope_dim=2)
    with pytest.raises(ValueError, match=r"takes blocks of \[2, 1, 3\] and \[2, 1, 2\]"):
        cache.write(torch.ones(latent), torch.ones(key), Span.of(2, 1))
    assert not cache.latents.any()


@pytest.mark.parametrize("sizes", [(0, 4, 3, 2), (2, 0, 3, 2), (2, 4, 0, 2), (2, 4, 3, -1)])
def test_a_cache_without_room_is_refused(sizes):
    with pytest.raises(ValueError, match="a LatentCache needs sizes of at least 1"):
        LatentCache(*sizes)
