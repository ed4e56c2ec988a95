"""Masks keep what they say, files without zeros come back bit for bit, and their bytes are the
theory's."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.kernels.pruning import (
    Bitmap,
    TwoFour,
    kept_per_row,
    magnitude,
    two_four,
    wanda,
)
from twophase.models import checkpoints
from twophase.models.pruning import with_zeros
from twophase.models.pruning.sparse import body_layers, stored_bytes
from twophase.models.quantize.calibration import corpus_windows
from twophase.theory import pruning as theory

SIZES = st.tuples(st.integers(1, 6), st.integers(1, 7).map(lambda n: 4 * n))


def drawn(O: int, I: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(O, I, generator=torch.Generator().manual_seed(seed)).bfloat16()


@draws(40)
@given(SIZES, st.integers(0, 5))
def test_two_four_keeps_the_two_largest_of_each_four(size, seed):
    weight = drawn(*size, seed)
    mask = two_four(magnitude(weight))
    for row, kept in zip(weight.tolist(), mask.tolist(), strict=True):
        for i in range(0, len(row), 4):
            best = sorted(range(4), key=lambda j, i=i, row=row: (-abs(row[i + j]), j))[:2]
            assert [j for j in range(4) if kept[i + j]] == sorted(best)


@draws(40)
@given(SIZES, st.integers(0, 5))
def test_two_four_comes_back_bit_for_bit_at_nine_sixteenths(size, seed):
    O, I = size
    weight = drawn(O, I, seed)
    weight = weight * two_four(magnitude(weight))
    stored = TwoFour.of(weight)
    assert torch.equal(stored.dense(), weight)
    assert stored.nbytes == theory.two_four_bytes(O * I)
    if O * I % 16 == 0:
        assert stored.nbytes == Fraction(9, 16) * weight.nbytes


def test_two_four_of_fewer_than_two_comes_back_too():
    weight = torch.tensor([[0.0, 0, 0, 0, 0, 0, 0, 5], [1, 0, 0, 2, 0, 3, 0, 0]]).bfloat16()
    assert torch.equal(TwoFour.of(weight).dense(), weight)


@draws(40)
@given(st.integers(1, 6), st.integers(1, 30), st.floats(0, 1), st.integers(0, 5))
def test_a_bitmap_comes_back_bit_for_bit(O, I, share, seed):
    weight = drawn(O, I, seed)
    weight[torch.rand(O, I, generator=torch.Generator().manual_seed(seed)) > share] = 0
    stored = Bitmap.of(weight)
    assert torch.equal(stored.dense(), weight)
    density = Fraction(int((weight != 0).sum()), O * I)
    assert stored.nbytes == theory.bitmap_bytes(O * I, density)


def test_rows_keep_as_many_each_and_of_equals_the_first():
    scores = torch.tensor([[1.0, 3, 3, 3], [9, 9, 8, 7]])
    assert kept_per_row(scores, 2).tolist() == [
        [False, True, True, False],
        [True, True, False, False],
    ]


def test_wanda_keeps_small_weights_of_large_inputs():
    weight = torch.tensor([[2.0, -1.0]])
    norms = torch.tensor([1.0, 3.0])
    assert kept_per_row(magnitude(weight), 1).tolist() == [[True, False]]
    assert kept_per_row(wanda(weight, norms), 1).tolist() == [[False, True]]


def test_wanda_drops_the_weight_whose_loss_changes_the_output_least():
    """One weight of a row goes: the squared change of the output is w² Σ x², which is wanda²."""
    weight, x = drawn(3, 8).float(), drawn(50, 8, seed=1).float()
    scores = wanda(weight, x.square().sum(0).sqrt())
    for o in range(3):
        changes = [float((x[:, i] * weight[o, i]).square().sum()) for i in range(8)]
        assert int(scores[o].argmin()) == changes.index(min(changes))
        assert scores[o].square().tolist() == pytest.approx(changes, rel=1e-4)


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        (lambda: two_four(torch.ones(2, 6)), "rows of 6 inputs are not made of fours"),
        (lambda: kept_per_row(torch.ones(2, 6), 7), "a row has 6 weights; 7 of them"),
        (lambda: wanda(torch.ones(2, 6), torch.ones(2)), "a length, zero or more, for each"),
        (lambda: TwoFour.of(torch.ones(1, 4)), "mask the matrix 2:4 first"),
    ],
)
def test_what_cannot_be_masked_is_refused_by_a_sentence(run, sentence):
    with pytest.raises(ValueError, match=sentence):
        run()


@pytest.mark.parametrize("how", ["magnitude", "wanda", "random"])
@pytest.mark.parametrize("pattern", ["2:4", 0.25])
def test_a_model_with_zeros_has_as_many_as_asked_and_the_file_saves_what_theory_says(how, pattern):
    model = checkpoints.load("gqa")
    made = with_zeros(model, how, pattern, corpus_windows(2, 64))
    share = 0.5 if pattern == "2:4" else pattern
    n = 0
    for _, layer in body_layers(made):
        there = (layer.weight != 0).float().mean(1)
        assert bool((there <= share).all())  # bf16 weights may be zero by themselves
        assert float(there.mean()) > share - 0.01
        n += layer.weight.numel()
    dense, packed = stored_bytes(made, pattern)
    assert dense == 2 * n
    expected = theory.two_four_bytes(n) if pattern == "2:4" else theory.bitmap_bytes(n, share)
    assert packed == pytest.approx(expected, rel=0.01)
    assert torch.equal(model.lm_head.weight, made.lm_head.weight)


def test_patterns_that_are_none_are_refused():
    model = checkpoints.load("gqa")
    for how, pattern, says in (("size", 0.5, "scored by one of"), ("wanda", 2, "a pattern is")):
        with pytest.raises(ValueError, match=says):
            with_zeros(model, how, pattern, corpus_windows(2, 64))
