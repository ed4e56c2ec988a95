"""Blocks are conserved under any operations, and what a sequence reads is what it wrote."""

import random
from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from twophase.serving import BlockManager, NoFreeBlocks
from twophase.serving.block_manager import check_conserved
from twophase.serving.prefixes import prefix_keys

SIZE = 3
WHICH = st.integers(0, 999)  # of those that are there


class Blocks(RuleBasedStateMachine):
    """Sequences of tokens in blocks, beside what they should hold."""

    index = "hash"

    def __init__(self) -> None:
        super().__init__()
        self.manager = BlockManager(7, SIZE, prefix_caching=True, prefix_index=self.index)
        self.cells: dict[tuple[int, int], int] = {}  # (block, place) -> token
        self.held: dict[int, list[int]] = {}
        self.n = 0

    def _write(self, seq: int, tokens: Sequence[int]) -> None:
        start = len(self.held[seq])
        for source, target in self.manager.append(seq, start, len(tokens)):
            self._copy(source, target)
        table = self.manager.tables[seq]
        for i, token in enumerate(tokens, start):
            assert self.manager.ref_count[table[i // SIZE]] == 1  # nobody else's
            self.cells[table[i // SIZE], i % SIZE] = token
        self.held[seq] += tokens
        self.manager.remember(seq, self.held[seq])

    def _copy(self, source: int, target: int) -> None:
        for place in range(SIZE):
            self.cells[target, place] = self.cells.get((source, place), -1)

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=8))
    def begin(self, tokens: list[int]) -> None:
        found = self.manager.find(tokens)
        assert found.n_tokens < len(tokens)
        assert list(found.blocks) == self.manager.match(tokens)
        before = self.manager.n_free
        try:
            table = self.manager.allocate(self.n, len(tokens), found.blocks, found.partial)
        except NoFreeBlocks:
            assert self.manager.n_free == before
            assert self.n not in self.manager.tables
            return
        if found.partial is not None:
            self._copy(found.partial, table[len(found.blocks)])
        self.held[self.n] = tokens[: found.n_tokens]
        self._write(self.n, tokens[found.n_tokens :])
        self.n += 1

    def _one(self, which: int) -> int:
        return sorted(self.held)[which % len(self.held)]

    @rule(which=WHICH, tokens=st.lists(st.integers(0, 1), min_size=1, max_size=4))
    def grow(self, which: int, tokens: list[int]) -> None:
        if self.held:
            seq = self._one(which)
            needed = self.manager.blocks_to_append(seq, len(self.held[seq]), len(tokens))
            free = self.manager.n_free
            if self.manager.can_allocate(needed):
                self._write(seq, tokens)
                assert free - self.manager.n_free == needed
            else:
                with pytest.raises(NoFreeBlocks):
                    self.manager.append(seq, len(self.held[seq]), len(tokens))
                assert self.manager.n_free == free

    @rule(which=WHICH)
    def fork(self, which: int) -> None:
        if self.held:
            seq = self._one(which)
            self.manager.fork(seq, self.n)
            self.held[self.n] = list(self.held[seq])
            self.n += 1

    @rule(which=WHICH)
    def free(self, which: int) -> None:
        if self.held:
            seq = self._one(which)
            self.manager.free(seq)
            del self.held[seq]

    @rule()
    def compact(self) -> None:
        held = self.manager.n_blocks - self.manager.n_free
        copies = self.manager.compact()
        for copy in copies:
            self._copy(*copy)
        assert {block for table in self.manager.tables.values() for block in table} == set(
            range(held)
        )
        assert all(target < held <= source for source, target in copies)
        assert not self.manager.compact()

    @invariant()
    def remembered(self) -> None:
        """What is found is what was written there."""
        for first in (0, 1):
            tokens = [first, *[0, 1] * 6]
            found = self.manager.find(tokens)
            last = () if found.partial is None else (found.partial,)
            blocks = (*found.blocks, *last)
            there = [self.cells[blocks[i // SIZE], i % SIZE] for i in range(found.n_tokens)]
            assert there == tokens[: found.n_tokens]

    @invariant()
    def conserved(self) -> None:
        check_conserved(self.manager)

    @invariant()
    def read(self) -> None:
        for seq, tokens in self.held.items():
            table = self.manager.tables[seq]
            found = [self.cells[table[i // SIZE], i % SIZE] for i in range(len(tokens))]
            assert found == tokens


class InATree(Blocks):
    """The same, found to the last token."""

    index = "radix"


TestBlocks, TestInATree = Blocks.TestCase, InATree.TestCase
for case in (TestBlocks, TestInATree):
    case.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def operate(machine: type[Blocks], n: int, rng: random.Random) -> None:
    """So many operations, a hundred on each pool, drawn without hypothesis: it keeps each draw, so
    as to shrink it, which takes most of the time."""
    for i in range(n):
        if i % 100 == 0:
            blocks = machine()
        operate_once(blocks, rng)
        for hold in (blocks.remembered, blocks.conserved, blocks.read):
            hold()


def operate_once(blocks: Blocks, rng: random.Random) -> None:
    """One of the rules."""

    def tokens(most: int) -> list[int]:
        return [rng.randrange(2) for _ in range(rng.randint(1, most))]

    what, which = rng.choice(["begin", "grow", "fork", "free", "compact"]), rng.randrange(1000)
    inputs = {"begin": (tokens(8),), "grow": (which, tokens(4)), "compact": ()}
    getattr(blocks, what)(*inputs.get(what, (which,)))


@pytest.mark.parametrize("machine", [Blocks, InATree])
def test_any_operations_conserve_blocks(machine: type[Blocks]) -> None:
    operate(machine, 1_000, random.Random(0))


@pytest.mark.more
@pytest.mark.parametrize("machine", [Blocks, InATree])
def test_a_hundred_thousand_operations_conserve_blocks(machine: type[Blocks]) -> None:
    operate(machine, 100_000, random.Random(random.random()))


def test_what_was_free_longest_is_forgotten_first_and_ends_before_beginnings() -> None:
    manager = BlockManager(4, 1, prefix_caching=True)
    for seq, tokens in ((0, [5, 6]), (1, [7, 8])):
        manager.allocate(seq, 2)
        manager.remember(seq, tokens)
    manager.free(0)
    manager.free(1)
    manager.allocate(2, 1)  # takes the block of 6
    assert [len(manager.match([*t, 0])) for t in ([5, 6], [7, 8])] == [1, 2]
    manager.allocate(3, 1)  # takes that of 5
    assert [len(manager.match([*t, 0])) for t in ([5, 6], [7, 8])] == [0, 2]


def test_equal_blocks_behind_different_beginnings_are_not_shared() -> None:
    a, b = (list(prefix_keys(tokens, 2)) for tokens in ([1, 2, 9, 9], [1, 3, 9, 9]))
    assert a[1] != b[1]
    assert len(list(prefix_keys([1, 2, 3], 2))) == 1


@pytest.mark.parametrize(
    ("deed", "sentence"),
    [
        (lambda m: m.free(1), "sequence 1 has no blocks"),
        (lambda m: m.allocate(0, 1), "sequence 0 has blocks"),
        (lambda m: m.fork(0, 0), "cannot become a fork"),
        (lambda m: m.append(5, 0, 1), "sequence 5 has no blocks"),
        (lambda m: BlockManager(0, 4), "number of blocks is a whole number of at least 1"),
    ],
)
def test_wrong_orders_are_refused_in_a_sentence(deed: object, sentence: str) -> None:
    manager = BlockManager(4, 2)
    manager.allocate(0, 3)
    with pytest.raises(ValueError, match=sentence):
        deed(manager)
