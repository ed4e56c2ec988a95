"""Attention, against torch's own kernel, against that of transformers, and against the naive
one."""

import math
from types import SimpleNamespace

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.masking_utils import sliding_window_causal_mask_function
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward

from twophase.kernels.attention import (
    BLOCK,
    causal_attention,
    full_attention,
    naive_attention,
    visible,
)
from twophase.measure import Meter
from twophase.theory.arithmetic_intensity import attention_flops

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


def ending(lengths: list[int], T: int, S: int) -> torch.Tensor:
    """Who sees what where the T queries are the last of so many keys: bool [B, T, S]."""
    key, place = torch.arange(S), torch.arange(T)[:, None] - T
    return torch.stack([(key <= n + place) & (key < n) for n in lengths])


def by_torch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    T, S = q.shape[1], k.shape[1]
    mask = torch.ones(T, S, dtype=torch.bool).tril(diagonal=S - T)  # aligned at the bottom right
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, enable_gqa=True
    ).transpose(1, 2)


@pytest.mark.parametrize("attention", [causal_attention, naive_attention])
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_equals_torch_for_any_T_and_S(attention, shape):
    q, k, v = draw(*shape)
    torch.testing.assert_close(attention(q, k, v), by_torch(q, k, v), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("attention", [causal_attention, naive_attention])
def test_query_head_n_reads_kv_head_n_over_G(attention):
    q, k, _ = draw(1, 3, 3, 6, 2, 4)
    v = torch.stack([torch.zeros(3, 4), torch.ones(3, 4)], dim=1)[
        None
    ]  # KV head 0 says 0, KV head 1 says 1
    assert attention(q, k, v)[0, :, :, 0].round().tolist() == [[0, 0, 0, 1, 1, 1]] * 3


@pytest.mark.parametrize("attention", [causal_attention, naive_attention])
def test_a_batch_of_several_lengths_equals_its_sequences_one_by_one(attention):
    q, k, v = draw(3, 4, 11, 4, 2, 6)
    lengths = [4, 11, 7]
    together = attention(q, k, v, mask=ending(lengths, 4, 11))
    for b, length in enumerate(lengths):
        alone = naive_attention(q[b : b + 1], k[b : b + 1, :length], v[b : b + 1, :length])
        torch.testing.assert_close(together[b : b + 1], alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("attention", [causal_attention, naive_attention])
def test_padding_is_never_attended_to(attention):
    q, k, v = draw(2, 3, 8, 4, 2, 6)
    mask = ending([5, 8], 3, 8)
    before = attention(q, k, v, mask=mask)
    k[0, 5:], v[0, 5:] = 1e6, 1e6
    torch.testing.assert_close(attention(q, k, v, mask=mask), before, rtol=0, atol=0)


@pytest.mark.parametrize("attention", [causal_attention, naive_attention])
def test_a_query_that_sees_no_key_returns_zeros_and_not_nan(attention):
    q, k, v = draw(1, 3, 4, 2, 1, 4)
    # three queries, two keys: the first query is padding on the left
    out = attention(q, k, v, mask=ending([2], 3, 4))
    assert torch.equal(out[0, 0], torch.zeros(2, 4))
    assert out.isfinite().all()


def test_the_mask_of_one_query_in_a_long_cache_shows_every_key():
    assert visible(1, 100).all()
    assert visible(2, 4)[0].tolist() == [[True, True, True, False], [True, True, True, True]]


@pytest.mark.parametrize(
    ("T", "S", "window", "says"),
    [(5, 3, None, "5 queries but 3 keys"), (3, 5, 0, "own key; got 0"), (3, 5, -1, "own key")],
)
def test_no_mask_is_made_for_queries_without_a_key_of_their_own(T, S, window, says):
    with pytest.raises(ValueError, match=says):
        visible(T, S, window=window)


@pytest.mark.parametrize(
    ("q", "k", "says"),
    [
        ((1, 3, 2, 4), (1, 2, 2, 4), "each query needs its own key"),
        ((1, 2, 3, 4), (1, 2, 2, 4), "cannot be shared evenly"),
        ((1, 2, 3, 4), (1, 2, 0, 4), "cannot be shared evenly among 0 KV heads"),
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
    mask = ending([64, 10, 30], 1, 64) if ragged else None
    with Written(k, v) as written:
        causal_attention(q, k, v, mask=mask)
    assert q.numel() <= written.largest < k.numel() / 4
    with Written(
        k, v
    ) as written:  # the meter itself works: the naive way repeats every key G times
        naive_attention(q, k, v)
    assert written.largest == 4 * k.numel()


# Windows, soft caps, scales, other value widths.


def by_transformers(q, k, v, causal=True, window=None, softcap=None, scale=None):
    """Gemma 2's attention as transformers spells it out, under its own mask function."""
    T, S = q.shape[1], k.shape[1]
    sees = sliding_window_causal_mask_function(window or S)
    rows = [
        [not causal or bool(sees(0, 0, t, s)) for s in torch.arange(S)]
        for t in torch.arange(S - T, S)
    ]
    mask = torch.where(torch.tensor(rows), 0.0, float("-inf"))  # [T, S]
    module = SimpleNamespace(
        num_key_value_groups=q.shape[2] // k.shape[2], training=False, head_dim=q.shape[3]
    )
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return eager_attention_forward(module, q, k, v, mask, scaling=scale, softcap=softcap)[0]


OPTIONS = [
    {"window": 1},
    {"window": 3},
    {"window": 4},
    {"window": 100},
    {"softcap": 0.7},
    {"scale": 0.11},
    {"window": 2, "softcap": 1.5, "scale": 0.9},
]


@pytest.mark.parametrize("attention", [causal_attention, naive_attention])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("shape", SHAPES[:5])
def test_windows_caps_and_scales_equal_those_of_transformers(attention, options, shape):
    q, k, v = draw(*shape)
    torch.testing.assert_close(
        attention(q, k, v, **options), by_transformers(q, k, v, **options), rtol=1e-5, atol=1e-5
    )


@draws(60)
@given(st.data())
def test_causal_attention_equals_the_naive_one_whatever_the_options(data):
    size = st.integers(1, 9)
    B, T, K, G, H = (
        data.draw(s) for s in (st.integers(1, 3), size, st.integers(1, 3), st.integers(1, 3), size)
    )
    S, Hv = T + data.draw(st.integers(0, 9)), data.draw(st.one_of(st.just(H), size))
    options = {
        "window": data.draw(st.one_of(st.none(), st.integers(1, S + 1))),
        "softcap": data.draw(st.sampled_from([None, 0.5, 30.0])),
        "scale": data.draw(st.sampled_from([None, 0.25, 2.0])),
    }
    q, k, v = draw(B, T, S, G * K, K, H)
    v = torch.randn(B, S, K, Hv, generator=torch.Generator().manual_seed(1))
    if data.draw(st.booleans()):
        del options["window"]
        options["mask"] = ending([data.draw(st.integers(0, S)) for _ in range(B)], T, S)
    expected = naive_attention(q, k, v, **options)
    assert expected.shape == (B, T, G * K, Hv)
    torch.testing.assert_close(causal_attention(q, k, v, **options), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"scale": 0.2}, {"window": 2}, {"softcap": 1.1}], ids=str)
@pytest.mark.parametrize("Hv", [3, 9])
@pytest.mark.parametrize(("T", "S"), [(1, 5), (5, 5), (3, 5)])
def test_values_may_be_narrower_or_wider_than_keys(T, S, Hv, options):
    q, k, _ = draw(2, T, S, 6, 3, 6)
    v = torch.randn(2, S, 3, Hv, generator=torch.Generator().manual_seed(1))
    expected = by_transformers(q, k, v, **options)
    for attention in (causal_attention, naive_attention):
        torch.testing.assert_close(attention(q, k, v, **options), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("T", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3])
@pytest.mark.parametrize(
    "options", [{"window": 5}, {"window": BLOCK}, {"softcap": 2.0}, {"window": 9, "softcap": 1.0}]
)
def test_more_queries_than_a_block_equal_the_naive_attention(T, options):
    q, k, v = draw(1, T, T + 4, 2, 1, 4)
    expected = naive_attention(q, k, v, **options)
    torch.testing.assert_close(causal_attention(q, k, v, **options), expected, rtol=1e-5, atol=1e-5)
    q, k, v = q[:, 4:], k[:, 8:], v[:, 8:]  # T = S
    expected = naive_attention(q, k, v, **options)
    torch.testing.assert_close(causal_attention(q, k, v, **options), expected, rtol=1e-5, atol=1e-5)


def test_a_window_shows_the_last_keys_its_own_included():
    assert visible(2, 4, window=2)[0].tolist() == [
        [False, True, True, False],
        [False, False, True, True],
    ]


def test_no_query_reads_what_its_window_has_left():
    q, k, v = draw(1, 40, 40, 2, 2, 4)
    before = causal_attention(q, k, v, window=8)
    k[:, :20], v[:, :20] = float("nan"), float("nan")
    after = causal_attention(q[:, 27:], k, v, window=8)  # query 27 sees keys 20 to 27
    torch.testing.assert_close(after, before[:, 27:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("T", "S"), [(1, 1), (5, 5), (4, 9), (9, 4), (1, 7)])
@pytest.mark.parametrize("options", [{}, {"scale": 0.3}, {"softcap": 0.8, "scale": 0.9}], ids=str)
def test_full_attention_sees_every_key_for_any_T_and_S(T, S, options):
    q, k, v = draw(2, T, S, 6, 3, 10)
    both = full_attention(q, k, v, **options)
    torch.testing.assert_close(
        both, by_transformers(q, k, v, causal=False, **options), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("kind", ["plain", "window", "cap", "full", "chunk", "ragged"])
@pytest.mark.parametrize("Hv", [6, 4, 8])
def test_gradients_equal_those_of_the_naive_attention(kind, Hv):
    T = 3 if kind in ("chunk", "ragged") else 7
    options = {
        "window": {"window": 3},
        "cap": {"softcap": 0.9, "scale": 0.5},
        "ragged": {"mask": ending([2, 7], 3, 7)},
    }
    some = options.get(kind, {})
    parts = [x.double() for x in draw(2, T, 7, 4, 2, 6)[:2]]
    parts.append(
        torch.randn(2, 7, 2, Hv, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    )
    weights = torch.randn(
        2, T, 4, Hv, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )

    def gradients(attention):
        inputs = [x.clone().requires_grad_() for x in parts]
        (attention(*inputs, **some) * weights).sum().backward()
        return [x.grad for x in inputs]

    def unmasked(q, k, v):  # every query the last one: causal attention that sees all
        return torch.cat([naive_attention(q[:, t : t + 1], k, v) for t in range(T)], dim=1)

    ours, expected = (
        (full_attention, unmasked) if kind == "full" else (causal_attention, naive_attention)
    )
    for mine, right in zip(gradients(ours), gradients(expected), strict=True):
        torch.testing.assert_close(
            mine, right, rtol=1e-9, atol=1e-9
        )  # fp64: the same sums in another order


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("options", [{}, *OPTIONS], ids=str)
@pytest.mark.parametrize(("T", "S"), [(1, 33), (5, 33), (33, 33)])
def test_bf16_stays_within_its_rounding_of_the_fp32_result(training, options, T, S):
    parts = [x.bfloat16() for x in draw(2, T, S, 4, 2, 16)]
    expected = naive_attention(*(x.float() for x in parts), **options)
    out = causal_attention(*(x.requires_grad_(training) for x in parts), **options)
    assert out.dtype == torch.bfloat16
    # Scores of size up to 5 rounded to 8 bits shift a weight by 2%; outputs are averages of
    # numbers up to 4.
    torch.testing.assert_close(out.float(), expected, rtol=0, atol=4e-2)


@pytest.mark.parametrize(
    "options",
    [{"softcap": 5.0}, {"window": 20}, {"Hv": 12}, {"softcap": 5.0, "ragged": True}],
    ids=str,
)
def test_a_decode_step_with_options_copies_neither_keys_nor_values(options):
    q, k, v = draw(3, 1, 80, 8, 2, 16)
    k, v = k[:, :64], v[:, :64, :, : options.pop("Hv", 16)]
    mask = ending([64, 10, 30], 1, 64) if options.pop("ragged", False) else None
    with Written(k, v) as written:
        causal_attention(q, k, v, mask=mask, **options)
    assert 0 < written.largest < k.numel() / 2  # scores are stored: [B, G, S], per KV head


@pytest.mark.parametrize(
    "options",
    [{"softcap": 5.0}, {"window": 30, "scale": 0.2}, {"window": 6}, {"softcap": 1.0, "window": 6}],
)
def test_the_meter_counts_the_pairs_of_a_decode_step_within_the_window(options):
    q, k, v = draw(3, 1, 20, 8, 2, 16)
    with torch.inference_mode(), Meter() as m:
        causal_attention(q, k, v, **options)
    assert m.matmul_flops == attention_flops(3, 1, min(20, options.get("window", 20)), 8, 16)


@pytest.mark.parametrize("T", [4 * BLOCK, 4 * BLOCK + 1])
def test_work_in_a_window_grows_with_the_window_and_not_with_the_text(T):
    q, k, v = draw(1, T, T, 1, 1, 4)
    with torch.inference_mode(), Meter() as m:
        causal_attention(q, k, v, window=8)
    assert m.matmul_flops <= 4 * 4 * T * (
        BLOCK + 8
    )  # 4·H per pair; each block of queries meets 7 keys before it


def test_a_cap_bounds_what_one_key_can_say():
    q, k, v = torch.full((1, 2, 1, 4), 100.0), torch.zeros(1, 2, 1, 4), torch.zeros(1, 2, 1, 4)
    k[0, 0], v[0, 0] = 100.0, 1.0  # scores 20,000 and 0: uncapped, the weight of key 0 is 1
    odds = torch.tensor(2.0).exp()
    out = causal_attention(q, k, v, softcap=2.0)[0, 1, 0]
    torch.testing.assert_close(out, (odds / (1 + odds)).expand(4))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"window": 0}, "at least the query's own key; got 0"),
        ({"softcap": 0.0}, r"must be positive; got 0\.0"),
        ({"softcap": -1.0}, r"must be positive; got -1\.0"),
        ({"scale": 0.0}, r"scale that must be positive; got 0\.0"),
        ({"scale": math.nan}, "scale that must be positive; got nan"),
        ({"softcap": math.nan}, "must be positive; got nan"),
    ],
)
@pytest.mark.parametrize("attention", [causal_attention, naive_attention])
def test_impossible_options_are_refused_in_one_sentence(attention, options, says):
    with pytest.raises(ValueError, match=says):
        attention(*draw(1, 2, 2, 1, 1, 2), **options)
    if "window" not in options:
        with pytest.raises(ValueError, match=says):
            full_attention(*draw(1, 2, 2, 1, 1, 2), **options)


def test_values_for_other_keys_are_refused():
    for v in (torch.zeros(1, 3, 1, 2), torch.zeros(1, 2, 2, 2), torch.zeros(1, 2, 2)):
        for attention in (causal_attention, full_attention, naive_attention):
            with pytest.raises(ValueError, match="attention needs q"):
                attention(torch.zeros(1, 2, 2, 2), torch.zeros(1, 2, 1, 2), v)


@draws(30)
@given(st.integers(1, 3), st.integers(1, 6), st.integers(1, 9), st.integers(0, 1000))
def test_a_mask_is_obeyed_whatever_it_says_and_who_sees_nothing_gets_zeros(B, T, S, seed):
    g = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(B, n, heads, 6, generator=g) for n, heads in ((T, 4), (S, 2), (S, 2)))
    for mask in (torch.rand(B, T, S, generator=g) < 0.5, torch.rand(1, T, S, generator=g) < 0.1):
        for softcap in (None, 2.0):
            found = causal_attention(q, k, v, mask=mask, softcap=softcap)
            expected = naive_attention(q, k, v, mask=mask, softcap=softcap)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
            blind = ~mask.any(-1).expand(B, T)
            assert not found[blind].any()


def test_a_mask_of_another_shape_or_beside_another_rule_is_refused():
    q, k, v = (torch.randn(2, n, 2, 4) for n in (3, 5, 5))
    mask = torch.ones(2, 3, 5, dtype=torch.bool)
    for attend in (causal_attention, naive_attention):
        for bad in (mask.float(), mask[:, :2], mask[0], mask.repeat(2, 1, 1)):
            with pytest.raises(ValueError, match=r"bool tensor \[1 or 2, 3, 5\]"):
                attend(q, k, v, mask=bad)
        with pytest.raises(ValueError, match="goes without a window"):
            attend(q, k, v, mask=mask, window=2)
