"""Each way of cutting a layer gives what one process gives, and sends what theory says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from twophase.kernels import sharding as kernels
from twophase.kernels.attention import causal_attention
from twophase.kernels.collectives import Comm, simulate
from twophase.kernels.mlp import gated_mlp
from twophase.measure.collectives import Tracer
from twophase.measure.events import EventLog
from twophase.theory import sharding as theory

CLOSE = {"rtol": 1e-9, "atol": 1e-9}  # float64 sums in another order
RANKS = st.sampled_from([1, 2, 3, 4, 8])
SMALL = st.integers(1, 3)


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def mlp_weights(D: int, F: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return numbers(F, D, seed=1), numbers(F, D, seed=2), numbers(D, F, seed=3)


def traced(n: int, function: Callable[[Comm], Any]) -> tuple[list[Any], list[int]]:
    """Results by rank, and the bytes that each sent."""
    logs = [EventLog() for _ in range(n)]
    results = simulate(n, lambda comm: function(Tracer(comm, logs[comm.rank])))
    return results, [sum(e["sent_bytes"] for e in log) for log in logs]


@draws(25)
@given(n=st.integers(1, 8), B=SMALL, T=SMALL, D=st.integers(1, 9), F=st.integers(1, 19))
def test_a_cut_mlp_equals_the_whole_one_for_widths_that_do_not_divide(n, B, T, D, F):
    x, (gate, up, down), bias = numbers(B, T, D), mlp_weights(D, F), numbers(D, seed=4)

    def rank(comm: Comm) -> torch.Tensor:
        parts = [kernels.columns(w, comm.rank, n) for w in (gate, up)]
        return kernels.tensor_mlp(comm, x, *parts, kernels.rows(down, comm.rank, n), bias)

    results, sent = traced(n, rank)
    for found in results:
        torch.testing.assert_close(found, gated_mlp(x, gate, up, down) + bias, **CLOSE)
    assert sum(sent) == n * theory.tensor_sent_bytes(B * T, D, n, bytes_per_activation=8)


@draws(15)
@given(n=RANKS, tokens=SMALL, D=SMALL, F=SMALL)
def test_gathered_weights_do_a_ranks_own_tokens_and_send_the_weights(n, tokens, D, F):
    D, F = n * D, n * F
    x, (gate, up, down) = numbers(n, tokens, D), mlp_weights(D, F)

    def rank(comm: Comm) -> torch.Tensor:
        r = comm.rank
        w_in = (kernels.columns(w, r, n) for w in (gate, up))
        return kernels.gathered_mlp(comm, x[r], *w_in, kernels.rows(down, r, n))

    results, sent = traced(n, rank)
    torch.testing.assert_close(torch.stack(results), gated_mlp(x, gate, up, down), **CLOSE)
    assert set(sent) == {theory.gathered_sent_bytes(3 * D * F, n, bytes_per_param=8)}


@pytest.mark.parametrize(
    ("n", "N", "K"), [(1, 4, 2), (2, 4, 2), (4, 4, 2), (8, 8, 2), (3, 6, 3), (4, 8, 1), (8, 8, 8)]
)
def test_attention_with_heads_cut_equals_the_whole_with_kv_heads_copied_where_they_must_be(n, N, K):
    B, T, H, D = 2, 5, 4, 6
    x = numbers(B, T, D)
    weights = [numbers(w, D, seed=i) for i, w in enumerate((N * H, K * H, K * H))]
    wo = numbers(D, N * H, seed=9)
    q, k, v = (functional.linear(x, w).view(B, T, -1, H) for w in weights)
    whole = functional.linear(causal_attention(q, k, v).reshape(B, T, N * H), wo)

    def rank(comm: Comm) -> torch.Tensor:
        parts = kernels.head_parts(*weights, wo, H, comm.rank, n)
        assert parts.wk.shape[0] == max(1, K // n) * H
        return kernels.tensor_attention(comm, x, parts, H)

    results, sent = traced(n, rank)
    for found in results:
        torch.testing.assert_close(found, whole, **CLOSE)
    assert sum(sent) == n * theory.tensor_sent_bytes(B * T, D, n, bytes_per_activation=8)


def step(B: int, S: int, N: int, K: int, H: int) -> tuple[torch.Tensor, ...]:
    """Queries, keys, values of B new tokens, and caches whose last place is theirs."""
    widths = ((B, N * H), (B, K * H), (B, K * H), (B, S, K, H), (B, S, K, H))
    return tuple(numbers(*shape, seed=i).float() for i, shape in enumerate(widths))


def whole_step(q, k, v, k_cache, v_cache):
    k_all, v_all = k_cache.clone(), v_cache.clone()
    k_all[:, -1], v_all[:, -1] = k.view_as(k_all[:, -1]), v.view_as(v_all[:, -1])
    H = k_all.shape[-1]
    return causal_attention(q.view(len(q), 1, -1, H), k_all, v_all).flatten(1)  # [B, N · H]


def own(comm: Comm, *whole: torch.Tensor) -> kernels.Projected:
    """A rank's columns."""
    return kernels.Projected(*(x.chunk(comm.size, -1)[comm.rank] for x in whole))


