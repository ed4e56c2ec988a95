"""Beams and the blocks that they name, for paging-snippet: what an input is, the state that it
stands for, and the cases of the repaired code."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks.compare import plain

Tables = list[list[int]]
Input = dict[str, Any]
KEYS, N_BLOCKS = {"tables", "parents", "others"}, 8


def problem(given: Any) -> str:
    """Why something is no input, in one sentence; empty if it is."""
    if not isinstance(given, dict) or set(given) != KEYS:
        return 'an input is a dict with the keys "tables", "parents" and "others"'
    tables, parents, others = (given[k] for k in ("tables", "parents", "others"))
    if not isinstance(tables, list | tuple) or not 2 <= len(tables) <= 4:
        return "there are 2 to 4 beams"
    for blocks in (*tables, others):
        if not isinstance(blocks, list | tuple) or not all(map(_is_block, blocks)):
            return "tables and others are lists of blocks, ints from 0 to 7"
    if not all(1 <= len(t) <= 4 and len(set(t)) == len(t) for t in tables):
        return "a table has 1 to 4 blocks, each once"
    if not isinstance(parents, list | tuple) or len(parents) != len(tables):
        return "there are as many parents as beams"
    if not all(type(p) is int and 0 <= p < len(tables) for p in parents):
        return "a parent is the number of a beam"
    return ""


def _is_block(block: Any) -> bool:
    return type(block) is int and 0 <= block < N_BLOCKS


def state(tables: Tables, others: list[int], n_blocks: int) -> tuple[list[int], list[int]]:
    """The counts of these tables and of others, and the blocks that nobody names: in no order, or
    whoever sorts them in place would not be seen."""
    named = [block for table in [*tables, others] for block in table]
    count = [named.count(block) for block in range(n_blocks)]
    unused = [block for block, n in enumerate(count) if n == 0]
    return count, unused[1:] + unused[:1]


def seen_of(found: Any) -> dict[str, Any]:
    """The new tables and counts, and the blocks given back or unused before, in any order."""
    found = plain(found)
    if not isinstance(found, list | tuple) or len(found) != 3:
        return {"returned": "something that is not (tables, count, unused)"}
    unused = found[2] if isinstance(found[2], list | tuple) else []
    if any(type(block) is not int for block in unused):
        return {"returned": "unused blocks that are no ints"}
    return {"tables": found[0], "count": found[1], "unused": sorted(unused)}


def drawn(rng: random.Random, n: int) -> tuple[Tables, list[int], list[int], list[int]]:
    """Beams that share their first blocks."""
    shared = rng.sample(range(10), rng.randrange(0, 4))
    left = iter([b for b in rng.sample(range(30), 30) if b not in shared])
    tables = [
        [*shared[: rng.randrange(len(shared) + 1)], *(next(left) for _ in range(rng.randrange(3)))]
        for _ in range(n)
    ]
    others = rng.sample(range(30), 4)
    return tables, [rng.randrange(n) for _ in range(n)], *state(tables, others, 30)


FIXED: dict[str, tuple[Tables, list[int], list[int]]] = {  # tables, parents, what others name
    "one beam twice, the other dropped": ([[0, 1], [0, 2]], [0, 0], []),
    "the same, the beams in another order": ([[0, 2], [0, 1]], [0, 0], []),
    "the beams change places": ([[0, 1], [0, 2]], [1, 0], []),
    "nothing changes": ([[0, 1], [0, 2]], [0, 1], []),
    "the last beam three times": ([[0, 1], [0, 2], [0, 3]], [2, 2, 2], []),
    "two dropped beams share a block": ([[0, 1], [0, 1, 2], [3]], [2, 2, 2], []),
    "others read all": ([[0, 1], [0, 2]], [1, 1], [0, 1, 2]),
    "others read a block of a dropped beam": ([[0, 1], [0, 2]], [0, 0], [2]),
    "others read a block of the beam that goes on": ([[0, 1], [0, 2]], [0, 0], [1]),
    "others read one block twice": ([[0, 1], [2, 3]], [1, 1], [0, 0]),
    "one beam": ([[3, 1, 2]], [0], []),
    "one beam becomes four": ([[2, 0]], [0, 0, 0, 0], []),
    "four beams become one": ([[0, 1], [0, 2], [0, 3], [0, 4, 5]], [3], []),
    "empty tables": ([[], []], [0, 0], [1]),
    "one empty table": ([[], [1]], [0, 0], []),
    "no beams, others alone": ([], [], [1]),
    "no beam goes on": ([[0, 1], [0, 2]], [], [1]),
}
