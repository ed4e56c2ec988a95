"""Linear attention: three ways to the same numbers, a state of known size, and what rounding the
state costs."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from twophase.kernels.attention import causal_attention
from twophase.kernels.linear_attention import (
    chunked_linear_attention,
    parallel_linear_attention,
    recurrent_step,
    sums_shape,
    taylor_features,
)
from twophase.kernels.state import State
from twophase.models.config import Config
from twophase.models.layer_sizes import LinearAttention as LinearConfig
from twophase.models.transformer import Transformer
from twophase.theory.beyond_attention import taylor_features as n_features
from twophase.theory.kv_cache import linear_attention_bytes

# Sums of the same numbers in another order: a few units in the last place of float64, times at most
# a hundred terms.
EXACT = {"rtol": 1e-11, "atol": 1e-12}

# N·f = 15, N·H = 21 and D = 16 all differ, and so do f and H.
ODD = Config(
    L=3, D=16, F=20, N=3, K=1, H=7 * 2, V=31, attention="linear", linear=LinearConfig(6), context=64
)
HYBRID = Config(
    **{
        **ODD.to_dict(),
        "attention": ("linear", "sliding", "gqa"),
        "window": 4,
        "linear": LinearConfig(6),
    }
)


def draw(B: int, T: int, N: int, f: int, H: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(B, T, N, n, generator=g, dtype=torch.float64) for n in (f, f, H))


def by_definition(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Every weight written out, one query at a time."""
    out = torch.empty_like(v)
    for t in range(q.shape[1]):
        s = (q[:, t, None] * k[:, : t + 1]).sum(-1) / math.sqrt(q.shape[-1])  # [B, t + 1, N]
        weights = 1 + s + s**2 / 2
        weights = weights / weights.sum(1, keepdim=True)
        out[:, t] = (weights[..., None] * v[:, : t + 1]).sum(1)
    return out


