"""paging-slots: where the tokens of a sequence lie, and the blocks that it takes as it grows."""

from __future__ import annotations

import random

from twophase.checks.compare import EXACT
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(
    table: list[int], unused: list[int], start: int, n_new: int, block_size: int
) -> tuple[list[int], list[int]]:
    """The right answer."""
    needed = -(-(start + n_new) // block_size)
    table = [*table, *unused[: max(0, needed - len(table))]]
    return table, [
        table[p // block_size] * block_size + p % block_size for p in range(start, start + n_new)
    ]


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


PLACE = "table[p // block_size] * block_size + p % block_size"

_add(
    "a_block_too_many",
    {"-(-(start + n_new) // block_size)": "(start + n_new) // block_size + 1"},
    "n // size + 1 for a number of blocks",
    "So many tokens that they fill their blocks need no block more: round up, do not add one.",
)
_add(
    "blocks_of_new_tokens",
    {"-(-(start + n_new) // block_size)": "len(table) - (-n_new // block_size)"},
    "plausible",
    "You take blocks for the new tokens as if they began a block. The last block may have room:"
    " count the blocks of start + n_new tokens, less those that are there.",
)
_add(
    "all_blocks_again",
    {"needed - len(table)": "needed"},
    "plausible",
    "You take the blocks that the whole sequence needs. Those of its table are there already.",
)
_add(
    "reserved_blocks_cut",
    {"table = [*table, *unused": "table = [*table[:needed], *unused"},
    "plausible",
    "A table may hold more blocks than the tokens fill: leave them where they are.",
)
_add(
    "block_number_for_slot",
    {PLACE: "table[p // block_size] + p % block_size"},
    "plausible",
    "A block's first slot is its number times block_size.",
)
_add(
    "in_one_piece",
    {PLACE: "table[0] * block_size + p"},
    "a contiguous cache",
    "You count on from the first block. The next one may lie anywhere: look it up in the table.",
)
_add(
    "positions_from_zero",
    {"range(start, start + n_new)": "range(n_new)"},
    "plausible",
    "The new tokens stand behind the start tokens that are there: their positions begin at start.",
)
_add(
    "no_table",
    {PLACE: "p"},
    "plausible",
    "A position is no slot: block p // block_size of the sequence is table[p // block_size] of the"
    " pool.",
)
_add(
    "taken_from_the_end",
    {"unused[: max(0, needed - len(table))]": "unused[::-1][: max(0, needed - len(table))]"},
    "list.pop()",
    "The task takes unused blocks from the front of the list.",
)


def _drawn(rng: random.Random) -> tuple[list[int], list[int], int, int, int]:
    size = rng.randrange(1, 20)
    start, n_new = rng.randrange(0, 90), rng.randrange(0, 60)
    blocks = rng.sample(range(500), 200)
    held = -(-start // size)
    return blocks[:held], blocks[held:], start, n_new, size


def cases(rng: random.Random) -> list[Case]:
    """One token and many; ends on a block's first, last and next place; no table, no new token,
    reserved blocks, both together; sizes that are no power of two; blocks and positions past
    every constant."""
    many, far = past(2048), past(4096)
    fixed = {
        "one token into a block with room": ([7, 2], [5, 9], 5, 1, 4),
        # of the same length: whoever keeps results by that is wrong here
        "the same in other blocks": ([3, 6], [5, 9], 5, 1, 4),
        "one token, the last place of a block": ([7, 2], [5, 9], 7, 1, 4),
        "one token, and the block is full": ([7, 2], [5, 9], 8, 1, 4),
        "a prompt": ([], [3, 0, 6, 1], 0, 6, 4),
        "a prompt that fills its blocks": ([], [3, 0, 6, 1], 0, 8, 4),
        "a prompt of one token": ([], [3, 0], 0, 1, 4),
        "no new token": ([7, 2], [5], 6, 0, 4),
        "no new token, the block is full": ([7, 2], [5], 8, 0, 4),
        "nothing at all": ([], [5], 0, 0, 4),
        # whoever returns early where nothing is new may forget the blocks that are kept
        "no new token, blocks reserved": ([5, 6, 7], [9], 4, 0, 4),
        "no token at all, a block reserved": ([5], [9], 0, 0, 4),
        "nothing unused, and room": ([4, 1], [], 5, 3, 4),
        "over three blocks": ([4, 1], [8, 3, 0, 2], 7, 10, 4),
        "the same, blocks of five": ([4, 1], [8, 3, 0, 2], 7, 10, 5),
        "the same, what is unused in another order": ([4, 1], [2, 0, 8, 3], 7, 10, 4),
        "the same, its blocks in another order": ([1, 4], [8, 3, 0, 2], 7, 10, 4),
        "to the end of a block": ([4], [8, 3, 0], 2, 6, 4),
        "blocks of one token": ([4, 2], [8, 3, 0], 2, 2, 1),
        "blocks of three": ([4, 2], [8, 3, 0], 5, 4, 3),
        "reserved blocks": ([4, 2, 9, 1], [8, 3], 3, 2, 4),
        "one block reserved, many unused": ([4, 2, 9], [8, 3, 5, 7], 3, 2, 4),
        "reserved, and one more": ([4, 2, 9, 1], [8, 3], 14, 3, 4),
        "block 0": ([0], [1], 1, 2, 16),
        f"a block of {many}": ([2], [1], 0, many, many),
        f"{far} tokens": ([], [*range(far, 0, -1)], 0, far, 7),
        f"a token behind {far}": ([*range(far)], [far, far + 1], far, 1, 1),
        f"block {far}": ([far], [3], 1, 1, 16),
    }
    fresh = [_drawn(rng) for _ in range(6)]
    return [
        *(Case(name, args) for name, args in fixed.items()),
        *(Case(f"fresh {i + 1}", args, public=i < 2) for i, args in enumerate(fresh)),
    ]


EXERCISE = Exercise(
    id="paging-slots",
    title="From a position to a slot",
    kind="kernel",
    points=3,
    minutes=8,
    entries=("grow",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "How many blocks do start + n_new tokens fill, the last one perhaps in part?",
        "Round up. Take what the table lacks from the front of unused, if it lacks anything.",
        "Position p lies in block table[p // block_size], p % block_size places behind its first.",
    ),
    recall=(
        "A table is [7, 2], blocks have 4 tokens. In which slot of the pool lies position 6?",
        "In block 2, third place: 2·4 + 2 = 10.",
    ),
    ranges={"n_new": (0, 4099), "block_size": (1, 2053)},
)
