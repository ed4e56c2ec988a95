"""Causal attention, against torch's own kernel and against the naive one."""

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from twophase.kernels.attention import causal_attention, naive_attention, visible

SHAPES = [  # B, T, S, N, K, H; N·H is never a power of two by habit only
    (1, 1, 1, 1, 1, 2),
    (2, 5, 5, 6, 3, 10),
    (1, 1, 17, 6, 2, 6),
    (3, 4, 9, 5, 1, 14),
    (2, 7, 8, 3, 3, 4),
    (1, 33, 65, 8, 2, 16),
]


def draw(B: int, T: int, S: int, N: int, K: int, H: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(B, n, heads, H, generator=g) for n, heads in ((T, N), (S, K), (S, K)))


def by_torch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    T, S = q.shape[1], k.shape[1]
    mask = torch.ones(T, S, dtype=torch.bool).tril(diagonal=S - T)  # aligned at the bottom right
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True).transpose(1, 2)


@pytest.mark.parametrize("attention", [causal_attention, naive_attention])
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_equals_torch_for_any_T_and_S(attention, shape):
    q, k, v = draw(*shape)
    torch.testing.assert_close(attention(q, k, v), by_torch(q, k, v), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("attention", [causal_attention, naive_attention])
def test_query_head_n_reads_kv_head_n_over_G(attention):
    q, k, _ = draw(1, 3, 3, 6, 2, 4)
    v = torch.stack([torch.zeros(3, 4), torch.ones(3, 4)], dim=1)[None]  # KV head 0 says 0, KV head 1 says 1
    assert attention(q, k, v)[0, :, :, 0].round().tolist() == [[0, 0, 0, 1, 1, 1]] * 3


@pytest.mark.parametrize("attention", [causal_attention, naive_attention])
def test_a_batch_of_several_lengths_equals_its_sequences_one_by_one(attention):
    q, k, v = draw(3, 4, 11, 4, 2, 6)
    lengths = torch.tensor([4, 11, 7])
    together = attention(q, k, v, lengths=lengths)
    for b, length in enumerate(lengths.tolist()):
        alone = naive_attention(q[b : b + 1], k[b : b + 1, :length], v[b : b + 1, :length])
        torch.testing.assert_close(together[b : b + 1], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("attention", [causal_attention, naive_attention])
def test_padding_is_never_attended_to(attention):
    q, k, v = draw(2, 3, 8, 4, 2, 6)
    lengths = torch.tensor([5, 8])
    before = attention(q, k, v, lengths=lengths)
    k[0, 5:], v[0, 5:] = 1e6, 1e6
    torch.testing.assert_close(attention(q, k, v, lengths=lengths), before, rtol=0, atol=0)


def test_queries_padded_on_the_right_do_not_disturb_the_valid_ones():
    q, k, v = draw(2, 3, 6, 4, 2, 6)  # sequence 0 holds 2 keys and brings 1 query, sequence 1 holds 3 and brings 3
    starts, lengths = torch.tensor([2, 3]), torch.tensor([3, 6])
    out = causal_attention(q, k, v, starts=starts, lengths=lengths)
    alone = naive_attention(q[:1, :1], k[:1, :3], v[:1, :3])
    torch.testing.assert_close(out[:1, :1], alone, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(out[1:], naive_attention(q[1:], k[1:], v[1:]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("attention", [causal_attention, naive_attention])
def test_a_query_that_sees_no_key_returns_zeros_and_not_nan(attention):
    q, k, v = draw(1, 3, 4, 2, 1, 4)
    out = attention(
        q, k, v, lengths=torch.tensor([2])
    )  # three queries, two keys: the first query is padding on the left
    assert torch.equal(out[0, 0], torch.zeros(2, 4))
    assert out.isfinite().all()


def test_the_mask_of_one_query_in_a_long_cache_shows_every_key():
    assert visible(1, 100).all()
    assert visible(2, 4)[0].tolist() == [[True, True, True, False], [True, True, True, True]]


def test_a_query_beyond_the_valid_keys_sees_no_padding():
    padded = visible(2, 4, lengths=torch.tensor([3]), starts=torch.tensor([2]))  # the second query is padding
    assert padded[0].tolist() == [[True, True, True, False]] * 2


@pytest.mark.parametrize(
    ("q", "k", "says"),
    [
        ((1, 3, 2, 4), (1, 2, 2, 4), "each query needs its own key"),
        ((1, 2, 3, 4), (1, 2, 2, 4), "cannot be shared evenly"),
        ((1, 2, 2, 4), (2, 2, 2, 4), "agree in B and H"),
        ((2, 2, 4), (2, 2, 4), "attention needs q"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_in_one_sentence(q, k, says):
    with pytest.raises(ValueError, match=says):
        causal_attention(torch.zeros(q), torch.zeros(k), torch.zeros(k))


class Written(TorchDispatchMode):
    """Notes the largest tensor that any operator makes anew."""

    def __init__(self, *known: torch.Tensor) -> None:
        super().__init__()
        self.known, self.largest = {t.untyped_storage().data_ptr() for t in known}, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, tuple) else (out,):
            if isinstance(t, torch.Tensor) and t.untyped_storage().data_ptr() not in self.known:
                self.largest = max(self.largest, t.numel())
        return out


@pytest.mark.parametrize("ragged", [False, True])
def test_a_decode_step_copies_neither_keys_nor_values(ragged):
    q, k, v = draw(3, 1, 80, 8, 2, 16)
    k, v = k[:, :64], v[:, :64]  # as a cache hands them out: part of a longer buffer
    lengths = torch.tensor([64, 10, 30]) if ragged else None
    with Written(k, v) as written:
        causal_attention(q, k, v, lengths=lengths)
    assert q.numel() <= written.largest < k.numel() / 4
    with Written(k, v) as written:  # the meter itself works: the naive way repeats every key G times
        naive_attention(q, k, v)
    assert written.largest == 4 * k.numel()
