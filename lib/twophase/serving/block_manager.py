"""Who owns which block (Kwon et al., 2023, section 4.2): block tables, reference counts,
copy-on-write, and prefixes that several sequences share.

Only numbers of blocks are moved here; what lies in them is the model runner's. At any moment every
block is either free or counted once by each table that names it: that is what the tests hold.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from twophase.kernels.span import whole
from twophase.serving.prefixes import Found, HashIndex, PrefixIndex
from twophase.serving.radix import RadixTree

GONE = -1  # in a table: a block that was given back, and is not read any more
Copy = tuple[int, int]  # from a block to a block, before anything is written
Evict = Callable[[Iterator[int]], int]  # which of some blocks, longest free first, is forgotten
INDEXES: dict[str, Callable[[int], PrefixIndex]] = {"hash": HashIndex, "radix": RadixTree}


class NoFreeBlocks(Exception):
    """There are fewer free blocks than a sequence needs: nothing was taken."""


class BlockManager:
    """The blocks of a pool, shared out to sequences that are known by a number.

    `prefix_caching`: blocks keep the tokens they stand for when they become free, until somebody
    else needs the room; a prompt that begins alike takes them back. `prefix_index`: how they are
    found, "hash" (full blocks) or "radix" (to the last token). `evict`: who of those that nobody
    holds is forgotten first; as it stands the one that was free longest, and of one sequence the
    last; in a tree what nothing lies behind. ValueError for sizes below 1, or another index.
    """

    def __init__(
        self,
        n_blocks: int,
        block_size: int,
        *,
        prefix_caching: bool = False,
        prefix_index: str = "hash",
        evict: Evict = next,
    ) -> None:
        self.n_blocks = whole("the number of blocks", n_blocks, 1)
        self.block_size = whole("the block size", block_size, 1)
        self.prefix_caching, self.evict = prefix_caching, evict
        if prefix_index not in INDEXES:
            raise ValueError(f"an index is one of {', '.join(INDEXES)}; got {prefix_index!r}.")
        self.index = INDEXES[prefix_index](block_size)
        self._numbers = set(range(n_blocks))
        self.ref_count = [0] * n_blocks
        self.hits = [0] * n_blocks  # how often what a block stands for was found
        self.tables: dict[int, list[int]] = {}
        # in the order in which they are taken; dicts are ordered, and any can be taken out
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(n_blocks))

    @property
    def n_free(self) -> int:
        """Blocks that nobody holds, remembered ones included."""
        return len(self._free)

    def blocks_for(self, n_tokens: int) -> int:
        """Blocks that so many tokens fill, if only in part. ValueError for no whole number, or one
        below 0."""
        n_tokens = whole("the number of tokens", n_tokens, 0)
        return -(-n_tokens // self.block_size)

    def can_allocate(self, n_blocks: int) -> bool:
        """Whether so many blocks are free."""
        return n_blocks <= self.n_free

    def find(self, tokens: Sequence[int]) -> Found:
        """How much of `tokens` others have left, and where; never all of it: a pass must read at
        least one token to have something to say."""
        if not self.prefix_caching:
            return Found()
        return self.index.find(tokens[: len(tokens) - 1])

    def match(self, tokens: Sequence[int]) -> list[int]:
        """Of what `find` finds, the full blocks, which a new sequence takes as they are."""
        return list(self.find(tokens).blocks)

    def peak(self, n_tokens: int, n_new: int) -> int:
        """Blocks that a sequence holds at most until it has so many tokens, if no pass reads more
        than `n_new` of them."""
        return self.blocks_for(n_tokens)

    def wanted(self, n_tokens: int, longest: int) -> int:
        """Tokens that are given room at once where all that a sequence may need is reserved."""
        return max(n_tokens, longest)

    def blocks_to_start(self, start: int, n_tokens: int, shared: Sequence[int] = ()) -> int:
        """Free blocks that a new sequence takes, of whose `n_tokens` the first `start` are there:
        remembered ones among the shared leave the free ones, too."""
        revived = sum(self.ref_count[block] == 0 for block in shared)
        return max(0, self.blocks_for(n_tokens) - len(shared)) + revived

    def readmit(self, seq: int, start: int, n_tokens: int) -> list[int]:
        """The table of a sequence that comes back, with `start` tokens that were put aside."""
        return self.allocate(seq, n_tokens)

    def pass_over(self, seq: int, n_computed: int) -> None:
        """A pass is over: nothing is given back here, since every token is read again."""

    def allocate(
        self, seq: int, n_tokens: int, shared: Sequence[int] = (), partial: int | None = None
    ) -> list[int]:
        """The table of a new sequence: blocks that `match` found, then free ones up to n_tokens. A
        `partial` block that was found is to be copied to the first of these, before anything is
        written.

        ValueError if the sequence has a table, for blocks that there are not, and for no whole
        number of tokens. NoFreeBlocks, and nothing taken, if too few are free.
        """
        if seq in self.tables:
            raise ValueError(f"sequence {seq} has blocks: free them before it is allocated again.")
        found = [*shared, *(() if partial is None else (partial,))]
        if len(set(found)) != len(found) or not set(found) <= self._numbers:
            raise ValueError(
                f"shared blocks are different ones of 0 to {self.n_blocks - 1}; got {found}."
            )
        n_new = max(0, self.blocks_for(n_tokens) - len(shared))
        needed = self.blocks_to_start(0, n_tokens, shared)
        if not self.can_allocate(needed):
            raise NoFreeBlocks(f"{needed} blocks are needed, and {self.n_free} are free.")
        for block in shared:
            self._free.pop(block, None)
            self.ref_count[block] += 1
            self.hits[block] += 1
        if partial is not None:
            self.hits[partial] += 1
            if partial in self._free:
                self._free.move_to_end(partial)
        self.tables[seq] = [*shared, *(self._take() for _ in range(n_new))]
        return self.tables[seq]

    def blocks_to_append(self, seq: int, start: int, n_tokens: int) -> int:
        """Free blocks that writing tokens `start`, ..., `start + n_tokens - 1` takes: those behind
        the end, and a copy of each shared one that is written to. ValueError for no whole numbers,
        or some below 0."""
        table, start = self._table(seq), whole("the place of the first token", start, 0)
        last = self.blocks_for(start + whole("the number of tokens", n_tokens, 0))
        written = table[start // self.block_size : last] if n_tokens else []
        return max(0, last - len(table)) + sum(self.ref_count[block] > 1 for block in written)

    def append(self, seq: int, start: int, n_tokens: int) -> list[Copy]:
        """Make room for these tokens, in blocks of the sequence's own.

        Returns which blocks are to be copied, before anything is written (copy-on-write).
        NoFreeBlocks, and nothing taken, if too few are free.
        """
        table, needed = self._table(seq), self.blocks_to_append(seq, start, n_tokens)
        if not self.can_allocate(needed):
            raise NoFreeBlocks(f"{needed} blocks are needed, and {self.n_free} are free.")
        copies = []
        last = self.blocks_for(start + n_tokens)
        for i in range(start // self.block_size, min(last, len(table)) if n_tokens else 0):
            if self.ref_count[table[i]] > 1:
                own = self._take()
                copies.append((table[i], own))
                self._release(table[i])
                table[i] = own
        table += [self._take() for _ in range(last - len(table))]
        return copies

    def remember(self, seq: int, tokens: Sequence[int]) -> None:
        """Note what the blocks of a sequence stand for, as far as its `tokens` are computed.
        Of two blocks that stand for the same, the first is found."""
        if self.prefix_caching:
            self.index.add(tokens, self._table(seq))

    def fork(self, parent: int, child: int) -> None:
        """A second sequence on the same blocks. ValueError if it has a table."""
        if child in self.tables:
            raise ValueError(f"sequence {child} has blocks, and cannot become a fork.")
        self.tables[child] = list(self._table(parent))
        for block in self._held(child):
            self.ref_count[block] += 1

    def free(self, seq: int) -> None:
        """Give back all blocks of a sequence; shared ones stay with the others. The last comes
        first among those that are taken next: a beginning is worth more than an end."""
        for block in reversed(self._held(seq)):
            self._release(block)
        del self.tables[seq]

    def _held(self, seq: int) -> list[int]:
        return [block for block in self._table(seq) if block != GONE]

    def _table(self, seq: int) -> list[int]:
        if seq not in self.tables:
            raise ValueError(f"sequence {seq} has no blocks: allocate some first.")
        return self.tables[seq]

    def compact(self, copy: Callable[[int, int], None] | None = None) -> list[Copy]:
        """Bring what is held to the blocks with the lowest numbers: copies, made in this order by
        `copy(source, target)`, or to be made by the caller. What was remembered in a block that is
        copied to is forgotten.

        A pool that is to shrink needs this. Nobody else does: one free block is as good as another.
        """
        n_held = self.n_blocks - self.n_free
        holes = [block for block in range(n_held) if not self.ref_count[block]]
        high = [block for block in range(n_held, self.n_blocks) if self.ref_count[block]]
        moved: dict[int, int] = {}
        try:
            for source, target in zip(high, holes, strict=True):
                self._forget(target)
                if copy is not None:  # first: who is interrupted here finds all where it was
                    copy(source, target)
                self._move(source, target)
                moved[source] = target
        finally:
            for table in self.tables.values():
                table[:] = [moved.get(block, block) for block in table]
        return list(moved.items())

    def _move(self, source: int, target: int) -> None:
        """What is known and counted of a block that is held is of a free one from now on."""
        if source in self.index:
            self.index.rename(source, target)
        self.ref_count[target], self.ref_count[source] = self.ref_count[source], 0
        self.hits[target], self.hits[source] = self.hits[source], 0
        del self._free[target]
        self._put_first(source)

    def _take(self) -> int:
        block = next(iter(self._free))
        if block in self.index:  # those that stand for nothing come before all others
            block = self._choose(block)
        self._forget(block)
        del self._free[block]
        self.ref_count[block] = 1
        return block

    def _choose(self, first: int) -> int:
        """Which of the free blocks, all remembered, is given up; the first, with all behind it,
        where somebody holds a block behind each of them."""
        may_go = (block for block in self._free if self.index.may_go(block))
        one = next(may_go, None)
        if one is None:
            return first
        block = self.evict(chain([one], may_go))
        if block not in self._free:
            raise ValueError(f"a rule of eviction gives one of the blocks it got, not {block!r}.")
        return block

    def _forget(self, block: int) -> None:
        """What a block stood for cannot be found any more, nor what lies behind it."""
        self.hits[block] = 0
        for lost in self.index.drop(block):
            if lost in self._free:
                self._put_first(lost)

    def _put_first(self, block: int) -> None:
        """A free block that stands for nothing is taken before the others."""
        self._free[block] = None
        self._free.move_to_end(block, last=False)

    def _release(self, block: int) -> None:
        self.ref_count[block] -= 1
        if self.ref_count[block] == 0:
            self._free[block] = None
            if block not in self.index:
                self._put_first(block)


def check_conserved(manager: BlockManager) -> None:
    """AssertionError unless every block is free or held, as often as tables name it."""
    counts = [0] * manager.n_blocks
    tables = [[block for block in table if block != GONE] for table in manager.tables.values()]
    for table in tables:
        for block in table:
            counts[block] += 1
    assert counts == manager.ref_count
    assert manager.n_free == counts.count(0)
    for table in tables:
        assert len(set(table)) == len(table)
