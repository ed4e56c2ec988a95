"""Online softmax and FlashAttention, against torch on ordinary and extreme values."""

import math

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.kernels.attention import naive_attention
from twophase.kernels.online_softmax import (
    Partial,
    flash_attention,
    merge,
    online_softmax,
    partial_attention,
)

scores = (
    st.floats(-(2.0**100), 2.0**100, width=32)
    | st.floats(-100, 100, width=32)
    | st.sampled_from([0.0, -math.inf])
)
rows = st.lists(scores, min_size=1, max_size=40)


def same(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@draws(200)
@given(rows, st.integers(1, 41))
def test_online_softmax_equals_torch_for_any_scores_and_block_size(row, block_size):
    x = torch.tensor(row)
    expected = torch.zeros_like(x) if (x == -math.inf).all() else x.softmax(-1)
    same(online_softmax(x, block_size), expected)


@draws(100)
@given(rows, rows)
def test_merged_halves_equal_the_whole_in_either_order(left, right):
    whole = torch.tensor([left + right])  # [1, S]: one query
    v = torch.linspace(-1, 1, whole.shape[1])[:, None]  # [S, 1]
    n = len(left)
    a, b = partial_attention(whole[:, :n], v[:n]), partial_attention(whole[:, n:], v[n:])
    expected = online_softmax(whole) @ v
    same(merge(a, b).value(), expected)
    same(merge(b, a).value(), expected)


def test_merging_with_nothing_changes_nothing():
    a = partial_attention(torch.tensor([[1.0, 2.0]]), torch.eye(2))
    nothing = Partial(torch.zeros(1, 2), torch.full((1,), -math.inf), torch.zeros(1))
    for merged in (merge(a, nothing), merge(nothing, a)):
        same(merged.value(), a.value())
    assert torch.equal(merge(nothing, nothing).value(), torch.zeros(1, 2))


def test_a_row_without_a_visible_score_is_zero_among_rows_that_have_some():
    x = torch.tensor([[-math.inf, -math.inf], [0.0, -math.inf]])
    assert online_softmax(x, 1).tolist() == [[0.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("T", "S", "N", "K", "H"),
    [(1, 1, 1, 1, 2), (5, 5, 6, 3, 10), (4, 13, 4, 1, 6), (9, 20, 3, 3, 4)],
)
@pytest.mark.parametrize(("block_q", "block_k"), [(1, 1), (3, 4), (4, 3), (64, 64)])
def test_flash_attention_equals_naive_attention_for_any_blocks(T, S, N, K, H, block_q, block_k):
    g = torch.Generator().manual_seed(T + S)
    q, k, v = (torch.randn(2, n, heads, H, generator=g) for n, heads in ((T, N), (S, K), (S, K)))
    same(flash_attention(q, k, v, block_q, block_k), naive_attention(q, k, v))


def test_flash_attention_survives_scores_that_overflow_a_plain_exponential():
    q, k = (
        torch.full((1, 2, 1, 4), 100.0),
        torch.full((1, 2, 1, 4), 100.0),
    )  # scores of 20,000: exp is infinite
    v = torch.tensor([1.0, 3.0])[None, :, None, None].expand(1, 2, 1, 4)
    assert flash_attention(q, k, v, 1, 1)[0, :, 0, 0].tolist() == [1.0, 2.0]


def test_flash_attention_reads_no_block_that_lies_in_the_future():
    k = torch.zeros(1, 8, 1, 2)
    k[:, 4:] = math.nan  # a read of the second half would poison the first half
    v = k.clone()
    out = flash_attention(torch.zeros(1, 8, 1, 2), k, v, block_q=4, block_k=4)
    assert out[:, :4].isfinite().all()


def test_an_empty_block_is_refused():
    with pytest.raises(ValueError, match="of at least 1; got 0"):
        online_softmax(torch.zeros(3), 0)
