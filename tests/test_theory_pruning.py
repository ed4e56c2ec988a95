"""What theory says is left of a model is what is left of it, and published prunings add up."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.models.config import Config
from twophase.models.pruning import Kept, cut
from twophase.models.transformer import Transformer
from twophase.theory import pruning as theory
from twophase.theory.catalog import model as published


@draws(25)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 10), st.integers(1, 16), st.booleans())
def test_the_sizes_that_are_left_are_those_of_the_model_that_was_cut(L, K, F, D, tied):
    config = Config(L=3, D=16, F=10, N=6, K=3, H=4, V=11, tied=tied, qkv_bias=not tied)
    heads = [k * 2 + g for k in range(K) for g in (0, 1)]
    kept = Kept(
        layers=range(L),
        heads=dict.fromkeys(range(L), heads),
        channels=dict.fromkeys(range(L), range(F)),
        width=range(D),
    )
    small = cut(Transformer(config).requires_grad_(False), kept)
    left = theory.pruned(config.architecture(), L=L, K=K, F=F, D=D)
    assert left.n_params() == small.n_params
    assert left.cache_bytes(100) == small.config.architecture().cache_bytes(100)
    assert left.decode_step_flops(3, 50) == small.config.architecture().decode_step_flops(3, 50)
    assert torch.isfinite(small(torch.tensor([[1, 2]]))).all()


def test_nothing_named_is_nothing_gone():
    llama = published("llama-2-7b")
    assert theory.pruned(llama) == llama


@pytest.mark.parametrize(
    ("name", "sizes", "sentence"),
    [
        ("llama-2-7b", {"L": 33}, "has 32 of L; 33 of them cannot stay"),
        ("llama-2-7b", {"F": 0}, "0 of them cannot stay"),
        ("mixtral-8x7b", {"L": 3}, "only equal layers"),
        ("deepseek-v3", {"L": 3}, "only equal layers"),
    ],
)
def test_what_is_not_counted_is_refused_by_a_sentence(name, sizes, sentence):
    with pytest.raises(ValueError, match=sentence):
        theory.pruned(published(name), **sizes)


def test_two_four_is_nine_sixteenths_of_bf16_and_five_eighths_of_a_byte():
    assert Fraction(theory.two_four_bytes(1600), 3200) == Fraction(9, 16)
    assert Fraction(theory.two_four_bytes(1600, 1), 1600) == Fraction(5, 8)


def test_a_bitmap_pays_where_more_than_its_own_bit_is_zero():
    n = 1600
    assert theory.bitmap_bytes(n, Fraction(15, 16)) == 2 * n
    assert theory.bitmap_bytes(n, 0.5) == theory.two_four_bytes(n)  # half the weights: the same
    assert theory.indexed_bytes(n, Fraction(1, 3)) == 2 * n  # six bytes for each of a third


@draws(60)
@given(st.floats(1, 1e4), st.floats(1e9, 1e13), st.floats(1e9, 1e16), st.sampled_from([1, 2, 4]))
def test_the_gain_of_sparse_units_lies_between_one_and_two(B, bandwidth, flops, size):
    gain = theory.two_four_speedup(B, bandwidth, flops, size)
    assert 1 <= gain <= 2 * (1 + 1e-12)


def test_the_gain_is_that_of_bytes_for_few_tokens_and_two_for_many():
    assert theory.two_four_speedup(1, 1e12, 1e15) == pytest.approx(16 / 9)
    assert theory.two_four_speedup(10**5, 1e12, 1e15) == pytest.approx(2)
