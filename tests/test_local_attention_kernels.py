"""Sliding windows: the ring cache is the uncached window, whatever the blocks, and its bytes are
the theory's."""

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.kernels.attention import causal_attention, naive_attention
from twophase.kernels.local_attention import RingKVCache
from twophase.kernels.span import Span
from twophase.theory.kv_cache import window_bytes_per_sequence


def draw(B: int, S: int, *heads: int, H: int = 6, seed: int = 0) -> tuple[torch.Tensor, ...]:
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(B, S, n, H, generator=g) for n in heads)


def same(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(
        a, b, rtol=1e-5, atol=1e-5
    )  # sums of at most 60 fp32 products, in another order


BLOCKS = st.lists(st.one_of(st.just(1), st.integers(1, 9)), min_size=1, max_size=8)


@draws(80)
@given(BLOCKS, st.integers(1, 12), st.integers(1, 2), st.integers(1, 3), st.integers(1, 2))
def test_any_split_into_blocks_gives_the_attention_without_a_cache(blocks, window, B, G, K):
    q, k, v = draw(B, sum(blocks), G * K, K, K)
    expected = naive_attention(q, k, v, window=window)
    for spare in (0, 3):
        cache, start = RingKVCache(B, window, K, 6, spare=spare), 0
        for T in blocks:
            new = slice(start, start + T)
            same(fed(cache, start, q[:, new], k[:, new], v[:, new]), expected[:, new])
            start += T


def fed(cache: RingKVCache, start: int, *qkv: torch.Tensor) -> torch.Tensor:
    """What a committed block of queries finds."""
    q, k, v = qkv
    span = Span.of(q.shape[0], q.shape[1], start)
    cache.write(k, v, span)
    out = cache.attend(q, span)
    cache.commit(span, span.n_new)
    return out


@draws(80)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 7)), min_size=1, max_size=12),
    st.integers(1, 6),
    st.integers(0, 3),
)
def test_as_many_tokens_are_taken_back_as_there_are_spare_slots(steps, window, spare):
    cache = RingKVCache(1, window, 1, 6, spare=spare)
    q, k, v = draw(1, 0, 1, 1, 1)
    newest = 0  # the length that the spare slots were counted from
    for i, (back, n) in enumerate(steps):
        kept = max(0, q.shape[1] - back, newest - spare)
        more = draw(1, n, 1, 1, 1, seed=i)
        q, k, v = (torch.cat([x[:, :kept], y], 1) for x, y in zip((q, k, v), more, strict=True))
        newest = max(newest, q.shape[1])
        expected = naive_attention(q, k, v, window=window)[:, kept:]
        same(fed(cache, kept, *more), expected)


@pytest.mark.parametrize("spare", [0, 1, 2])
def test_with_more_tokens_taken_back_than_it_has_spare_slots_a_ring_answers_wrongly(spare):
    for back, right in ((spare, True), (spare + 1, True), (spare + 2, False)):
        cache, (q, k, v) = RingKVCache(1, 4, 1, 6, spare=spare), draw(1, 12, 1, 1, 1)
        for t in range(10):
            fed(cache, t, *(x[:, t : t + 1] for x in (q, k, v)))
        t = 10 - back  # one more than promised is right, since a token's own slot is free again
        found = fed(cache, t, *(x[:, t : t + 1] for x in (q, k, v)))
        expected = naive_attention(q, k, v, window=4)[:, t : t + 1]
        assert torch.allclose(found, expected, atol=1e-5) == right


def test_a_decode_step_reads_the_ring_itself_and_a_block_waits_for_its_commit(monkeypatch):
    read = []
    monkeypatch.setattr(
        "twophase.kernels.kv_cache.causal_attention",
        lambda q, k, v, **_: read.append((k, v)) or q,
    )
    cache = RingKVCache(2, 5, 3, 6)
    q, k, v = draw(2, 12, 3, 3, 3)
    for t in range(9):
        fed(cache, t, *(x[:, t : t + 1] for x in (q, k, v)))
        keys, values = read.pop()
        assert keys.data_ptr() == cache.keys.data_ptr()
        assert values.data_ptr() == cache.values.data_ptr()
        assert keys.shape == values.shape == (2, min(t + 1, 5), 3, 6)
    before, span = cache.keys.clone(), Span.of(2, 3, 9)
    cache.write(k[:, 9:], v[:, 9:], span)
    cache.attend(q[:, 9:], span)
    keys, values = read.pop()
    assert torch.equal(keys, k[:, 5:])  # the last window − 1 = 4 in order, then the block
    assert torch.equal(values, v[:, 5:])
    assert torch.equal(cache.keys, before)
    cache.commit(span, (3, 3))
    assert not torch.equal(cache.keys, before)


