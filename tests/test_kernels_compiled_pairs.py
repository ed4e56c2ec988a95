"""Attention over a cache in bf16 by products of pairs of bf16, or of tiles where the processor has
them: as exact as rounded weights allow.

A number rounded to bf16 is off by at most 2⁻⁸ of itself. Queries of these tests are bf16, so that
scores are those of fp32, whatever the scale; what is left is the rounding of weights, at most
2⁻⁸·Σ weight·|value|.
"""

import pytest
import torch
from latents_in_slots import attend_in_slots

from twophase.kernels.compiled import attention, lanes
from twophase.kernels.compiled.attention import (
    compiled_attention,
    compiled_paged_attention,
)
from twophase.kernels.compiled.loops import Loop

pytestmark = pytest.mark.skipif(
    not lanes.has_pairs(), reason="this processor does not multiply pairs of bf16"
)
HALF_STEP = 2.0**-8
SUMS = 1e-5  # of fp32 numbers near 1, in another order
SCALE = 0.11  # no power of two


@pytest.fixture(autouse=True, params=[1, 3], ids=["whole", "in_parts"])
def cut(request, monkeypatch):
    """Each sequence a task, or cut for three workers."""
    monkeypatch.setattr(attention, "workers", lambda: request.param)
    monkeypatch.setattr(Loop, "on", lambda loop, workers: loop.serial)


def draw(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def expected(q, k, v, softcap=None):
    """What fp64 finds, and how far rounded weights may be from it: q [N, H], k [S, K, H] and v [S,
    K, Hv] of one sequence, both [N, Hv]."""
    G = len(q) // k.shape[1]
    k, v = (x.double().repeat_interleave(G, dim=1) for x in (k, v))  # [S, N, ·]
    scores = torch.einsum("nh,snh->ns", q.double(), k) * SCALE
    weights = (softcap * (scores / softcap).tanh() if softcap else scores).softmax(-1)
    sums = (torch.einsum("ns,snh->nh", weights, values) for values in (v, v.abs()))
    found, sizes = sums
    return found, HALF_STEP * sizes + SUMS


def assert_as_near(found, q, k, v, softcap=None):
    exact, allowed = expected(q, k, v, softcap)
    assert ((found.double() - exact).abs() <= allowed).all()


@pytest.mark.parametrize("G", [1, 2, 3, 4, 5, 8, 17, 20])
@pytest.mark.parametrize(
    ("H", "Hv"), [(32, 32), (64, 32), (64, 64), (96, 96), (128, 128), (128, 96), (192, 256)]
)
def test_each_head_is_as_near_as_rounded_weights_allow(G, H, Hv):
    """Of lengths even and odd, alone and in blocks."""
    lengths = torch.tensor([1, 2, 129, 300, 0])
    q, k, v = draw(5, 1, 2 * G, H, seed=0), draw(5, 300, 2, H, seed=1), draw(5, 300, 2, Hv, seed=2)
    k[:, 299:], v[:, 299:] = k[:, :1], v[:, :1]
    found = compiled_attention(q.float(), k, v, lengths, scale=SCALE)
    for b, S in enumerate(lengths.tolist()):
        if S:
            assert_as_near(found[b, 0], q[b, 0], k[b, :S], v[b, :S])
    assert not found[4].any()


def test_a_lone_kv_head_as_wide_as_a_latent_is_read_exactly():
    """Small whole numbers and equal scores: sums of 300 tokens are exact, so that none is lost."""
    k, v = torch.zeros(1, 300, 1, 64).bfloat16(), torch.zeros(1, 300, 1, 512).bfloat16()
    v[0, :, 0] = (torch.arange(300)[:, None] * 7 + torch.arange(512)) % 13
    for S in (1, 15, 16, 17, 64, 79, 80, 300):
        found = compiled_attention(draw(1, 1, 20, 64, seed=0), k, v, torch.tensor([S])).double()
        mean = v[0, :S, 0].double().mean(0)  # [512]
        assert (found[0, 0] - mean).abs().max() <= HALF_STEP * mean.max() + SUMS
        wide = compiled_attention(draw(1, 1, 20, 64, seed=0).float(), k, v, torch.tensor([S]))
        assert (wide[0, 0].double() - mean).abs().max() <= SUMS


@pytest.mark.parametrize("N", [6, 12])  # of two KV heads: by pairs, by tiles
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize(("slots", "window"), [(300, None), (300, 40), (64, 64), (64, 50)])
def test_windows_rings_and_soft_caps_are_those_of_any_cache(slots, window, softcap, N):
    """In a ring token p lies in slot p mod slots; what no window reaches is NaN."""
    lengths = torch.tensor([300, 41, 63])
    q, k, v = draw(3, 1, N, 64, seed=0), draw(3, 300, 2, 64, seed=1), draw(3, 300, 2, 64, seed=2)
    stores = [torch.full((3, slots, 2, 64), torch.nan).bfloat16() for _ in range(2)]
    starts = [max(0, S - window) if window else 0 for S in lengths.tolist()]
    for b, (first, S) in enumerate(zip(starts, lengths.tolist(), strict=True)):
        for store, held in zip(stores, (k, v), strict=True):
            store[b, torch.arange(first, S) % slots] = held[b, first:S]
    found = compiled_attention(
        q.float(), *stores, lengths, window=window, softcap=softcap, scale=SCALE
    )
    for b, (first, S) in enumerate(zip(starts, lengths.tolist(), strict=True)):
        assert_as_near(found[b, 0], q[b, 0], k[b, first:S], v[b, first:S], softcap)


@pytest.mark.parametrize("N", [8, 16])
def test_queries_in_bf16_find_what_the_same_queries_in_fp32_find(N):
    """But for the dtype that comes out."""
    q, k, v = draw(2, 1, N, 128, seed=0), draw(2, 200, 2, 128, seed=1), draw(2, 200, 2, 128, seed=2)
    lengths = torch.tensor([200, 77])
    found, wide = (compiled_attention(x, k, v, lengths) for x in (q, q.float()))
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, wide.bfloat16())


