"""paging-evict: which remembered blocks go when there is no room: the leaves, longest unused
first."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks.compare import EXACT
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Blocks = list[dict[str, Any]]  # id, parent (an id, or None), readers, used_s


def reference(blocks: Blocks, n: int) -> list[int]:
    """The right answer."""
    left = {b["id"]: b for b in blocks}
    evicted: list[int] = []
    while len(evicted) < n:
        parents = {b["parent"] for b in left.values()}
        leaves = [b for b in left.values() if b["id"] not in parents and b["readers"] == 0]
        if not leaves:
            break
        oldest = min(leaves, key=lambda b: (b["used_s"], b["id"]))
        evicted.append(oldest["id"])
        del left[oldest["id"]]
    return evicted


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "inner_blocks_go",
    {'b["id"] not in parents and b["readers"] == 0': 'b["readers"] == 0'},
    "plain LRU, used for a tree",
    "A block with others behind it went first: without it these can never be found again. Only"
    " leaves may go.",
)
_add(
    "read_blocks_go",
    {' and b["readers"] == 0': ""},
    "plausible",
    "A block that a running sequence reads was evicted: only those without readers may go.",
)
_add(
    "newest_first",
    {"oldest = min(": "oldest = max("},
    "plausible",
    "You evict what was used last: it is the likeliest to be asked for again.",
)
_add(
    "lowest_id_first",
    {'(b["used_s"], b["id"])': '(b["id"],)'},
    "plausible",
    "You go by the numbers of the blocks: the one that was used longest ago goes first.",
)
_add(
    "last_of_equals",
    {'(b["used_s"], b["id"])': '(b["used_s"], -b["id"])'},
    "plausible",
    "Of blocks used at the same time, the one with the lowest id goes first.",
)
_add(
    "leaves_of_the_start_only",
    {
        'parents = {b["parent"] for b in left.values()}': 'parents = {b["parent"] for b in blocks}',
    },
    "plausible",
    "When its last child is gone, a block is a leaf itself, and may go as well.",
)


@wrong(
    "plausible",
    "You evict all leaves before their parents. A parent becomes a leaf at once, and may have been"
    " unused for longer than the leaves that are left.",
)
def level_by_level(blocks: Blocks, n: int) -> list[int]:
    left = {b["id"]: b for b in blocks}
    evicted: list[int] = []
    while len(evicted) < n:
        parents = {b["parent"] for b in left.values()}
        leaves = [b for b in left.values() if b["id"] not in parents and b["readers"] == 0]
        if not leaves:
            break
        for leaf in sorted(leaves, key=lambda b: (b["used_s"], b["id"])):
            evicted.append(leaf["id"])
            del left[leaf["id"]]
    return evicted[:n]


@wrong(
    "plausible",
    "You return nothing if there are too few. As many as may go should go.",
)
def all_or_nothing(blocks: Blocks, n: int) -> list[int]:
    evicted = reference(blocks, n)
    return evicted if len(evicted) == n else []


def _blocks(*rows: tuple[int, int | None, int, float]) -> Blocks:
    return [dict(zip(("id", "parent", "readers", "used_s"), row, strict=True)) for row in rows]


CHAIN = _blocks((0, None, 0, 5.0), (1, 0, 0, 5.0), (2, 1, 0, 5.0))
TREE = _blocks(
    (3, None, 1, 9.0), (7, 3, 0, 4.0), (1, 3, 1, 9.0), (5, 7, 0, 4.0), (8, 7, 0, 3.0), (2, 1, 1, 9)
)
OLD_PARENT = _blocks((4, None, 0, 1.0), (6, 4, 0, 2.0), (1, None, 0, 3.0), (2, None, 0, 4.0))
MIXED = _blocks(
    (10, None, 0, 8.0), (11, 10, 0, 2.0), (12, 10, 0, 8.0), (20, None, 0, 6.0), (21, 20, 0, 6.0)
)


def _drawn(rng: random.Random, n: int) -> Blocks:
    """A tree: a parent was used when a child was, or later, and has its readers at least."""
    ids = rng.sample(range(10 * n), n)
    rows: list[list[Any]] = []
    for i, block in enumerate(ids):
        parent = rng.choice([None, *ids[:i], *ids[max(0, i - 3) : i]]) if i else None
        rows.append([block, parent, 0, rng.randrange(20) / 2])
    where = {row[0]: row for row in rows}
    for row in rng.sample(rows, n // 5):
        step: list[Any] | None = row
        while step:
            step[2] += 1
            step = where.get(step[1])
    for row in reversed(rows):
        if row[1] is not None:
            where[row[1]][3] = max(where[row[1]][3], row[3])
    rng.shuffle(rows)
    return _blocks(*map(tuple, rows))


def cases(rng: random.Random) -> list[Case]:
    """A chain, a tree, several roots; equal times; read blocks; none, all and more than may go;
    ids, times and trees past every constant."""
    many = past(256)
    chain = _blocks(*((i, i - 1 if i else None, 0, 1.0) for i in range(many)))
    far = _blocks((past(4096), None, 0, 1e9), (past(2048), None, 0, 1e9 + 1))
    fixed = {
        "a chain, one block": (CHAIN, 1),
        "a chain, all of it": (CHAIN, 3),
        "a chain, more than there is": (CHAIN, 5),
        "a chain whose last block is read": (_blocks((0, None, 1, 5.0), (1, 0, 1, 5.0)), 1),
        "a chain whose first block is read": (_blocks((0, None, 1, 5.0), (1, 0, 0, 1.0)), 2),
        "nothing asked": (CHAIN, 0),
        "no block": ([], 2),
        "one block": (_blocks((3, None, 0, 1.0)), 1),
        "one block, read by two": (_blocks((3, None, 2, 1.0)), 1),
        "a tree, one block": (TREE, 1),
        "a tree, two": (TREE, 2),
        "a tree, all that may go": (TREE, 6),
        "a parent that is old": (OLD_PARENT, 2),
        "a parent that is old, three": (OLD_PARENT, 3),
        "two trees": (MIXED, 1),
        "two trees, three blocks": (MIXED, 3),
        "two trees, four blocks": (MIXED, 4),
        "all of both": (MIXED, 5),
        "the newest has the lowest id": (_blocks((1, None, 0, 9.0), (2, None, 0, 3.0)), 1),
        "the oldest has the lowest id": (_blocks((2, None, 0, 9.0), (1, None, 0, 3.0)), 1),
        "equal times": (_blocks((5, None, 0, 3.0), (2, None, 0, 3.0), (9, None, 0, 3.0)), 2),
        "siblings": (_blocks((0, None, 0, 7.0), (4, 0, 0, 3.0), (3, 0, 0, 7.0)), 3),
        "older than its last child, equal times": (
            _blocks((9, None, 0, 1.0), (2, 9, 0, 5.0), (3, None, 0, 5.0)),
            2,
        ),
        "block 0 behind an older one": (_blocks((1, None, 0, 1.0), (0, 1, 0, 5.0)), 1),
        "block 0 last": (_blocks((0, None, 0, 2.0), (1, None, 0, 1.0)), 2),
        "times a little apart": (_blocks((1, None, 0, 2.0**-40), (2, None, 0, 0.0)), 1),
        "a parent used at 0 s": (
            _blocks((1, None, 0, 0.0), (2, 1, 0, 1.0), (3, None, 0, 5.0)),
            2,
        ),
        "before the clock's zero": (_blocks((1, None, 0, -1.0), (2, None, 0, -2.0)), 1),
        "large ids and times": (far, 1),
        f"a chain of {many}": (chain, many - 1),
        f"{many} alone": (_blocks(*((i, None, 0, (i * 7) % many) for i in range(many))), many),
    }
    fresh = [(_drawn(rng, n), rng.randrange(2, n)) for n in (6, 9, 14, 20)]
    return [
        *(Case(name, args) for name, args in fixed.items()),
        *(Case(f"fresh {i + 1}", args, public=i < 1) for i, args in enumerate(fresh)),
    ]


EXERCISE = Exercise(
    id="paging-evict",
    title="Which block goes",
    kind="kernel",
    points=4,
    minutes=10,
    entries=("evict",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Which blocks is nobody's parent, and nobody's to read?",
        "Take the one of these that was used longest ago. Look again: its parent may be one now.",
        (
            "while len(evicted) < n: leaves without readers; if there are none, stop; the least of"
            " (used_s, id) goes."
        ),
    ),
    recall=(
        "Why does a prefix cache evict leaves only?",
        "Without an inner block those behind it can never be found again: they would be lost room.",
    ),
)
