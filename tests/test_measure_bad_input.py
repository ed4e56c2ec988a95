"""What measures, draws and shares out refuses bad input in a sentence."""

import math

import pytest

from twophase.drawing.block import Block
from twophase.drawing.svg import svg
from twophase.measure.fit import Fit
from twophase.measure.stopwatch import race
from twophase.measure.yardsticks import readers
from twophase.parallel.shares import head_shares, share, sizes
from twophase.serving.allocation import Buddy, FirstFit
from twophase.serving.occupancy import OnePiece, occupy


@pytest.mark.parametrize("amount", [-1, math.nan, math.inf])
def test_nothing_takes_a_negative_time(amount):
    with pytest.raises(ValueError, match="An amount of step is a number of at least 0"):
        Fit({"step": 1.0}, 0.0).seconds(step=amount)


@pytest.mark.parametrize(
    "options", [{"budget_s": math.nan}, {"min_rounds": 1.5}, {"warmup": True}, {"max_rounds": 2.0}]
)
def test_a_race_is_of_whole_rounds_and_some_time(options):
    with pytest.raises(ValueError, match=r"are whole numbers|a positive budget_s"):
        race({"nothing": lambda: None}, **options)


@pytest.mark.parametrize("n_bytes", [0, -1, math.nan, math.inf])
def test_nothing_is_read_of_no_buffer(n_bytes):
    with pytest.raises(ValueError, match="a buffer that is read has some bytes"):
        readers(n_bytes, "cpu")


@pytest.mark.parametrize("size", [(math.nan, 3), (3, math.inf), (-1, 3)])
def test_a_drawing_has_a_size(size):
    with pytest.raises(ValueError, match="a drawing has a width and a height"):
        svg(Block(*size, ()), "A drawing.", "tp-wide")


@pytest.mark.parametrize(("rank", "n_ranks"), [(-1, 2), (2, 2), (0, 0), (0, 1.5), (True, 2)])
def test_only_ranks_that_there_are_have_a_share(rank, n_ranks):
    for ask in lambda: share(8, rank, n_ranks), lambda: head_shares(8, 4, rank, n_ranks):
        with pytest.raises(ValueError, match=r"is a whole number|there is no rank"):
            ask()
    with pytest.raises(ValueError, match="is a whole number"):
        sizes(8, -1)
    with pytest.raises(ValueError, match="is a whole number"):
        sizes(-1, 2)


@pytest.mark.parametrize("n", [0, -1, 1.5, True, None])
def test_a_piece_and_a_pool_are_of_whole_numbers(n):
    for pieces in FirstFit(8), Buddy(8):
        with pytest.raises(ValueError, match="the number of tokens is a whole number"):
            pieces.takes(n)
    with pytest.raises(ValueError, match="the number of places is a whole number"):
        occupy([], OnePiece(FirstFit(8), lambda job: 1), n)
