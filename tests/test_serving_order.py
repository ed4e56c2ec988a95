"""Which free block is taken first, and what is counted of a block: each a rule of its own."""

from twophase.serving import BlockManager


def kept(manager: BlockManager, seq: int, tokens: list[int]) -> list[int]:
    """The table of a sequence that came, was computed, and went."""
    table = list(manager.allocate(seq, len(tokens)))
    manager.remember(seq, tokens)
    manager.free(seq)
    return table


def test_what_lay_behind_a_forgotten_block_is_taken_before_what_is_still_known() -> None:
    gone: list[int] = []
    rule = {"prefix_index": "radix", "evict": lambda _: gone.pop()}
    manager = BlockManager(6, 1, prefix_caching=True, **rule)
    kept(manager, 0, [7, 8, 9])
    first, *behind = kept(manager, 1, [1, 2, 3])
    gone.append(first)
    assert manager.allocate(2, 1) == [first]
    assert set(manager.allocate(3, 2)) == set(behind)  # without asking the rule again
    assert manager.find([7, 8, 9, 0]).n_tokens == 3


def test_a_block_that_stands_for_nothing_is_taken_before_what_is_known() -> None:
    manager = BlockManager(3, 1, prefix_caching=True)
    kept(manager, 0, [1])
    unknown = list(manager.allocate(1, 2))
    manager.free(1)
    assert set(manager.allocate(2, 2)) == set(unknown)
    assert manager.find([1, 0]).n_tokens == 1


def test_hits_are_of_what_a_block_stands_for_and_go_with_it() -> None:
    manager = BlockManager(4, 1, prefix_caching=True)
    (block,) = kept(manager, 0, [1])
    manager.allocate(1, 1, manager.match([1, 0]))
    manager.free(1)
    assert manager.hits[block] == 1
    for seq in range(4):
        manager.allocate(10 + seq, 1)
    assert manager.hits == [0] * 4  # forgotten, and with it what was counted


def test_hits_move_with_their_block_when_a_pool_is_compacted() -> None:
    manager = BlockManager(4, 1, prefix_caching=True)
    manager.allocate(0, 2)
    (block,) = kept(manager, 1, [1])
    manager.allocate(2, 1, manager.match([1, 0]))
    manager.free(0)
    moves = dict(manager.compact())
    assert moves == {block: 0}
    assert (manager.hits[0], manager.hits[block]) == (1, 0)


def test_a_block_of_which_a_copy_was_taken_was_used_last() -> None:
    manager = BlockManager(5, 2, prefix_caching=True, prefix_index="radix")
    (old,) = kept(manager, 0, [1, 2])
    (other,) = kept(manager, 1, [7, 8])
    found = manager.find([1, 9, 0])
    assert found == ((), 1, old)
    manager.allocate(2, 2, found.blocks, found.partial)
    manager.allocate(3, 4)
    manager.allocate(4, 2)  # somebody is forgotten: not the one that was just used
    assert manager.find([1, 2, 0]).n_tokens == 2
    assert manager.find([7, 8, 0]).n_tokens == 0
    assert manager.tables[4] == [other]
