"""The logs of local_attention-ring_log: what each query of one layer saw, pass by pass."""

from __future__ import annotations

import random
from collections.abc import Callable

from twophase.checks.exercise import Case

Passes = list[list[list[int]]]  # pass, query, positions seen
Sees = Callable[
    [int, int, int], list[int]
]  # query's position, its block's end, window: what it saw

SINKS = 4  # positions that a layer may keep beside its window


def window_of(p: int, window: int) -> list[int]:
    """What the query at position p should see."""
    return list(range(max(0, p - window + 1), p + 1))


def healthy(p: int, end: int, window: int) -> list[int]:
    return window_of(p, window)


def stored_first(p: int, end: int, window: int) -> list[int]:
    """The block lies in the ring before its queries look: its early ones miss what it overwrote."""
    return [s for s in window_of(p, window) if s >= end - window]


def not_masked(p: int, end: int, window: int) -> list[int]:
    """The whole ring after the block, later tokens included."""
    return list(range(max(0, end - window), end))


def one_short(p: int, end: int, window: int) -> list[int]:
    """A ring of one slot too few."""
    return window_of(p, window - 1)


def one_long(p: int, end: int, window: int) -> list[int]:
    return window_of(p, window + 1)


def with_sinks(n: int) -> Sees:
    """The first n positions are kept beside the window."""

    def sees(p: int, end: int, window: int) -> list[int]:
        return [*(s for s in range(n) if s <= p - window), *window_of(p, window)]

    return sees


def shifted(p: int, end: int, window: int) -> list[int]:
    """As many keys as there should be, each one too old."""
    return window_of(p - 1, window) if p >= window else window_of(p, window)


def restarted(p: int, end: int, window: int) -> list[int]:
    """A ring that begins anew with every block of two or more is told by its first query."""
    return [p]


def log(window: int, blocks: list[int], sees: Sees = healthy) -> Passes:
    """Blocks of so many tokens, one after the other, in the order of the ring's slots."""
    passes, start = [], 0
    for T in blocks:
        end = start + T
        found = [sees(p, end, window) for p in range(start, end)]
        passes.append([sorted(seen, key=lambda s: s % window) for seen in found])
        start = end
    return passes


def edited(passes: Passes, p: int, seen: list[int]) -> Passes:
    """The same log, but the query at position p saw this."""
    rows = iter(range(sum(map(len, passes))))
    return [[seen if next(rows) == p else row for row in block] for block in passes]


LATE = 2_000  # tokens, as many as the task allows: a fault after so many healthy passes
ONES = [1] * 12