@pytest.mark.parametrize("G", [3, 6])
def test_weights_that_bf16_holds_lose_nothing(G):
    """Equal scores have weights of 1, values are small whole numbers: sums are exact."""
    k, v = torch.zeros(1, 257, 2, 64).bfloat16(), torch.arange(257 * 2 * 64).reshape(1, 257, 2, 64)
    v = (v % 31).bfloat16()
    found = compiled_attention(draw(1, 1, 2 * G, 64, seed=0).float(), k, v, torch.tensor([257]))
    mean = v.double().sum(1).repeat_interleave(G, dim=1) / 257  # [1, N, 64]
    torch.testing.assert_close(found[:, 0].double(), mean, rtol=1e-7, atol=1e-6)


@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("size", [1, 3, 16, 64])
@pytest.mark.parametrize("N", [8, 14])
def test_pages_anywhere_are_the_same_cache(size, window, N):
    """What no block of a sequence holds is NaN."""
    lengths = [130, 1, 64, 127]
    q, k, v = draw(4, 1, N, 64, seed=0), draw(4, 192, 2, 64, seed=1), draw(4, 192, 2, 64, seed=2)
    numbers = torch.randperm(4 * (192 // size), generator=torch.Generator().manual_seed(0))
    pages = []
    for held in (k.clone(), v.clone()):
        for b, S in enumerate(lengths):
            held[b, S:] = torch.nan
        paged = torch.empty(4 * (192 // size), size, 2, 64).bfloat16()
        paged[numbers] = held.view(-1, size, 2, 64)
        pages.append(paged)
    found = compiled_paged_attention(
        q.float(), *pages, numbers.view(4, -1), torch.tensor(lengths), window=window, scale=SCALE
    )
    for b, S in enumerate(lengths):
        seen = slice(max(0, S - window) if window else 0, S)
        assert_as_near(found[b, 0], q[b, 0], k[b, seen], v[b, seen])


@pytest.mark.parametrize(("R", "rope_dim"), [(128, 64), (96, 32)])
@pytest.mark.parametrize("N", [1, 4, 6, 20, 48])
def test_latents_are_keys_and_values(N, R, rope_dim):
    q, q_rope = draw(2, 1, N, R, seed=0), draw(2, 1, N, rope_dim, seed=1)
    latents, ropes = draw(2, 301, R, seed=2), draw(2, 301, rope_dim, seed=3)
    lengths = torch.tensor([301, 1])
    queries = (x.float() for x in (q, q_rope))
    found = attend_in_slots(*queries, latents, ropes, lengths, scale=SCALE)
    for b, S in enumerate(lengths.tolist()):
        whole = torch.cat([q[b, 0], q_rope[b, 0]], -1)  # [N, R + rope_dim]
        keys = torch.cat([latents[b, :S], ropes[b, :S]], -1)[:, None]  # [S, 1, R + rope_dim]
        assert_as_near(found[b, 0], whole, keys, latents[b, :S, None])


@pytest.mark.parametrize("place", ["query", "key"])
def test_a_score_that_is_no_number_makes_its_head_none(place):
    """NaN in a query spoils its own head, in a key all heads that read it."""
    q, k, v = draw(1, 1, 4, 64, seed=0), draw(1, 81, 2, 64, seed=1), draw(1, 81, 2, 64, seed=2)
    clean = compiled_attention(q.float(), k, v, torch.tensor([81]))
    held, heads = {"query": (q[0, 0, 2], [2]), "key": (k[0, 80, 1], [2, 3])}[place]
    held[7] = torch.nan
    found = compiled_attention(q.float(), k, v, torch.tensor([81]))
    assert found[0, 0, heads].isnan().all()
    others = [i for i in range(4) if i not in heads]
    assert torch.equal(found[0, 0, others], clean[0, 0, others])


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_what_is_no_number_comes_out_of_the_heads_that_read_it(number):
    """In a value: of the last token, which has no partner, and of one that has."""
    q, k, v = draw(1, 1, 4, 64, seed=0), draw(1, 81, 2, 64, seed=1), draw(1, 81, 2, 64, seed=2)
    clean = compiled_attention(q.float(), k, v, torch.tensor([81]))
    for token in (10, 11, 80):
        spoilt = v.clone()
        spoilt[0, token, 1, 7] = number
        found = compiled_attention(q.float(), k, spoilt, torch.tensor([81]))
        torch.testing.assert_close(found[0, 0, 2:, 7], torch.full((2,), number), equal_nan=True)
        found[0, 0, 2:, 7] = clean[0, 0, 2:, 7]
        assert torch.equal(found, clean)
