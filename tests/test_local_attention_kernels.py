"""Sliding windows: the ring cache is the uncached window, whatever the blocks, and its bytes are
the theory's."""

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.kernels.attention import causal_attention, naive_attention
from twophase.kernels.local_attention import RingKVCache
from twophase.theory.kv_cache import window_bytes_per_sequence


def draw(B: int, S: int, *heads: int, H: int = 6, seed: int = 0) -> tuple[torch.Tensor, ...]:
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(B, S, n, H, generator=g) for n in heads)


def same(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(
        a, b, rtol=1e-5, atol=1e-5
    )  # sums of at most 60 fp32 products, in another order


BLOCKS = st.lists(st.one_of(st.just(1), st.integers(0, 9)), min_size=1, max_size=8)


@draws(80)
@given(BLOCKS, st.integers(1, 12), st.integers(1, 2), st.integers(1, 3), st.integers(1, 2))
def test_any_split_into_blocks_gives_the_attention_without_a_cache(blocks, window, B, G, K):
    q, k, v = draw(B, sum(blocks), G * K, K, K)
    expected = naive_attention(q, k, v, window=window) if sum(blocks) else q
    cache, start = RingKVCache(B, window, K, 6), 0
    for T in blocks:
        new = slice(start, start + T)
        keys, values = cache.append(k[:, new], v[:, new])
        if T:  # an empty block is stored as one, but asks nothing
            same(causal_attention(q[:, new], keys, values, window=window), expected[:, new])
        start += T
        assert cache.length == start
        assert keys.shape[1] <= (window if T == 1 else window - 1 + T)


@draws(80)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 7)), min_size=1, max_size=12),
    st.integers(1, 6),
)
def test_after_any_truncations_the_ring_is_right_or_refuses(steps, window):
    cache, held = RingKVCache(1, window, 1, 6), {}  # held: the position in each slot, kept by hand
    q, k, v = draw(1, 0, 1, 1, 1)
    for i, (cut, n) in enumerate(steps):
        if not cut:
            start = k.shape[1]
            q, k, v = (
                torch.cat(pair, 1)
                for pair in zip((q, k, v), draw(1, n, 1, 1, 1, seed=i), strict=True)
            )
            keys, values = cache.append(k[:, start:], v[:, start:])
            held.update({p % window: p for p in range(start, start + n)})
            expected = naive_attention(q, k, v, window=window)[:, start:]
            same(causal_attention(q[:, start:], keys, values, window=window), expected)
            continue
        length = max(0, cache.length - n)
        before = cache.keys.clone(), cache.values.clone(), cache.length
        if all(held[p % window] == p for p in range(max(0, length - window + 1), length)):
            cache.check_truncate(length)
            cache.truncate(length)
            assert cache.length == length
            q, k, v = q[:, :length], k[:, :length], v[:, :length]
        else:
            for attempt in (cache.check_truncate, cache.truncate):
                with pytest.raises(ValueError, match="overwritten"):
                    attempt(length)
            assert cache.length == before[2]
        assert torch.equal(cache.keys, before[0])
        assert torch.equal(cache.values, before[1])


def test_a_ring_that_has_gone_round_gives_back_one_token_and_says_why_not_two():
    cache = RingKVCache(1, 4, 1, 6)
    k, v = draw(1, 9, 1, 1)
    cache.append(k[:, :4], v[:, :4])
    cache.truncate(1)  # not yet full: anything goes
    cache.append(k[:, 1:], v[:, 1:])
    with pytest.raises(
        ValueError,
        match=(
            "cannot be cut to 7 tokens: the next query needs those from position 4 on, but all"
            " before 5"
        ),
    ):
        cache.truncate(7)
    cache.truncate(8)
    with pytest.raises(ValueError, match="overwritten"):
        cache.truncate(7)
    cache.truncate(0)  # a new sequence needs nothing of the old one
    assert cache.length == 0


@pytest.mark.parametrize("length", [-1, 4])
def test_a_cache_is_not_cut_to_what_it_never_held(length):
    cache = RingKVCache(1, 8, 1, 6)
    cache.append(*draw(1, 3, 1, 1))
    with pytest.raises(ValueError, match=f"has seen 3 tokens and cannot be cut to {length}"):
        cache.check_truncate(length)


def test_a_decode_step_gets_the_ring_itself_and_a_block_gets_a_copy():
    cache = RingKVCache(2, 5, 3, 6)
    k, v = draw(2, 12, 3, 3)
    for t in range(9):
        keys, values = cache.append(k[:, t : t + 1], v[:, t : t + 1])
        assert keys.data_ptr() == cache.keys.data_ptr()
        assert values.data_ptr() == cache.values.data_ptr()
        assert keys.shape == values.shape == (2, min(t + 1, 5), 3, 6)
    keys, values = cache.append(k[:, 9:], v[:, 9:])
    assert torch.equal(keys, k[:, 5:])  # the last window − 1 = 4 in order, then the block
    assert torch.equal(values, v[:, 5:])
    cache.keys.zero_()
    assert torch.equal(keys, k[:, 5:])


@draws(40)
@given(
    *[st.integers(1, 9)] * 4, st.sampled_from([torch.float32, torch.bfloat16]), st.integers(0, 20)
)
def test_bytes_are_those_of_the_theory_and_never_grow(B, window, K, H, dtype, T):
    cache = RingKVCache(B, window, K, H, dtype=dtype)
    size = dtype.itemsize
    assert cache.nbytes == B * window_bytes_per_sequence(window + 7, window, 1, K, H, size)
    cache.append(torch.ones(B, T, K, H, dtype=dtype), torch.ones(B, T, K, H, dtype=dtype))
    keys, values = cache.append(
        torch.ones(B, 1, K, H, dtype=dtype), torch.ones(B, 1, K, H, dtype=dtype)
    )
    taken = cache.keys.untyped_storage().nbytes() + cache.values.untyped_storage().nbytes()
    assert cache.nbytes == taken
    # what a decode step reads is what the theory says a sequence of T + 1 tokens keeps
    read = keys.numel() * size + values.numel() * size
    assert read == B * window_bytes_per_sequence(T + 1, window, 1, K, H, size)


def test_a_window_as_long_as_the_text_is_full_attention():
    q, k, v = draw(2, 7, 4, 2, 2)
    keys, values = RingKVCache(2, 7, 2, 6).append(k, v)
    same(causal_attention(q, keys, values, window=7), naive_attention(q, k, v))


def test_the_cache_keeps_its_own_dtype():
    cache = RingKVCache(1, 3, 1, 6, dtype=torch.bfloat16)
    for T in (1, 2, 1):
        keys, values = cache.append(*draw(1, T, 1, 1))
        assert keys.dtype == values.dtype == torch.bfloat16


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
        with pytest.raises(ValueError, match=r"the cache takes k and v of \[2, T, 3, 6\]"):
            cache.append(*bad)
    assert cache.length == 0
    assert not cache.keys.any()