@draws(40)
@given(
    *[st.integers(1, 9)] * 4, st.sampled_from([torch.float32, torch.bfloat16]), st.integers(0, 20)
)
def test_bytes_are_those_of_the_theory_and_never_grow(B, window, K, H, dtype, T):
    cache = RingKVCache(B, window, K, H, dtype=dtype)
    size = dtype.itemsize
    assert cache.nbytes == B * window_bytes_per_sequence(window + 7, window, 1, K, H, size)
    one = torch.ones(B, 1, K, H, dtype=dtype)
    cache.write(one, one, span := Span.of(B, 1, T))
    taken = cache.keys.untyped_storage().nbytes() + cache.values.untyped_storage().nbytes()
    assert cache.nbytes == taken
    # what a decode step reads is what the theory says a sequence of T + 1 tokens keeps
    keys, values, _ = cache.found(span, window)
    read = keys.numel() * size + values.numel() * size
    assert read == B * window_bytes_per_sequence(T + 1, window, 1, K, H, size)


def test_a_window_as_long_as_the_text_is_full_attention():
    q, k, v = draw(2, 7, 4, 2, 2)
    same(fed(RingKVCache(2, 7, 2, 6), 0, q, k, v), naive_attention(q, k, v))


def test_keys_are_rounded_to_the_dtype_of_the_ring_and_queries_are_not():
    cache, start = RingKVCache(1, 3, 1, 6, dtype=torch.bfloat16), 0
    q, k, v = draw(1, 8, 1, 1, 1)
    expected = naive_attention(q, k.bfloat16().float(), v.bfloat16().float(), window=3)
    for T in (1, 2, 1, 4):
        new = slice(start, start + T)
        same(fed(cache, start, q[:, new], k[:, new], v[:, new]), expected[:, new])
        start += T


@pytest.mark.parametrize(("L", "window"), [(1, 4), (3, 4), (4, 2), (5, 1)])
def test_the_receptive_field_of_L_layers_is_L_times_window_minus_one_plus_one(L, window):
    S, reach = 16, L * (window - 1) + 1
    x = draw(1, S, 2)[0].double().requires_grad_()
    y = x
    for _ in range(L):
        y = y + causal_attention(y, y, y, window=window)
    y[0, -1].sum().backward()
    seen = x.grad[0].abs().sum((-1, -2)) > 0
    assert seen.tolist() == [s >= S - reach for s in range(S)]


@pytest.mark.parametrize("sizes", [(0, 4, 1, 2), (1, 0, 1, 2), (1, 4, 0, 2), (1, 4, 1, 0)])
def test_a_cache_without_room_is_refused(sizes):
    with pytest.raises(ValueError, match="of at least 1"):
        RingKVCache(*sizes)


def test_a_block_of_another_shape_is_refused_and_nothing_is_written():
    cache = RingKVCache(2, 4, 3, 6)
    k, v = draw(2, 5, 3, 3)
    for bad in (
        (k[:1], v[:1]),
        (k[:, :, :2], v[:, :, :2]),
        (k[..., :5], v[..., :5]),
        (k, v[:, :4]),
        (k[0], v[0]),
    ):
        with pytest.raises(ValueError, match=r"the cache takes blocks of \[2, 5, 3, 6\]"):
            cache.write(*bad, Span.of(2, 5))
    assert not cache.keys.any()
    with pytest.raises(ValueError, match="for windows of 4 tokens, not of 3"):
        cache.attend(k, Span.of(2, 5), window=3)
