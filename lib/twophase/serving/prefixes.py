"""What blocks stand for, so that a prompt that begins alike finds them: here by a hash of each full
block, as in vLLM; in `radix` by a tree of tokens, as in SGLang.

An index knows tokens and numbers of blocks, and nothing of who holds them: that is the block
manager's. Both kinds answer the same three calls.
"""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from twophase.kernels.span import whole


class Found(NamedTuple):
    """How far a text is known: `blocks` that hold its beginning, all full, `n_tokens` in them and
    in `partial`, a block whose first tokens alone agree (None: there is none)."""

    blocks: tuple[int, ...] = ()
    n_tokens: int = 0
    partial: int | None = None


class PrefixIndex(Protocol):
    """What a block manager asks."""

    def find(self, tokens: Sequence[int]) -> Found:
        """The longest known beginning of `tokens`."""

    def add(self, tokens: Sequence[int], table: Sequence[int]) -> None:
        """Note that the blocks of `table` hold `tokens`. Of two blocks that hold the same, the
        first stays known."""

    def __contains__(self, block: int) -> bool:
        """Whether a block is known to stand for something."""

    def may_go(self, block: int) -> bool:
        """Whether nothing known lies behind this block."""

    def drop(self, block: int) -> list[int]:
        """Forget a block, and give all that cannot be found any more without it."""

    def rename(self, block: int, new: int) -> None:
        """What a known block held lies in another one now."""


class HashIndex:
    """Full blocks by a digest of their tokens and of all before them: one look for each block.
    Blocks are found or not; where two texts part within one, nothing of it is."""

    def __init__(self, block_size: int) -> None:
        self.block_size = whole("the block size", block_size, 1)
        self._keys: dict[int, bytes] = {}  # full blocks, and what they stand for
        self._found: dict[bytes, int] = {}  # the same, the other way

    def find(self, tokens: Sequence[int]) -> Found:
        """The full blocks that hold the beginning of `tokens`."""
        blocks = []
        for key in prefix_keys(tokens, self.block_size):
            block = self._found.get(key)
            if block is None:
                break
            blocks.append(block)
        return Found(tuple(blocks), len(blocks) * self.block_size)

    def add(self, tokens: Sequence[int], table: Sequence[int]) -> None:
        """Note what the full blocks of a table stand for."""
        for key, block in zip(prefix_keys(tokens, self.block_size), table, strict=False):
            if key not in self._found and block not in self._keys:
                self._found[key], self._keys[block] = block, key

    def __contains__(self, block: int) -> bool:
        return block in self._keys

    def may_go(self, block: int) -> bool:
        """Always: a hash does not know what lies behind it."""
        return True

    def drop(self, block: int) -> list[int]:
        """Forget a block. Those behind it keep their keys, and are not found until somebody reads
        it again."""
        if (key := self._keys.pop(block, None)) is not None:
            del self._found[key]
        return []

    def rename(self, block: int, new: int) -> None:
        """What a known block held lies in another one now."""
        self._keys[new] = self._keys.pop(block)
        self._found[self._keys[new]] = new


def prefix_keys(tokens: Sequence[int], block_size: int) -> Iterator[bytes]:
    """What each full block of a sequence stands for: a digest of its tokens and of all before them,
    since a key depends on everything that its token has seen."""
    key = b""
    for start in range(0, len(tokens) - block_size + 1, block_size):
        block = array("q", tokens[start : start + block_size])
        key = hashlib.sha256(key + block.tobytes()).digest()
        yield key
