"""Bad input to what serves is one sentence, nothing is taken, and nothing is lost."""

import math

import pytest
import torch

from twophase.models.config import Config
from twophase.models.transformer import Transformer
from twophase.serving.block_manager import BlockManager, check_conserved
from twophase.serving.model_runner import ModelRunner
from twophase.serving.prefixes import HashIndex
from twophase.serving.radix import RadixTree
from twophase.serving.request import check_prompt


@pytest.mark.parametrize("n_tokens", [-3, 1.5, math.nan, math.inf, True, None, "2"])
def test_blocks_are_taken_for_whole_numbers_of_tokens(n_tokens):
    manager = BlockManager(4, 2)
    manager.allocate(0, 2)
    for ask in (
        lambda: manager.allocate(1, n_tokens),
        lambda: manager.readmit(1, 0, n_tokens),
        lambda: manager.append(0, 2, n_tokens),
        lambda: manager.append(0, n_tokens, 1),
        lambda: manager.blocks_to_start(0, n_tokens),
        lambda: manager.peak(n_tokens, 1),
    ):
        with pytest.raises(ValueError, match="is a whole number of at least 0"):
            ask()
    assert manager.tables == {0: [0]}
    check_conserved(manager)


@pytest.mark.parametrize(
    ("shared", "partial"), [([-1], None), ([4], None), ([0, 0], None), ([0], 0)]
)
def test_blocks_that_there_are_not_are_not_shared(shared, partial):
    manager = BlockManager(4, 2)
    with pytest.raises(ValueError, match="shared blocks are different ones of 0 to 3"):
        manager.allocate(0, 6, shared, partial)
    assert not manager.tables
    check_conserved(manager)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, None])
def test_a_block_holds_a_whole_number_of_tokens(size):
    for index in HashIndex, RadixTree:
        with pytest.raises(ValueError, match="the block size is a whole number of at least 1"):
            index(size)


@pytest.mark.parametrize("sizes", [(0, 2, 1), (4, True, 1), (4, 2, -1), (4, 2, 1.5)])
def test_a_pool_has_sizes_of_whole_numbers(sizes):
    model = Transformer(Config(L=1, D=8, N=2, K=1, H=4, F=8, V=16))
    with pytest.raises(ValueError, match="is a whole number of at least 1"):
        ModelRunner(model, *sizes)


def test_a_mask_is_no_prompt():
    with pytest.raises(ValueError, match="a prompt is a list of tokens"):
        check_prompt([True, False], 16)


def test_what_another_runner_saved_is_not_put_back_in_part():
    model = Transformer(Config(L=2, D=8, N=2, K=1, H=4, F=8, V=16))
    runner, other = ModelRunner(model, 4, 2, 1), ModelRunner(model, 4, 4, 1)
    for pools in (runner.pools, other.pools):
        for pool in pools.values():
            pool.fill_with_noise()
    runner.seat(0)
    other.seat(0)
    own = runner.save(0, [0, 1])
    before = [held.clone() for pool in runner.pools.values() for held in pool.held]
    for saved in other.save(0, [0, 1]), own[:-1], [*own, own[0]], runner.save(0, [0, 1, 2]):
        with pytest.raises(ValueError, match="was saved by a runner of other layers or blocks"):
            runner.restore(0, [2, 3], saved)
    after = [held for pool in runner.pools.values() for held in pool.held]
    assert all(map(torch.equal, before, after))
    runner.restore(0, [2, 3], own)
    assert all(map(torch.equal, own, runner.save(0, [2, 3])))
