"""Who owns which block (Kwon et al., 2023, section 4.2): block tables, reference counts,
copy-on-write, and prefixes that several sequences share.

Only numbers of blocks are moved here; what lies in them is the model runner's. At any moment every
block is either free or counted once by each table that names it: that is what the tests hold.
"""

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from twophase.kernels.span import whole

Copy = tuple[int, int]  # from a block to a block, before anything is written


class NoFreeBlocks(Exception):
    """There are fewer free blocks than a sequence needs: nothing was taken."""


class BlockManager:
    """The blocks of a pool, shared out to sequences that are known by a number.

    `prefix_caching`: full blocks keep the tokens they stand for when they become free, until
    somebody else needs the room, the one that was free longest first (and of one sequence the last
    first); a prompt that begins alike takes them back. ValueError for sizes below 1.
    """

    def __init__(self, n_blocks: int, block_size: int, *, prefix_caching: bool = False) -> None:
        self.n_blocks = whole("the number of blocks", n_blocks, 1)
        self.block_size = whole("the block size", block_size, 1)
        self.prefix_caching = prefix_caching
        self.ref_count = [0] * n_blocks
        self.tables: dict[int, list[int]] = {}
        # in the order in which they are taken; dicts are ordered, and any can be taken out
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(n_blocks))
        self._keys: dict[int, bytes] = {}  # full blocks, and what they stand for
        self._found: dict[bytes, int] = {}  # the same, the other way

    @property
    def n_free(self) -> int:
        """Blocks that nobody holds, remembered ones included."""
        return len(self._free)

    def blocks_for(self, n_tokens: int) -> int:
        """Blocks that so many tokens fill, if only in part."""
        return -(-n_tokens // self.block_size)

    def can_allocate(self, n_blocks: int) -> bool:
        """Whether so many blocks are free."""
        return n_blocks <= self.n_free

    def match(self, tokens: Sequence[int]) -> list[int]:
        """The blocks that hold the beginning of `tokens`, full blocks only, and never all of it: a
        pass must read at least one token to have something to say."""
        found: list[int] = []
        if not self.prefix_caching:
            return found
        for key in prefix_keys(tokens[: len(tokens) - 1], self.block_size):
            block = self._found.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def allocate(self, seq: int, n_tokens: int, shared: Sequence[int] = ()) -> list[int]:
        """The table of a new sequence: blocks that `match` found, then free ones up to n_tokens.

        ValueError if the sequence has a table. NoFreeBlocks, and nothing taken, if too few are
        free.
        """
        if seq in self.tables:
            raise ValueError(f"sequence {seq} has blocks: free them before it is allocated again.")
        n_new = max(0, self.blocks_for(n_tokens) - len(shared))
        revived = sum(self.ref_count[block] == 0 for block in shared)
        if not self.can_allocate(n_new + revived):
            raise NoFreeBlocks(f"{n_new + revived} blocks are needed, and {self.n_free} are free.")
        for block in shared:
            self._free.pop(block, None)
            self.ref_count[block] += 1
        self.tables[seq] = [*shared, *(self._take() for _ in range(n_new))]
        return self.tables[seq]

    def blocks_to_append(self, seq: int, start: int, n_tokens: int) -> int:
        """Free blocks that writing tokens `start`, ..., `start + n_tokens - 1` takes: those behind
        the end, and a copy of each shared one that is written to."""
        table = self._table(seq)
        last = self.blocks_for(start + n_tokens)
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
        """Note what the full blocks of a sequence stand for, as far as its `tokens` are computed.
        Of two blocks that stand for the same, the first is found."""
        if not self.prefix_caching:
            return
        for key, block in zip(prefix_keys(tokens, self.block_size), self._table(seq), strict=False):
            if key not in self._found and block not in self._keys:
                self._found[key], self._keys[block] = block, key

    def fork(self, parent: int, child: int) -> None:
        """A second sequence on the same blocks. ValueError if it has a table."""
        if child in self.tables:
            raise ValueError(f"sequence {child} has blocks, and cannot become a fork.")
        self.tables[child] = list(self._table(parent))
        for block in self.tables[child]:
            self.ref_count[block] += 1

    def free(self, seq: int) -> None:
        """Give back all blocks of a sequence; shared ones stay with the others. The last comes
        first among those that are taken next: a beginning is worth more than an end."""
        for block in reversed(self._table(seq)):
            self._release(block)
        del self.tables[seq]

    def _table(self, seq: int) -> list[int]:
        if seq not in self.tables:
            raise ValueError(f"sequence {seq} has no blocks: allocate some first.")
        return self.tables[seq]

    def _take(self) -> int:
        block, _ = self._free.popitem(last=False)
        if (key := self._keys.pop(block, None)) is not None:
            del self._found[key]
        self.ref_count[block] = 1
        return block

    def _release(self, block: int) -> None:
        self.ref_count[block] -= 1
        if self.ref_count[block] == 0:
            self._free[block] = None
            if block not in self._keys:  # nobody will ask for it: take it before the others
                self._free.move_to_end(block, last=False)


def prefix_keys(tokens: Sequence[int], block_size: int) -> Iterator[bytes]:
    """What each full block of a sequence stands for: a digest of its tokens and of all before them,
    since a key depends on everything that its token has seen."""
    key = b""
    for start in range(0, len(tokens) - block_size + 1, block_size):
        block = array("q", tokens[start : start + block_size])
        key = hashlib.sha256(key + block.tobytes()).digest()
        yield key


def check_conserved(manager: BlockManager) -> None:
    """AssertionError unless every block is free or held, as often as tables name it."""
    counts = [0] * manager.n_blocks
    for table in manager.tables.values():
        for block in table:
            counts[block] += 1
    assert counts == manager.ref_count
    assert manager.n_free == counts.count(0)
    for table in manager.tables.values():
        assert len(set(table)) == len(table)
