"""Blocks of layers that forget: what lies behind a window is given back, and a layer that keeps a
state in place of tokens needs none.

Layers with a window have pools and tables of their own then, beside those that keep every token,
as in vLLM's hybrid cache; a sequence holds as many of these blocks as its window covers, however
long it gets.
"""

from collections.abc import Sequence
from typing import NamedTuple

from twophase.models.config import Config
from twophase.serving.block_manager import GONE, BlockManager
from twophase.serving.config import EngineConfig
from twophase.serving.windows import windows_kept


class WindowBlocks(BlockManager):
    """Blocks of which a sequence keeps those that its next token may see: `window` tokens, itself
    included. In its table others are GONE."""

    def __init__(self, n_blocks: int, block_size: int, window: int) -> None:
        super().__init__(n_blocks, block_size)
        self.window = window

    def behind(self, n_computed: int) -> int:
        """Blocks at the beginning of a sequence of so many tokens that no later one sees."""
        return max(0, n_computed - self.window + 1) // self.block_size

    def peak(self, n_tokens: int, n_new: int) -> int:
        """As in `BlockManager`: the tokens before a pass that its first one sees, and its own."""
        held = super().peak(n_tokens, n_new)
        return min(held, self.blocks_for(self.window - 1 + n_new) + 1)

    def wanted(self, n_tokens: int, longest: int) -> int:
        """Nothing is reserved: what is given back makes room for what comes."""
        return n_tokens

    def blocks_to_start(self, start: int, n_tokens: int, shared: Sequence[int] = ()) -> int:
        """As in `BlockManager`, without those behind the window."""
        return super().blocks_to_start(start, n_tokens, shared) - self.behind(start)

    def readmit(self, seq: int, start: int, n_tokens: int) -> list[int]:
        """As in `BlockManager`, without those behind the window."""
        behind = self.behind(start)
        table = self.allocate(seq, n_tokens - behind * self.block_size)
        table[:0] = [GONE] * behind
        return table

    def pass_over(self, seq: int, n_computed: int) -> None:
        """Give back what no token after the first `n_computed` sees."""
        table = self._table(seq)
        for i in range(self.behind(n_computed) - 1, -1, -1):
            if table[i] == GONE:
                break
            self._release(table[i])
            table[i] = GONE


class NoBlocks(BlockManager):
    """For a model whose layers keep states: its sequences hold no block, whatever their length."""

    def blocks_for(self, n_tokens: int) -> int:
        """None."""
        return 0


class Room(NamedTuple):
    """The blocks of an engine: those of `blocks`, and of layers with a window if they have their
    own."""

    blocks: BlockManager
    windows: WindowBlocks | None = None


def room_for(c: EngineConfig, model: Config) -> Room:
    """Who shares out the blocks of a model's layers."""
    kept = windows_kept(model)
    window = max((w for w in kept.values() if w), default=0)
    if not kept:
        return Room(NoBlocks(c.n_blocks, c.block_size))
    if not c.free_windows or not window:
        return Room(plain_blocks(c))
    if None not in kept.values():
        return Room(WindowBlocks(c.n_blocks, c.block_size, window))
    windows = WindowBlocks(c.n_blocks, c.block_size, window)
    most = c.n_blocks
    if c.chunked_prefill:  # each sequence its window, all together the tokens of a pass
        a_window = windows.blocks_for(window) + 2
        most = min(most, c.max_seqs * a_window + windows.blocks_for(c.max_batched_tokens))
    return Room(plain_blocks(c), WindowBlocks(most, c.block_size, window))


def plain_blocks(c: EngineConfig) -> BlockManager:
    """Blocks of layers that keep every token."""
    return BlockManager(
        c.n_blocks,
        c.block_size,
        prefix_caching=c.prefix_caching,
        prefix_index=c.prefix_index,
    )
