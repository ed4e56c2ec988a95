"""Compiled decode attention against torch and against the plain kernels."""

import pytest
import torch
from latents_in_slots import attend_in_slots
from torch.nn import functional

from twophase.kernels.attention import causal_attention, naive_attention
from twophase.kernels.compiled import attention
from twophase.kernels.compiled.attention import (
    compiled_attention,
    compiled_paged_attention,
)
from twophase.kernels.compiled.loops import Loop
from twophase.kernels.latent_attention import attend_latents
from twophase.kernels.local_attention import RingKVCache
from twophase.kernels.span import Span

# Sums of fp32 numbers near 1 in another order; outputs are averages of numbers near 1.
CLOSE = {"rtol": 1e-5, "atol": 2e-6}


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def inputs(B, slots, N, K, H, Hv=None, dtype=torch.float32):
    q, k, v = draw(B, 1, N, H), draw(B, slots, K, H, seed=1), draw(B, slots, K, Hv or H, seed=2)
    return q, k.to(dtype), v.to(dtype)


def one_by_one(q, k, v, lengths, **options):
    """The naive kernel in fp32 on each sequence alone; zeros for an empty one."""
    outs = []
    for b, S in enumerate(lengths.tolist()):
        if S == 0:
            outs.append(torch.zeros(1, 1, q.shape[2], v.shape[3]))
        else:
            rows = (x[b : b + 1].float() for x in (q, k[:, :S], v[:, :S]))
            outs.append(naive_attention(*rows, **options))
    return torch.cat(outs)


@pytest.fixture(autouse=True, params=[1, 3], ids=["whole", "in_parts"])
def cut(request, monkeypatch):
    """Each sequence a task, or cut for three workers; one after the other, since what compiles in
    parallel computes the same and costs the compiler as much again."""
    monkeypatch.setattr(attention, "workers", lambda: request.param)
    monkeypatch.setattr(Loop, "on", lambda loop, workers: loop.serial)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("G", [1, 2, 3, 4, 5, 7, 8])