def no_tokens(q: torch.Tensor, v: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """The state before the first token."""
    return torch.zeros(q.shape[0], *sums_shape(q.shape[2], q.shape[3], v.shape[3]), dtype=dtype)


def fed(
    attend: Callable[..., tuple[torch.Tensor, torch.Tensor]],
    qkv: Sequence[torch.Tensor],
    blocks: int | list[int],
    sums: torch.Tensor,
    *more: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs and last state of tokens fed in blocks."""
    outs = []
    for block in zip(*(x.split(blocks, dim=1) for x in qkv), strict=True):
        out, sums = attend(*block, sums, *more)
        outs.append(out)
    return torch.cat(outs, dim=1), sums


@draws(50)
@given(f=st.integers(1, 9), seed=st.integers(0, 1000))
def test_products_of_features_are_the_taylor_polynomial_of_the_score(f, seed):
    q, k = draw(2, 3, 2, f, 1, seed)[:2]
    s = (q * k).sum(-1) / math.sqrt(f)
    torch.testing.assert_close(
        (taylor_features(q) * taylor_features(k)).sum(-1), 1 + s + s**2 / 2, **EXACT
    )
    assert taylor_features(q).shape[-1] == n_features(f)


@draws(40)
@given(
    B=st.integers(1, 2),
    N=st.integers(1, 3),
    f=st.integers(1, 4),
    H=st.integers(1, 5),
    blocks=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    chunk=st.integers(1, 11),
    seed=st.integers(0, 1000),
)
def test_parallel_chunked_and_recurrent_agree_with_the_definition(B, N, f, H, blocks, chunk, seed):
    q, k, v = draw(B, sum(blocks), N, f, H, seed)
    expected = by_definition(q, k, v)
    torch.testing.assert_close(parallel_linear_attention(q, k, v), expected, **EXACT)
    start = no_tokens(q, v)
    chunked, sums = fed(chunked_linear_attention, (q, k, v), blocks, start, chunk)
    torch.testing.assert_close(chunked, expected, **EXACT)
    alone, after = fed(recurrent_step, (q, k, v), 1, start)
    torch.testing.assert_close(alone, expected, **EXACT)
    torch.testing.assert_close(after, sums, **EXACT)
    assert not start.any()  # what is continued is not changed


@pytest.mark.parametrize(
    "T", [1, 63, 64, 65, 128, 129]
)  # the parallel form takes 64 queries at a time
def test_the_parallel_form_is_right_at_the_borders_of_its_blocks(T):
    q, k, v = draw(1, T, 2, 3, 4)
    torch.testing.assert_close(parallel_linear_attention(q, k, v), by_definition(q, k, v), **EXACT)
    torch.testing.assert_close(
        chunked_linear_attention(q, k, v, no_tokens(q, v))[0], by_definition(q, k, v), **EXACT
    )


def test_with_small_scores_it_is_softmax_attention_up_to_the_third_order():
    q, k, v = draw(2, 20, 3, 6, 6)
    q = 0.01 * q
    s = torch.einsum("btnf,bsnf->bnts", q, k) / math.sqrt(6)
    largest = s.abs().max()
    off = float(
        largest**3 / 6 * largest.exp()
    )  # a weight is off by at most this share: Taylor's remainder, over exp(s)
    bound = 2 * off / (1 - off) * v.abs().max()
    softmax = causal_attention(q, k, v)
    assert 0 < (parallel_linear_attention(q, k, v) - softmax).abs().max() < bound
    first_order = torch.einsum(
        "bnts,bsnh->btnh", functional.normalize((1 + s).tril(), p=1, dim=-1), v
    )
    assert (first_order - softmax).abs().max() > bound  # one order less is not enough


def test_gradients_of_the_parallel_form_are_right_and_the_chunked_form_has_the_same():
    q, k, v = (x.requires_grad_() for x in draw(1, 5, 2, 3, 2))
    assert torch.autograd.gradcheck(parallel_linear_attention, (q, k, v))
    weight = draw(1, 5, 2, 3, 2, seed=1)[2]
    of_parallel = torch.autograd.grad(
        (parallel_linear_attention(q, k, v) * weight).sum(), (q, k, v)
    )
    of_chunked = torch.autograd.grad(
        (chunked_linear_attention(q, k, v, no_tokens(q, v), 2)[0] * weight).sum(), (q, k, v)
    )
    for ours, theirs in zip(of_chunked, of_parallel, strict=True):
        torch.testing.assert_close(ours, theirs, **EXACT)


def test_a_token_never_sees_a_later_one():
    q, k, v = draw(1, 70, 2, 3, 4)
    before = parallel_linear_attention(q, k, v)
    q[:, 40:], k[:, 40:], v[:, 40:] = 7.0, -3.0, 1e6
    assert torch.equal(parallel_linear_attention(q, k, v)[:, :40], before[:, :40])


def test_scores_so_low_that_softmax_would_forget_the_key_still_weigh_it():
    q, k, v = (
        torch.ones(1, 2, 1, 4),
        torch.ones(1, 2, 1, 4),
        torch.tensor([1.0, 0.0]).view(1, 2, 1, 1),
    )
    k[:, 0] = -50.0  # s = −100: exp gives e^−102 of the weight, the polynomial 4901 : 5
    assert parallel_linear_attention(q, k, v)[0, 1, 0, 0] == pytest.approx(
        4901 / (4901 + 5), rel=1e-6
    )


def test_the_chunked_form_does_as_much_work_as_it_says():
    B, N, f, H, chunk = 2, 3, 4, 5, 8
    for T in (16, 32, 64):
        q, k, v = (x.float() for x in draw(B, T, N, f, H))
        with FlopCounterMode(display=False) as counter:
            chunked_linear_attention(q, k, v, no_tokens(q, v, torch.float32), chunk)
        inside, between = T * chunk * (f + H + 1), 2 * T * int(n_features(f)) * (H + 1)
        assert counter.get_total_flops() == 2 * B * N * (
            inside + between
        )  # a multiplication and an addition each


@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_the_state_takes_the_bytes_of_the_theory(dtype, width):
    state = State(5, [sums_shape(3, 4, 6)], dtype)
    assert state.nbytes == 5 * linear_attention_bytes(1, 3, n_features(4), 6, width)
    assert state.nbytes == state.now[0].untyped_storage().nbytes()


@pytest.mark.parametrize(
    ("dtype", "limit"), [(torch.float32, None), (torch.bfloat16, 256), (torch.float16, 2048)]
)
def test_a_state_in_half_precision_stops_counting_tokens(dtype, limit):
    nothing, one = torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1, 1)
    n = 2060 if limit == 2048 else 300
    sums = no_tokens(one, one, dtype)
    for _ in range(n):
        _, sums = recurrent_step(nothing, nothing, one, sums)
    # the sum of values, all 1, and of weights, all 1
    assert sums[0, 0, 0].tolist() == [limit or n] * 2


def test_a_bf16_state_loses_more_the_longer_it_runs():
    q, k, v = (x.float() for x in draw(1, 1024, 2, 4, 4))
    v = (
        v + torch.linspace(0, 1, 1024)[:, None, None]
    )  # the mean drifts, so that forgetting late tokens shows
    expected, start = parallel_linear_attention(q, k, v), no_tokens(q, v, torch.bfloat16)
    error = (fed(recurrent_step, (q, k, v), 1, start)[0] - expected).abs()
    early, late = error[:, :128].mean(), error[:, -128:].mean()
    assert early < 0.03 < 0.1 < late
    torch.testing.assert_close(
        expected, by_definition(q, k, v), rtol=1e-4, atol=1e-4
    )  # fp32 is not the reason


def test_bf16_inputs_are_summed_in_fp32():
    exact = draw(2, 100, 2, 4, 6)
    q, k, v = (x.bfloat16() for x in exact)
    expected = by_definition(*(x.double() for x in (q, k, v)))
    out, start = parallel_linear_attention(q, k, v), no_tokens(q, v, torch.float32)
    assert out.dtype == torch.bfloat16
    rounded = {"rtol": 2**-8, "atol": 1e-5}  # only the result is rounded: half a unit of its 8 bits
    torch.testing.assert_close(out.double(), expected, **rounded)
    torch.testing.assert_close(
        chunked_linear_attention(q, k, v, start, 7)[0].double(), expected, **rounded
    )
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(parallel_linear_attention(q, k, v), out)


def test_what_does_not_fit_is_refused():
    q, k, v = draw(1, 2, 2, 3, 4)
    state = no_tokens(q, v)
    with pytest.raises(ValueError, match=r"needs q and k of \[B, T, N, f\]"):
        parallel_linear_attention(q, k[:, :1], v)
    with pytest.raises(ValueError, match="does not fit B = 1, N = 2, f = 3 and H = 3"):
        chunked_linear_attention(q, k, v[..., :3], state)
    with pytest.raises(
        ValueError, match="tokens in a chunk is a whole number of at least 1; got 0"
    ):
        chunked_linear_attention(q, k, v, state, 0)
    with pytest.raises(ValueError, match="takes one token; got 2"):
        recurrent_step(q, k, v, state)
    with pytest.raises(ValueError, match=r"of at least 1; got 1 rows of \[\[1, 2, 0, 4\]\]"):
        State(1, [(2, 0, 4)])


@pytest.fixture(scope="module", params=[ODD, HYBRID], ids=["linear", "hybrid"])
def model(request) -> Transformer:
    torch.manual_seed(0)
    model = Transformer(request.param)
    for p in (
        model.parameters()
    ):  # initial weights are so small that every mistake would hide in the tolerance
        if p.ndim > 1:
            torch.nn.init.normal_(p, std=0.3)
    return model.eval().requires_grad_(False)


@pytest.mark.parametrize("blocks", [[12], [1] * 12, [5, 1, 1, 5], [1, 11], [7, 4, 1]])
def test_cached_logits_equal_uncached_ones_however_the_tokens_are_fed(model, blocks):
    ids = torch.randint(0, 31, (2, 12), generator=torch.Generator().manual_seed(1))
    cache = model.new_cache(2, 12)
    cached = torch.cat([model(block, cache) for block in ids.split(blocks, dim=1)], dim=1)
    torch.testing.assert_close(
        cached, model(ids), rtol=1e-4, atol=1e-5
    )  # fp32 sums in another order, 3 layers
    assert cache.length == 12


def test_the_model_has_the_parameters_and_the_cache_bytes_of_the_theory(model):
    c = model.config
    assert model.n_params == c.architecture().n_params()
    states = [s for s in model.new_cache(2, 9).stores.values() if isinstance(s, State)]
    assert len(states) == c.mixers.count("linear")
    for state in states:
        assert state.nbytes == 2 * linear_attention_bytes(
            1, c.N, n_features(c.linear.feature_dim), c.H, 4
        )
    if c is ODD:
        assert (
            model.new_cache(2, 9).nbytes == model.new_cache(2, 900).nbytes == c.L * states[0].nbytes
        )


def test_a_cache_of_keys_is_refused(model):
    c = model.config
    full = Transformer(Config(L=c.L, D=c.D, F=c.F, N=c.N, K=c.K, H=c.H, V=c.V))
    with pytest.raises(ValueError, match="layer 0 keeps a state: it needs a cache from"):
        model(torch.zeros(1, 1, dtype=torch.long), full.new_cache(1, 4))
