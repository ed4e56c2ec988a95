"""How the tokens that a query sees are cut into blocks and shared out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.kernels.compiled.tables import (
    block_tokens,
    even_block_tokens,
    share_out,
    slot_table,
)


def tokens_of_tasks(tokens: int, token_bytes: int, workers: int) -> list[int]:
    """How many tokens each task of one sequence has, in the order of the cache."""
    size = even_block_tokens(tokens, token_bytes, workers)
    table, starts = slot_table(np.array([tokens]), tokens, 0, size)
    tasks, _ = share_out(starts, workers)
    assert table[0, 0] == 0
    assert (table[1:, 0] == table[:-1].sum(1)).all()  # each begins where the one before ends
    return [int(table[begin:end, 1].sum()) for _, begin, end in tasks]


@given(st.integers(1, 70_000), st.sampled_from([64, 512, 1024, 4096]), st.integers(1, 64))
def test_workers_get_as_many_tokens_each_but_for_one_a_block(tokens, token_bytes, workers):
    found = tokens_of_tasks(tokens, token_bytes, workers)
    assert sum(found) == tokens
    assert len(found) <= workers
    size = even_block_tokens(tokens, token_bytes, workers)
    blocks_each = -(-max(found) // size)
    assert max(found) <= tokens / workers + blocks_each
    assert size <= 1.5 * block_tokens(token_bytes)


@pytest.mark.parametrize(("tokens", "found"), [(256, [128, 128]), (257, [129, 128]), (1, [1])])
def test_one_token_more_than_two_blocks_is_no_block_of_its_own(tokens, found):
    assert tokens_of_tasks(tokens, 1024, 2) == found
