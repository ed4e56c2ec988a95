"""Parts of the library put together are no answer to an exercise of paging: the official worker has
none of them."""

from __future__ import annotations

import pytest
from hostile.worker import right_here_and_withheld_there

from twophase.checks import withheld
from twophase.kernels.compiled import parts

SETUP = "import numpy as np\nimport torch\n"
LONGER = """
def longer(table, unused, end, size):
    return table + unused[: max(0, -(-end // size) - len(table))]
"""
TOGETHER = {  # (exercise, what it is made of): the source
    ("paging-slots", "the slot mapping"): LONGER
    + """
from twophase.kernels.paging import FlatSpan
def grow(table, unused, start, n_new, block_size):
    table = longer(table, unused, start + n_new, block_size)
    if n_new == 0:
        return table, []
    return table, FlatSpan((start,), (n_new,), (table,), (0,), block_size).slot_mapping.tolist()
""",
    ("paging-slots", "the table of the compiled loops"): LONGER
    + """
from twophase.kernels.compiled.tables import paged_table
def grow(table, unused, start, n_new, block_size):
    table = longer(table, unused, start + n_new, block_size)
    if n_new == 0:
        return table, []
    end = np.array([start + n_new])
    runs, _ = paged_table(np.array([table]), end, n_new, block_size)
    return table, [int(first) + i for first, n in runs for i in range(n)]
""",
    ("paging-attention", "a layer's pages"): """
from twophase.kernels.paging import FlatSpan, PagedKV
def attend(q, keys, values, tables, lengths):
    pages = PagedKV.__new__(PagedKV)
    pages.keys, pages.values = pages.held = keys, values
    spans = FlatSpan(tuple(n - 1 for n in lengths), (1,) * len(lengths), tuple(map(tuple, tables)),
                     tuple(range(len(lengths))), keys.shape[1])
    return pages.attend(q[None], spans)[0]
""",
    ("paging-attention", "a softmax of scores in one call"): """
from twophase.kernels.online_softmax import partial_attention
def attend(q, keys, values, tables, lengths):
    outs = []
    for row, table, n in zip(q, tables, lengths):
        k, v = (x[table].flatten(0, 1)[:n].transpose(0, 1) for x in (keys, values))  # [K, S, H]
        scores = row.view(len(k), -1, row.shape[1]) @ k.mT * row.shape[1] ** -0.5
        outs.append(partial_attention(scores, v).value().view(row.shape))
    return torch.stack(outs)
""",
    ("paging-waste", "the count of a pool's step"): """
from twophase.serving.occupancy import Job, Occupancy, _count
def waste(held, final, max_len, block_size):
    def way(taken):
        class Room:
            n_free, needs = 0, lambda *a: 0
            def held(self, seq): return taken(held[seq])
        made, jobs = Occupancy(1), [Job(1, n, n) for n in [*final, 1]]
        _count(made, jobs, Room(), dict(enumerate(held)), (len(final), 1))
        return {kind: getattr(made, kind) for kind in ("used", "reserved", "internal")}
    blocks = way(lambda n: -(-n // block_size) * block_size)
    return {"pieces": way(lambda n: max_len), "blocks": blocks}
""",
    ("paging-prefix", "nodes below one root"): """
from twophase.serving.radix import Node, _closest
class PrefixCache:
    def __init__(self, block_size):
        self.size, self.root = block_size, Node(None, (), ())
    def known(self, tokens):
        child, n = _closest(self.root, tokens)
        return child.blocks[: n // self.size] if child else []
    def insert(self, tokens, table):
        if n := len(tokens) // self.size:
            known = self.known(tokens)[:n]
            node = Node(self.root, tokens[: n * self.size], known + table[len(known) : n])
            self.root.children.setdefault(tokens[0], []).append(node)
    def match(self, tokens):
        return self.known(tokens)[: (len(tokens) - 1) // self.size]
""",
    ("paging-prefix", "a radix tree of full blocks"): """
from twophase.serving.radix import RadixTree
class PrefixCache:
    def __init__(self, block_size):
        self.size, self.tree = block_size, RadixTree(block_size)
    def insert(self, tokens, table):
        n = len(tokens) // self.size
        self.tree.add(tokens[: n * self.size], table[:n])
    def match(self, tokens):
        return list(self.tree.find(tokens).blocks)[: (len(tokens) - 1) // self.size]
""",
    ("paging-prefix", "an index of hashes"): """
from twophase.serving.prefixes import HashIndex
class PrefixCache:
    def __init__(self, block_size):
        self.index = HashIndex(block_size)
    def insert(self, tokens, table):
        self.index.add(tokens, table)
    def match(self, tokens):
        return list(self.index.find(tokens[:-1]).blocks)
""",
    ("paging-blocks", "the block manager in other words"): """
from twophase.serving.block_manager import BlockManager as Library, NoFreeBlocks
class BlockManager:
    def __init__(self, n_blocks, block_size):
        self.inner, self.numbers, self.lengths, self.made = Library(n_blocks, block_size), {}, {}, 0
    def _new(self, seq, n_tokens):
        self.numbers[seq], self.lengths[seq] = self.made, n_tokens
        self.made += 1
    def allocate(self, seq, n_tokens):
        try:
            self.inner.allocate(self.made, n_tokens)
        except NoFreeBlocks as e:
            raise ValueError(str(e))
        self._new(seq, n_tokens)
    def append(self, seq):
        try:
            copies = self.inner.append(self.numbers[seq], self.lengths[seq], 1)
        except NoFreeBlocks as e:
            raise ValueError(str(e))
        self.lengths[seq] += 1
        return copies[0] if copies else None
    def fork(self, parent, child):
        self.inner.fork(self.numbers[parent], self.made)
        self._new(child, self.lengths[parent])
    def free(self, seq):
        self.inner.free(self.numbers[seq])
    def table(self, seq):
        return list(self.inner.tables[self.numbers[seq]])
    def n_free(self):
        return self.inner.n_free
""",
}


@pytest.mark.parametrize(("exercise_id", "made_of"), TOGETHER)
def test_the_library_put_together_is_right_here_and_withheld_there(
    exercise_id: str, made_of: str
) -> None:
    right_here_and_withheld_there(exercise_id, SETUP + TOGETHER[exercise_id, made_of])


def test_every_compiled_function_that_attends_is_withheld() -> None:
    names = [name for name in vars(parts) if "attend" in name or "latent" in name]
    assert len(names) > 5
    assert {f"{parts.__name__}.{name}" for name in names} <= set(withheld.ATTENTION)
