"""The store of one layer: what goes in is attended to, nothing is copied, and what does not fit
changes nothing."""

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.kernels.attention import naive_attention
from twophase.kernels.kv_cache import KVCache
from twophase.kernels.span import Span


def block(B: int, T: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(B, T, n, 4, generator=g) for n in (4, 2, 2))


def same(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)  # fp32 sums of 30 numbers at most


@draws(30)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_any_split_into_blocks_gives_the_attention_without_a_cache(blocks):
    q, k, v = block(3, sum(blocks))
    cache, start = KVCache(3, 30, 2, 4), 0
    for T in blocks:
        new = slice(start, start + T)
        span = Span.of(3, T, start)
        cache.write(k[:, new], v[:, new], span)
        start += T
        assert torch.equal(cache.keys[:, :start], k[:, :start])
        expected = naive_attention(q[:, new], k[:, :start], v[:, :start])
        same(cache.attend(q[:, new], span), expected)


@draws(30)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=5))
def test_each_sequence_holds_its_own_tokens_and_sees_no_others(steps):
    cache = KVCache(2, 15, 2, 4)
    seen = [torch.zeros(0, 2, 4), torch.zeros(0, 2, 4)]
    for i, n_new in enumerate(steps):
        q, k, v = block(2, 3, seed=i)
        span = Span(tuple(len(s) for s in seen), n_new, 3)
        cache.write(k, v, span)
        seen = [torch.cat([s, k[b, :n]]) for b, (s, n) in enumerate(zip(seen, n_new, strict=True))]
        out = cache.attend(q, span)
        for b, n in enumerate(n_new):
            S = len(seen[b])
            assert torch.equal(cache.keys[b, :S], seen[b])
            if n:
                values = cache.values[b : b + 1, :S]
                same(out[b : b + 1, :n], naive_attention(q[b : b + 1, :n], seen[b][None], values))


def test_a_decode_step_reads_views_of_the_cache(monkeypatch):
    read = []
    monkeypatch.setattr(
        "twophase.kernels.kv_cache.causal_attention",
        lambda q, k, v, **_: read.append((k.data_ptr(), v.data_ptr(), k.shape[1])) or q,
    )
    cache, (q, k, v) = KVCache(1, 9, 2, 4), block(1, 1)
    for start in (0, 5):
        span = Span.of(1, 1, start)
        cache.write(k, v, span)
        cache.attend(q, span)
        assert read.pop() == (cache.keys.data_ptr(), cache.values.data_ptr(), start + 1)


@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_nbytes_is_two_times_B_S_K_H_times_the_width(dtype, width):
    cache = KVCache(5, 7, 2, 6, dtype=dtype)
    assert cache.nbytes == 2 * 5 * 7 * 2 * 6 * width
    taken = cache.keys.untyped_storage().nbytes() + cache.values.untyped_storage().nbytes()
    assert cache.nbytes == taken


@pytest.mark.parametrize(
    ("span", "says"),
    [
        (Span.of(2, 2, 3), "room for 4 tokens a sequence, and sequence 0 holds 3: 2 more do not"),
        (Span((1, 3), (2, 2), 2), "sequence 1 holds 3: 2 more do not fit"),
    ],
)
def test_overflow_of_any_sequence_is_refused_before_anything_is_written(span, says):
    cache, (_, k, v) = KVCache(2, 4, 2, 4), block(2, 2)
    with pytest.raises(ValueError, match=says):
        cache.write(k, v, span)
    assert not cache.keys.any()
    assert not cache.values.any()


def test_blocks_of_another_shape_are_refused():
    cache = KVCache(2, 4, 2, 4)
    with pytest.raises(ValueError, match=r"takes blocks of \[2, 1, 2, 4\] and"):
        cache.write(*block(1, 1)[1:], Span.of(1, 1))
    with pytest.raises(ValueError, match="at least 1"):
        KVCache(0, 4, 2, 4)


@pytest.mark.parametrize("n_new", [(1, 3), (-1, 0), (1,)])
def test_counts_of_new_tokens_outside_the_block_are_refused(n_new):
    with pytest.raises(ValueError, match="2 counts between 0 and T = 2"):
        Span((0, 0), n_new, 2)


@draws(60)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=3),
    st.integers(1, 4),
    st.sampled_from([None, 1, 2, 3]),
    st.booleans(),
)
def test_a_mask_is_what_its_words_say_token_by_token(rows, T, window, branches):
    starts, n_new = tuple(s for s, _ in rows), tuple(min(n, T) for _, n in rows)
    tree = torch.eye(T, dtype=torch.bool)
    for t in range(1, T):  # every token after the one two before it: two branches
        tree[t] |= tree[max(0, t - 2)]
    span = Span(starts, n_new, T, tree=tree if branches else None)
    keys = torch.tensor([[-1, *range(8)]])  # [1, S]: the slot of each key
    mask = span.mask(keys, window)
    for b, start in enumerate(starts):
        for t in range(T):
            depth = int(tree[t].sum()) - 1 if branches else t
            for s, slot in enumerate(keys[0].tolist()):
                new = slot - start
                if slot < 0 or new >= n_new[b]:
                    sees, at = False, 0
                elif new < 0:
                    sees, at = True, slot
                else:
                    sees = bool(tree[t, new]) if branches else new <= t
                    at = start + (int(tree[new].sum()) - 1 if branches else new)
                if window is not None:
                    sees = sees and at > start + depth - window
                assert bool(mask[b, t, s]) == sees, (b, t, slot)
