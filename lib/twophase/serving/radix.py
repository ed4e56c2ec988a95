"""A tree of what blocks hold (RadixAttention: Zheng et al., 2024, SGLang, arXiv 2312.07104, section
3): the way from the root to a node spells a text, and the node has the blocks of its last part.

Where texts part within a block, each has a block of its own, and these are brothers whose first
tokens agree. So a text is followed to its last known token: of the block that holds it a copy is
taken.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from operator import eq

from twophase.kernels.span import whole
from twophase.serving.prefixes import Found


class Node:
    """A part of a text that nobody leaves midway, or only within its last block: `tokens`, in
    `blocks`. Only the last block of a leaf may be filled in part."""

    def __init__(self, parent: "Node | None", tokens: Sequence[int], blocks: Sequence[int]) -> None:
        self.parent, self.tokens, self.blocks = parent, tuple(tokens), list(blocks)
        self.children: dict[int, list[Node]] = {}  # by their first token

    def below(self) -> "Iterator[Node]":
        """The node, and all behind it."""
        left = [self]
        while left:
            yield (node := left.pop())
            left += [child for brothers in node.children.values() for child in brothers]


class RadixTree:
    """An index (`PrefixIndex`) at the grain of tokens."""

    def __init__(self, block_size: int) -> None:
        self.block_size = whole("the block size", block_size, 1)
        self.root = Node(None, (), ())
        self._node: dict[int, Node] = {}  # of each known block

    def find(self, tokens: Sequence[int]) -> Found:
        """The longest known beginning of `tokens`, to the last token."""
        tokens = tuple(tokens)
        node, at, blocks = self.root, 0, list[int]()
        while True:
            child, n = _closest(node, tokens[at:])
            if child is None:
                return Found(tuple(blocks), at)
            full, rest = divmod(n, self.block_size)
            blocks += child.blocks[:full]
            at += n
            if rest:
                return Found(tuple(blocks), at, child.blocks[full])
            if n < len(child.tokens):
                return Found(tuple(blocks), at)
            node = child

    def add(self, tokens: Sequence[int], table: Sequence[int]) -> None:
        """Note what the blocks of a table hold, the last one perhaps in part."""
        tokens = tuple(tokens)
        node, at = self.root, 0
        while True:
            child, n = _closest(node, tokens[at:])
            if n == len(tokens) - at:
                return  # all of it is known
            if child is None or n < self.block_size:
                break
            n -= n % self.block_size
            if n < len(child.tokens):
                self._split(child, n)
            node, at = child, at + n
        first, end = at // self.block_size, -(-len(tokens) // self.block_size)
        held = list(table[first:end])
        if (tail := self._node.get(held[0])) is not None:
            self._cut_off(tail)  # the same block, with fewer tokens
        if node.children or node is self.root:
            self._hang(Node(node, tokens[at:], held))
        else:  # it goes on, and nobody parts here
            node.tokens, node.blocks = node.tokens + tokens[at:], node.blocks + held
            self._node.update(dict.fromkeys(held, node))

    def _split(self, node: Node, n: int) -> None:
        """Part a node behind n of its tokens, whole blocks: it keeps these."""
        full = n // self.block_size
        lower = Node(node, node.tokens[n:], node.blocks[full:])
        lower.children, node.children = node.children, {}
        for brothers in lower.children.values():
            for child in brothers:
                child.parent = lower
        node.tokens, node.blocks = node.tokens[:n], node.blocks[:full]
        self._hang(lower)

    def _hang(self, node: Node) -> None:
        """Put a new node below its parent."""
        assert node.parent is not None
        node.parent.children.setdefault(node.tokens[0], []).append(node)
        self._node.update(dict.fromkeys(node.blocks, node))

    def _cut_off(self, node: Node) -> list[int]:
        """Take a node and all behind it out of the tree; their blocks."""
        assert node.parent is not None
        brothers = node.parent.children[node.tokens[0]]
        brothers.remove(node)
        if not brothers:
            del node.parent.children[node.tokens[0]]
        gone = [block for each in node.below() for block in each.blocks]
        for block in gone:
            del self._node[block]
        return gone

    def __contains__(self, block: int) -> bool:
        return block in self._node

    def may_go(self, block: int) -> bool:
        """Whether a block is the end of a leaf."""
        node = self._node.get(block)
        return node is None or (node.blocks[-1] == block and not node.children)

    def drop(self, block: int) -> list[int]:
        """Forget a block and all that lies behind it; these are given."""
        node = self._node.get(block)
        if node is None:
            return []
        if i := node.blocks.index(block):
            self._split(node, i * self.block_size)
        gone = self._cut_off(self._node[block])
        gone.remove(block)
        return gone

    def rename(self, block: int, new: int) -> None:
        """What a known block held lies in another one now."""
        node = self._node[new] = self._node.pop(block)
        node.blocks[node.blocks.index(block)] = new


def _closest(node: Node, tokens: Sequence[int]) -> tuple[Node | None, int]:
    """The child that agrees with the most of these tokens, and with how many."""
    best, most = None, 0
    for child in node.children.get(tokens[0], ()) if tokens else ():
        n = sum(takewhile(bool, map(eq, child.tokens, tokens)))
        if n > most:
            best, most = child, n
    return best, most
