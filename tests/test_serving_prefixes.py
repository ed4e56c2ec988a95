"""A text that begins alike is found as far as it is known, and what is forgotten first is an end
that nobody has used for longest."""

import random
from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from draws import draws
from hypothesis import given

from twophase.serving import BlockManager, EngineConfig
from twophase.serving.prefixes import HashIndex
from twophase.serving.radix import RadixTree

TEXTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=12)
SIZES = st.sampled_from([1, 2, 3, 5])


def common(a: Sequence[int], b: Sequence[int]) -> int:
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


@draws(150)
@given(texts=TEXTS, asked=st.lists(st.integers(0, 2), min_size=1, max_size=14), size=SIZES)
def test_a_tree_finds_every_known_token_and_a_hash_every_full_block(
    texts: list, asked: list, size: int
) -> None:
    """Against the longest common beginning with any text, found by trying all."""
    tree, hashes, held, block = RadixTree(size), HashIndex(size), {}, 0
    for text in texts:
        table = list(range(block, block - (-len(text) // size)))
        block += len(table)
        held |= {b: text[: (i + 1) * size] for i, b in enumerate(table)}
        for n in (len(text) // 2, len(text)):  # as it is while it grows, and at its end
            if n:
                tree.add(text[:n], table[: -(-n // size)])
                hashes.add(text[:n], table)
    most = max(common(text, asked) for text in texts)
    found = tree.find(asked)
    assert found.n_tokens == most
    assert len(found.blocks) == most // size
    assert (found.partial is not None) == (most % size > 0)
    full = max(common(text[: len(text) // size * size], asked) for text in texts) // size
    assert hashes.find(asked).n_tokens == full * size == size * len(hashes.find(asked).blocks)
    blocks = (*found.blocks, *([] if found.partial is None else [found.partial]))
    for i, b in enumerate(blocks):
        end = min((i + 1) * size, most)
        assert held[b][:end] == asked[:end]


@draws(80)
@given(texts=TEXTS, size=SIZES, seed=st.integers(0, 9))
def test_whatever_is_dropped_takes_along_what_lies_behind_it_and_no_more(
    texts: list, size: int, seed: int
) -> None:
    tree, rng, beginnings, block = RadixTree(size), random.Random(seed), {}, 0
    for text in texts:
        table = list(range(block, block - (-len(text) // size)))
        block += len(table)
        tree.add(text, table)
        beginnings |= {b: text[: (i + 1) * size] for i, b in enumerate(table)}
    known = [b for b in beginnings if b in tree]
    while known:
        gone = rng.choice(known)
        leaf = tree.may_go(gone)
        lost = tree.drop(gone)
        assert leaf == (not lost)
        start = beginnings[gone]
        assert all(beginnings[b][: len(start)] == start for b in lost)
        assert [b for b in known if b in tree] == [b for b in known if b not in (gone, *lost)]
        known = [b for b in known if b in tree]
        for b in known:  # still found, to its end
            assert tree.find(beginnings[b]).n_tokens == len(beginnings[b])
    assert tree.find([0, 1, 2]).n_tokens == 0


def kept(manager: BlockManager, seq: int, tokens: list[int]) -> None:
    """A sequence that came, was computed, and went."""
    found = manager.find([*tokens, -1])
    manager.allocate(seq, len(tokens), found.blocks, found.partial)
    manager.remember(seq, tokens)
    manager.free(seq)


def test_a_tree_forgets_the_leaf_that_was_used_longest_ago() -> None:
    manager = BlockManager(5, 1, prefix_caching=True, prefix_index="radix")
    kept(manager, 0, [1, 2, 3])
    kept(manager, 1, [1, 4])
    kept(manager, 2, [1, 2])  # uses 1 and 2 again; 3 and 4 stay as old as they were
    known = {(1, 2, 3): 3, (1, 4): 2}

    def found() -> dict:
        return {t: manager.find([*t, 0]).n_tokens for t in known}

    assert found() == known
    manager.allocate(3, 1)  # an empty one
    assert found() == known
    for seq, left in ((4, {(1, 2, 3): 2, (1, 4): 2}), (5, {(1, 2, 3): 2, (1, 4): 1})):
        manager.allocate(seq, 1)
        assert found() == left
    manager.allocate(6, 1)  # 2, and 1 last of all, though it was found most often
    assert found() == {(1, 2, 3): 1, (1, 4): 1}


def test_what_somebody_holds_is_never_forgotten() -> None:
    manager = BlockManager(3, 2, prefix_caching=True, prefix_index="radix")
    manager.allocate(0, 4)
    manager.remember(0, [1, 2, 3, 4])
    manager.allocate(1, 2)
    assert manager.n_free == 0
    assert manager.find([1, 2, 3, 4, 5]).blocks == (0, 1)
    assert manager.find([1, 2, 3, 4, 5]).n_tokens == 4
    assert manager.find([1, 2, 3, 9]) == ((0,), 3, 1)
    assert manager.find([1, 2, 3, 4]) == ((0,), 3, 1)  # never all of it


def test_a_free_beginning_whose_end_is_held_goes_last_and_takes_the_end_out_of_the_tree() -> None:
    manager = BlockManager(4, 1, prefix_caching=True, prefix_index="radix")
    manager.allocate(0, 1)
    manager.allocate(1, 2)
    manager.remember(0, [7])
    manager.remember(1, [7, 8])  # its own block of 7 is not known: that of 0 is
    manager.free(0)
    manager.allocate(2, 1)
    assert manager.find([7, 8, 9]).n_tokens == 2
    manager.allocate(3, 1)  # nothing else is left
    assert manager.find([7, 8, 9]).n_tokens == 0
    manager.remember(1, [7, 8])
    assert manager.find([7, 8, 9]).n_tokens == 2


def test_a_rule_of_ones_own_says_who_is_forgotten() -> None:
    """The one that was found least often, as another than the one that was free longest."""

    def seldom(candidates) -> int:
        return min(candidates, key=lambda block: manager.hits[block])

    manager = BlockManager(2, 1, prefix_caching=True, evict=seldom)
    kept(manager, 0, [5])
    kept(manager, 1, [5])  # found once
    kept(manager, 2, [6])
    manager.allocate(3, 1)
    assert manager.find([5, 0]).n_tokens == 1
    assert manager.find([6, 0]).n_tokens == 0
    manager.evict = lambda candidates: 99
    with pytest.raises(ValueError, match="gives one of the blocks it got, not 99"):
        manager.allocate(4, 1)


def test_an_index_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="one of hash, radix; got 'tree'"):
        BlockManager(2, 2, prefix_index="tree")
    with pytest.raises(ValueError, match="one of hash, radix; got 'tree'"):
        EngineConfig(prefix_index="tree")


@pytest.mark.parametrize("index", ["hash", "radix"])
def test_what_is_known_is_found_where_compaction_put_it(index: str) -> None:
    manager = BlockManager(6, 2, prefix_caching=True, prefix_index=index)
    for seq, tokens in enumerate(([1, 2, 3, 4], [5, 6, 7, 8])):
        manager.allocate(seq, 4)
        manager.remember(seq, tokens)
    manager.free(0)
    assert manager.find([1, 2, 3, 4, 0]).n_tokens == 4
    assert len(manager.compact()) == 2  # over what was remembered of the first
    assert manager.find([5, 6, 7, 8, 0]).blocks == tuple(manager.tables[1]) == (0, 1)
    assert manager.find([1, 2, 3, 4, 0]).n_tokens == 0