def test_grouped_heads_find_what_torch_finds(G, dtype):
    """600 tokens are several blocks, the last of them odd; a width that no vector divides."""
    q, k, v = inputs(2, 600, 3 * G, 3, 20, dtype=dtype)
    found = compiled_attention(q, k, v, torch.tensor([599, 599]))
    keys, values = (x[:, :599].float().transpose(1, 2) for x in (k, v))  # [B, K, S, H]
    expected = functional.scaled_dot_product_attention(
        q.transpose(1, 2), keys, values, enable_gqa=True
    )  # [B, N, 1, H]
    torch.testing.assert_close(found, expected.transpose(1, 2), **CLOSE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("S", [69, 70, 71, 72])
@pytest.mark.parametrize("H", [1, 7, 16, 33, 40, 48, 64, 128, 256])
def test_any_width_and_values_of_another_and_any_number_of_tokens_beyond_a_tile(H, S, dtype):
    q, k, v = inputs(1, 72, 8, 2, H, Hv=2 * H + 1, dtype=dtype)
    lengths = torch.tensor([S])
    torch.testing.assert_close(
        compiled_attention(q, k, v, lengths), one_by_one(q, k, v, lengths), **CLOSE
    )


@pytest.mark.parametrize("options", [{}, {"window": 40}, {"softcap": 3.0, "scale": 0.7}])
def test_sequences_of_different_lengths_and_what_they_see(options):
    """Empty, one token, a block, one off to either side, several blocks, full."""
    lengths = torch.tensor([0, 1, 255, 256, 257, 39, 40, 41, 700])
    q, k, v = inputs(9, 700, 6, 2, 16)
    found = compiled_attention(q, k, v, lengths, **options)
    torch.testing.assert_close(found, one_by_one(q, k, v, lengths, **options), **CLOSE)


@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("size", [1, 3, 16, 64])
def test_pages_anywhere_are_the_same_cache(size, window):
    lengths = torch.tensor([130, 0, 1, 64, 127])
    q, k, v = inputs(5, 192, 8, 2, 16)
    most = 192 // size
    numbers = torch.randperm(5 * most, generator=torch.Generator().manual_seed(0))
    pages = []
    for held in (k, v):
        paged = torch.full((5 * most, size, 2, 16), torch.nan)
        paged[numbers] = held.view(5 * most, size, 2, 16)
        pages.append(paged)
    block_table = numbers.view(5, most).int()  # [B, most]
    block_table[1] = -1  # an empty sequence has no blocks
    found = compiled_paged_attention(q, *pages, block_table, lengths, window=window)
    torch.testing.assert_close(found, one_by_one(q, k, v, lengths, window=window), **CLOSE)


@pytest.mark.parametrize("size", [2, 6, 10])
def test_small_pages_that_share_a_step_of_the_softmax_leave_nothing_to_each_other(size):
    """Tokens are scored in fours: what a page of two more has behind them is the next one's."""
    q, k, v = inputs(1, 60, 6, 3, 32)
    pages = torch.randperm(60 // size, generator=torch.Generator().manual_seed(3))
    stores = [x[0].reshape(-1, size, 3, 32)[pages.argsort()].contiguous() for x in (k, v)]
    lengths = torch.tensor([57])  # keys, values [pages, size, K, H]
    found = compiled_paged_attention(q, *stores, pages[None], lengths)
    torch.testing.assert_close(found, one_by_one(q, k, v, lengths), **CLOSE)


@pytest.mark.parametrize("spare", [0, 3])
@pytest.mark.parametrize("length", [1, 39, 40, 41, 43, 44, 100])
def test_a_ring_that_went_round_is_read_in_two_pieces(length, spare):
    k, v = draw(2, length, 2, 16, seed=1), draw(2, length, 2, 16, seed=2)
    ring = RingKVCache(2, 40, 2, 16, spare=spare)
    for t in range(length):
        ring.write(k[:, t : t + 1], v[:, t : t + 1], Span.of(2, 1, start=t))
    q = draw(2, 1, 4, 16)
    found = compiled_attention(q, *ring.held, torch.tensor([length] * 2), window=40)
    torch.testing.assert_close(found, causal_attention(q, k, v, window=40), **CLOSE)


@pytest.mark.parametrize("N", [1, 4, 6])
def test_latents_are_keys_and_values(N):
    lengths = torch.tensor([300, 1, 0])
    q, q_rope, latents, ropes = (
        draw(3, 1, N, 32),
        draw(3, 1, N, 8),
        draw(3, 300, 32),
        draw(3, 300, 8),
    )
    found = attend_in_slots(q, q_rope, latents, ropes, lengths, scale=0.2)
    for b, S in enumerate([300, 1]):
        rows = (q[b : b + 1], q_rope[b : b + 1], latents[b : b + 1, :S], ropes[b : b + 1, :S])
        torch.testing.assert_close(found[b : b + 1], attend_latents(*rows, scale=0.2), **CLOSE)
    assert not found[2].any()


def test_a_nan_that_is_seen_comes_out_and_no_other():
    """In a key, in a value, in the query: only heads that read it; what lies behind the end or
    before the window is never read."""
    q, k, v = inputs(1, 300, 4, 2, 16)
    lengths = torch.tensor([290])
    clean = compiled_attention(q, k, v, lengths, window=280)
    for hidden in (k, v):
        hidden[0, 290:] = hidden[0, :10] = torch.nan
    assert torch.equal(compiled_attention(q, k, v, lengths, window=280), clean)
    for spoilt in (k.clone(), -k.clone()):
        spoilt[0, 100, 1, 3] = torch.nan
        found = compiled_attention(q, spoilt, v, lengths, window=280)
        assert found[0, 0, :2].isfinite().all()
        assert found[0, 0, 2:].isnan().all()
    v[0, 289, 0, 5] = torch.nan
    found = compiled_attention(q, k, v, lengths, window=280)
    assert found.isnan().nonzero()[:, 2:].tolist() == [[0, 5], [1, 5]]


def test_scores_of_infinity_are_torchs():
    """A key at -inf weighs nothing, be it a whole block; none but such, or one at +inf: NaN."""
    q, k, v = torch.ones(1, 1, 1, 4), draw(1, 600, 1, 4), draw(1, 600, 1, 4, seed=2)
    lengths = torch.tensor([600])
    k[0, :500, 0, 0] = -torch.inf
    found = compiled_attention(q, k, v, lengths)
    torch.testing.assert_close(found, causal_attention(q, k, v), **CLOSE)
    assert found.isfinite().all()
    k[0, :, 0, 0] = -torch.inf
    assert compiled_attention(q, k, v, lengths).isnan().all()
    k[0, 7, 0, 0] = torch.inf
    assert compiled_attention(q, k, v, lengths).isnan().all()


def test_scores_a_thousand_apart_neither_overflow_nor_vanish():
    q, k, v = inputs(1, 300, 2, 1, 8)
    lengths = torch.tensor([300])
    torch.testing.assert_close(
        compiled_attention(1000 * q, k, v, lengths), one_by_one(1000 * q, k, v, lengths), **CLOSE
    )