def fixed() -> list[tuple[str, int, Passes]]:
    """The cases that no seed changes."""
    chunk = [6, 1, 1, 4, 1]
    plain = log(4, ONES)
    late = log(5, [1] * LATE)
    return [
        ("token by token", 4, plain),
        ("the same, in a window of five", 5, plain),
        ("a prompt as long as the window, then tokens", 4, log(4, [4, 1, 1, 1])),
        ("a text shorter than the window", 9, log(9, [3, 1, 1])),
        ("chunks, all well", 4, log(4, chunk)),
        ("one token", 4, log(4, [1])),
        ("a window of one", 1, log(1, [2, 1, 3])),
        ("one token in a window of one", 1, log(1, [1])),
        ("a window of one, the second query sees nothing", 1, [[[0], []]]),
        ("a prompt stored first", 4, log(4, chunk, stored_first)),
        (
            "a chunk of two stored first: one query misses its oldest key",
            4,
            log(4, [4, 2], stored_first),
        ),
        (
            "the second of two queries misses its oldest key",
            4,
            edited(log(4, [3, 2]), 4, [2, 3, 4]),
        ),
        ("a window of one, and no key seen", 1, log(1, [2, 1], one_short)),
        ("a chunk of two stored first in a window of one", 1, log(1, [2], stored_first)),
        ("a prompt stored first, not masked", 4, log(4, chunk, not_masked)),
        ("only its last block looks into the future", 3, edited(log(3, [3, 2]), 3, [1, 2, 3, 4])),
        ("the future in the first of the slots", 4, edited(log(4, [3, 3]), 3, [4, 5, 2, 3])),
        ("a key of a far later pass", 4, edited(plain, 5, [4, 5, 2, 11])),
        ("its own key is missing", 4, edited(plain, 11, [8, 9, 10])),
        ("every ring begins anew", 4, log(4, chunk, restarted)),
        ("one slot too few", 4, log(4, ONES, one_short)),
        ("one slot too few, in chunks", 5, log(5, [7, 1, 3, 1], one_short)),
        ("one slot too few, just once in a full window", 4, log(4, [1] * 4, one_short)),
        (
            "one slot too few, but for one query",
            4,
            edited(log(4, ONES, one_short), 7, [4, 5, 6, 7]),
        ),
        (
            "one slot too few, and another key is lost as well",
            4,
            edited(log(4, ONES, one_short), 7, [7, 6]),
        ),
        (
            "one slot too few, and once it is another key that is lost",
            4,
            edited(log(4, ONES, one_short), 7, [4, 6, 7]),
        ),
        ("one slot too few, and an early key is lost", 4, edited(log(4, ONES, one_short), 1, [1])),
        (
            "one slot too few, and an older key is seen",
            4,
            edited(log(4, ONES, one_short), 7, [1, 5, 6, 7]),
        ),
        (
            "a middle key is missing everywhere",
            3,
            log(3, ONES, lambda p, e, w: [s for s in window_of(p, w) if s != p - 1]),
        ),
        ("one key too many", 4, log(4, ONES, one_long)),
        ("one key too many, of the first four", 4, log(4, [1] * 6, one_long)),
        ("the first four are kept", 6, log(6, [1] * 14, with_sinks(4))),
        ("the first one is kept", 3, log(3, ONES, with_sinks(1))),
        ("the first five are kept", 6, log(6, [1] * 14, with_sinks(5))),
        ("the first four are kept, a prompt and chunks", 3, log(3, [8, 1, 5], with_sinks(4))),
        (
            "once an older key that is none of the first",
            4,
            edited(log(4, ONES, with_sinks(2)), 10, [4, 7, 8, 9, 10]),
        ),
        ("every key one too old", 4, log(4, ONES, shifted)),
        ("a key lost, another kept", 4, edited(plain, 9, [0, 7, 8, 9])),
        ("a key lost, a future one seen", 4, edited(log(4, [4, 1, 3]), 6, [3, 5, 6, 7])),
        # the order of the questions counts, not that of the queries
        (
            "an early key lost, a later query sees a future one",
            3,
            edited(edited(log(3, [1, 1, 1, 2]), 1, [1]), 3, [1, 2, 3, 4]),
        ),
        (
            "a middle key lost, a later query sees a future one",
            4,
            edited(edited(log(4, [4, 1, 3]), 4, [1, 2, 4]), 6, [3, 4, 5, 6, 7]),
        ),
        (
            "one slot too few, and in the end a future key is seen",
            4,
            edited(log(4, [1] * 6 + [2], one_short), 6, [3, 4, 5, 6, 7]),
        ),
        (
            "an older key seen, a later query sees a future one",
            4,
            edited(edited(log(4, [4, 2, 2]), 4, [0, 1, 2, 3, 4]), 6, [3, 4, 5, 6, 7]),
        ),
        (
            "an older key seen, a later query loses one",
            4,
            edited(edited(plain, 9, [5, 6, 7, 8, 9]), 11, [8, 9, 11]),
        ),
        (
            "the last query alone misses a key",
            5,
            edited(late, LATE - 1, [LATE - 5, LATE - 4, LATE - 2, LATE - 1]),
        ),
        (
            "the last query alone sees an older key",
            5,
            edited(late, LATE - 1, list(range(LATE - 6, LATE))),
        ),
        (
            "the last query alone sees the first key",
            5,
            edited(late, LATE - 1, [0, *range(LATE - 5, LATE)]),
        ),
        ("a window of 200, one slot too few", 200, log(200, [190, 10, 2, 1], one_short)),
        ("a window of 200, one key too many", 200, log(200, [190, 10, 2, 1], one_long)),
    ]


def fresh(rng: random.Random) -> Case:
    """A ring of drawn size, chunks of drawn lengths, one of the ways in which rings go wrong."""
    window = rng.randrange(5, 20)
    blocks = [rng.randrange(1, 12) for _ in range(6)] + [window, 1, 1]
    rng.shuffle(blocks)
    ways = (healthy, stored_first, not_masked, one_short, one_long, with_sinks(rng.randrange(1, 5)))
    return Case("fresh chunks", (window, log(window, blocks, rng.choice(ways))), public=False)
