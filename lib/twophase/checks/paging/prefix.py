"""paging-prefix: blocks that a prompt finds, because another sequence began alike."""

from __future__ import annotations

from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Any

from twophase.checks.answer import Answer, each
from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced
from twophase.checks.paging._texts import cases

wrong = Misconceptions()

Key = tuple[Any, ...]


class Right:
    """The right answer: a block stands for its tokens and all before them."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.found: dict[Key, int] = {}

    def insert(self, tokens: list[int], table: list[int]) -> None:
        for i in range(len(tokens) // self.block_size):
            self.found.setdefault(self.key(tokens, i), table[i])

    def match(self, tokens: list[int]) -> list[int]:
        blocks: list[int] = []
        for i in range((len(tokens) - 1) // self.block_size):
            block = self.found.get(self.key(tokens, i))
            if block is None:
                break
            blocks.append(block)
        return blocks

    def key(self, tokens: list[int], i: int) -> Key:
        return tuple(tokens[: (i + 1) * self.block_size])


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(Right, parts), seen, says)


OWN_TOKENS = {
    "tokens[: (i + 1) * self.block_size]": (
        "tokens[i * self.block_size : (i + 1) * self.block_size]"
    )
}

_add(
    "parents_left_out",
    OWN_TOKENS,
    "a hash of the block's own tokens",
    "You know a block by its own tokens. Its keys and values depend on all tokens before it: the"
    " same words behind another beginning are another block.",
)
_add(
    "position_for_parents",
    {
        "tuple(tokens[: (i + 1) * self.block_size])": (
            "i, *tokens[i * self.block_size : (i + 1) * self.block_size]"
        )
    },
    "plausible",
    "The same tokens at the same place are not enough: what stands before them must be the same,"
    " too.",
)
_add(
    "one_parent_only",
    {
        "tokens[: (i + 1) * self.block_size]": (
            "[i, *tokens[max(0, i - 1) * self.block_size : (i + 1) * self.block_size]]"
        )
    },
    "plausible",
    "You look at a block and the one before it. A key has seen everything before it: chain the"
    " hashes, each over its parent's.",
)
_add(
    "order_forgotten",
    {
        "tuple(tokens[: (i + 1) * self.block_size])": (
            "tuple(sorted(tokens[: (i + 1) * self.block_size]))"
        )
    },
    "a sum, or a set, for a hash",
    "The same tokens in another order are another text.",
)
_add(
    "the_whole_prompt",
    {"(len(tokens) - 1) // self.block_size": "len(tokens) // self.block_size"},
    "a full hit that leaves nothing to compute",
    "A prompt that is found whole leaves no token to read, and nothing says what comes next: at"
    " least one token must be left.",
)
_add(
    "a_block_less",
    {"(len(tokens) - 1) // self.block_size": "len(tokens) // self.block_size - 1"},
    "plausible",
    "You always leave a whole block to read. One token is enough: if the prompt ends within a"
    " block, all full blocks before it may be found.",
)
_add(
    "partial_blocks",
    {
        "range(len(tokens) // self.block_size)": "range(-(-len(tokens) // self.block_size))",
        "(len(tokens) - 1) // self.block_size": "-(-(len(tokens) - 1) // self.block_size)",
        "self.found.get(self.key(tokens, i))": "self.found.get(self.key(tokens[:-1], i))",
    },
    "plausible",
    "You share the last block although it is not full: its owner will write to it.",
)
_add(
    "goes_on_behind_a_gap",
    {"                break": "                continue"} | OWN_TOKENS,
    "plausible",
    "Behind the first block that is not found nothing counts: the blocks must be the prompt's"
    " beginning, without a gap.",
)
_add(
    "the_last_one_counts",
    {
        "self.found.setdefault(self.key(tokens, i), table[i])": (
            "self.found[self.key(tokens, i)] = table[i]"
        )
    },
    "plausible",
    "Of two blocks with the same content, the one that was known first stays.",
)
_add(
    "only_whole_texts",
    {
        "for i in range(len(tokens) // self.block_size):": (
            "for i in range(len(tokens) // self.block_size)[-1:]:"
        )
    },
    "plausible",
    "You remember only the last full block. Every full block is a beginning that another prompt may"
    " share.",
)


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """What each `match` of the scripts returns; several scripts have a cache each, used in turn."""
    block_size, *scripts = case.args
    caches = [answer.new("PrefixCache", block_size) for _ in scripts]
    steps = [
        (number, i, step)
        for i, together in enumerate(zip_longest(*scripts))
        for number, step in enumerate(together)
        if step is not None
    ]
    seen: dict[str, Any] = {}
    for number, run in groupby(steps, key=itemgetter(0)):
        asked = {i: step for _, i, step in run}
        told = [list(step) if step[0] == "insert" else step for step in asked.values()]
        for (i, step), blocks in zip(asked.items(), each(caches[number], *told), strict=True):
            if step[0] == "match":
                seen[f"cache {number + 1}, {i + 1}: match"] = blocks
    return seen


EXERCISE = Exercise(
    id="paging-prefix",
    title="Those who begin alike",
    kind="kernel",
    points=5,
    minutes=15,
    entries=("PrefixCache",),
    cases=cases,
    observe=observe,
    reference=Right,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "What does the content of a block depend on, besides its own tokens?",
        (
            "Know block i by all tokens up to its end: as a tuple, or as a hash of its tokens and"
            " of its parent's hash."
        ),
        (
            "insert: for i below len(tokens) // block_size. match: for i below (len(tokens) − 1) //"
            " block_size, and stop at the first that is not known."
        ),
    ),
    recall=(
        "A prompt is in the cache, whole. How many of its tokens are read again, at least?",
        "One: without a query nothing says what comes next.",
    ),
)
