"""The KV cache: what goes in comes out, nothing is copied, and overflow changes nothing."""

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.kernels.kv_cache import KVCache, RaggedKVCache


def block(B: int, T: int, start: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    k = start + torch.arange(B * T * 2 * 4.0).view(B, T, 2, 4)
    return k, -k


@draws(30)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_the_cache_returns_everything_appended_in_order(blocks):
    cache = KVCache(L=2, B=3, S_max=30, K=2, H=4)
    seen = torch.zeros(3, 0, 2, 4)
    for i, T in enumerate(blocks):
        k, v = block(3, T, start=100.0 * i)
        seen = torch.cat([seen, k], dim=1)
        for layer in range(2):
            keys, values = cache.append(layer, k + layer, v - layer)
            assert torch.equal(keys, seen + layer)
            assert torch.equal(values, -seen - layer)
        assert cache.length == seen.shape[1]


def test_what_append_returns_is_a_view_of_the_cache():
    cache = KVCache(L=2, B=1, S_max=4, K=2, H=4)
    keys, values = cache.append(1, *block(1, 3))
    assert keys.data_ptr() == cache.keys[1].data_ptr()
    assert values.data_ptr() == cache.values[1].data_ptr()


def test_the_length_counts_tokens_that_every_layer_holds():
    cache = KVCache(L=2, B=1, S_max=4, K=2, H=4)
    cache.append(0, *block(1, 3))
    assert cache.length == 0
    cache.append(1, *block(1, 3))
    assert cache.length == 3


@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_nbytes_is_two_times_L_B_S_K_H_times_the_width(dtype, width):
    sizes = (3, 5, 7, 2, 6)
    for kind in (KVCache, RaggedKVCache):
        cache = kind(*sizes, dtype=dtype)
        assert cache.nbytes == 2 * 3 * 5 * 7 * 2 * 6 * width
        assert (
            cache.nbytes
            == cache.keys.untyped_storage().nbytes() + cache.values.untyped_storage().nbytes()
        )


def test_overflow_is_refused_before_anything_is_written():
    cache = KVCache(L=1, B=2, S_max=4, K=2, H=4)
    cache.append(0, *block(2, 3, start=1.0))
    keys, values = cache.keys.clone(), cache.values.clone()
    with pytest.raises(ValueError, match="room for 4 tokens and holds 3: 2 more do not fit"):
        cache.append(0, *block(2, 2))
    assert torch.equal(cache.keys, keys)
    assert torch.equal(cache.values, values)
    assert cache.length == 3
    cache.append(0, *block(2, 1))
    assert cache.length == 4


def test_overflow_of_one_ragged_sequence_leaves_all_of_them_unchanged():
    cache = RaggedKVCache(L=1, B=2, S_max=4, K=2, H=4)
    cache.append(0, *block(2, 3, start=1.0), n_new=torch.tensor([1, 3]))
    keys, values = cache.keys.clone(), cache.values.clone()
    with pytest.raises(ValueError, match="sequence 1 holds 3 of 4 tokens: 2 more do not fit"):
        cache.append(0, *block(2, 2), n_new=torch.tensor([1, 2]))
    assert torch.equal(cache.keys, keys)
    assert torch.equal(cache.values, values)
    assert cache.lengths.tolist() == [1, 3]


@draws(30)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=5))
def test_each_ragged_sequence_holds_its_own_tokens(steps):
    cache = RaggedKVCache(L=1, B=2, S_max=15, K=2, H=4)
    seen = [torch.zeros(0, 2, 4), torch.zeros(0, 2, 4)]
    for i, n_new in enumerate(steps):
        k, v = block(2, 3, start=1 + 100.0 * i)
        before = [len(s) for s in seen]
        seen = [torch.cat([s, k[b, :n]]) for b, (s, n) in enumerate(zip(seen, n_new, strict=True))]
        keys, values, starts, lengths = cache.append(0, k, v, torch.tensor(n_new))
        assert starts.tolist() == before
        assert lengths.tolist() == [len(s) for s in seen]
        assert keys.shape[1] == max(len(s) for s in seen)
        for b in range(2):
            assert torch.equal(keys[b, : len(seen[b])], seen[b])
            assert torch.equal(values[b, : len(seen[b])], -seen[b])


def test_a_truncated_cache_forgets_and_goes_on_from_there():
    cache = KVCache(L=1, B=1, S_max=5, K=2, H=4)
    cache.append(0, *block(1, 4))
    cache.truncate(1)
    keys, _ = cache.append(0, *block(1, 1, start=50.0))
    assert keys[0, :, 0, 0].tolist() == [0.0, 50.0]
    with pytest.raises(ValueError, match="holds 2 tokens and cannot be cut to 3"):
        cache.truncate(3)


@pytest.mark.parametrize("kind", [KVCache, RaggedKVCache])
def test_blocks_of_another_shape_are_refused(kind):
    cache = kind(L=1, B=2, S_max=4, K=2, H=4)
    with pytest.raises(ValueError, match=r"takes k and v of \[2, T, 2, 4\]"):
        cache.append(0, *block(1, 1))
    with pytest.raises(ValueError, match="at least 1"):
        kind(L=1, B=0, S_max=4, K=2, H=4)


def test_counts_of_new_tokens_outside_the_block_are_refused():
    cache = RaggedKVCache(L=1, B=2, S_max=4, K=2, H=4)
    with pytest.raises(ValueError, match="between 0 and T = 2"):
        cache.append(0, *block(2, 2), n_new=torch.tensor([1, 3]))