@draws(15)
@given(n=RANKS, B=SMALL, S=st.integers(1, 7), K=SMALL, G=SMALL, H=st.sampled_from([2, 3]))
def test_a_cache_cut_by_sequence_gives_the_same_step_and_sends_two_exchanges(n, B, S, K, G, H):
    B, N, K = n * B, n * K * G, n * K
    q, k, v, k_cache, v_cache = step(B, S, N, K, H)

    def rank(comm: Comm) -> torch.Tensor:
        mine = [c.chunk(n)[comm.rank].clone() for c in (k_cache, v_cache)]
        return kernels.batch_split_decode(comm, own(comm, q, k, v), *mine, H)

    results, sent = traced(n, rank)
    whole = whole_step(q, k, v, k_cache, v_cache)
    torch.testing.assert_close(torch.cat(results, -1), whole, rtol=1e-4, atol=1e-5)
    assert set(sent) == {theory.batch_split_sent_bytes(B, N, K, H, n, bytes_per_activation=4)}


@draws(25)
@given(n=RANKS, B=SMALL, S=st.integers(1, 20), K=SMALL, G=SMALL, last=st.booleans(), data=st.data())
def test_a_cache_cut_by_position_merges_to_the_same_step_however_uneven(n, B, S, K, G, last, data):
    """Ranks may hold no position; the new one may be the last rank's, or the first's."""
    H, N, K = 2, n * K * G, n * K
    q, k, v, k_cache, v_cache = step(B, S, N, K, H)
    cuts = sorted(data.draw(st.lists(st.integers(0, S - 1), min_size=n - 1, max_size=n - 1)))
    holder = n - 1 if last else 0

    def rank(comm: Comm) -> torch.Tensor:
        piece = (comm.rank - holder - 1) % n  # the last piece is the holder's
        mine = [c.tensor_split(cuts, 1)[piece].clone() for c in (k_cache, v_cache)]
        return kernels.length_split_decode(comm, own(comm, q, k, v), *mine, H, comm.rank == holder)

    results, sent = traced(n, rank)
    whole = whole_step(q, k, v, k_cache, v_cache)
    torch.testing.assert_close(torch.cat(results, -1), whole, rtol=1e-4, atol=1e-5)
    assert set(sent) == {theory.length_split_sent_bytes(B, N, K, H, n, 4, 4)}


@draws(20)
@given(X=st.sampled_from([1, 2, 3]), yz=st.sampled_from([1, 2, 4]), t=SMALL, D=SMALL, F=SMALL)
def test_an_mlp_cut_both_ways_equals_the_whole_and_sends_what_the_paper_counts(X, yz, t, D, F):
    n = X * yz
    D, F = n * D, n * F
    x, (gate, up, down) = numbers(t, D), mlp_weights(D, F)

    def rank(comm: Comm) -> torch.Tensor:
        along_x, along_yz = kernels.mesh(comm, X)
        at_x, at_yz = divmod(comm.rank, yz)
        w_in = (kernels.rows(kernels.columns(w, at_yz, yz), at_x, X) for w in (gate, up))
        w_out = kernels.columns(kernels.rows(down, at_yz, yz), at_x, X)
        piece = x.chunk(X, -1)[at_x].chunk(yz, -1)[at_yz]
        return kernels.stationary_mlp(along_x, along_yz, piece, *w_in, w_out)

    results, sent = traced(n, rank)
    whole = gated_mlp(x, gate, up, down)
    torch.testing.assert_close(torch.cat(results, -1), whole, **CLOSE)
    expected = theory.weight_stationary_sent_bytes(t, D, F, X, n, n_in=2, bytes_per_activation=8)
    assert sent == pytest.approx([expected] * n, rel=1e-12)


def test_a_mesh_that_does_not_divide_the_ranks_is_refused():
    with pytest.raises(Exception, match="6 ranks make no mesh with 4 along X"):
        simulate(6, lambda comm: kernels.mesh(comm, 4))
