"""The texts of paging-prefix: what is inserted, and what is asked for."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks.edges import past
from twophase.checks.exercise import Case

# by which hashes of a text multiply, from Java's to FNV's and CPython's
MULTIPLIERS = 31, 33, 37, 131, 256, 257, 1_000_003, 16_777_619


def _insert(tokens: list[int], first: int, size: int) -> tuple[str, list[int], list[int]]:
    """An operation: so many blocks as the tokens need, numbered from `first` downwards."""
    n = -(-len(tokens) // size)
    return "insert", tokens, [first - i for i in range(n)]


def _drawn(rng: random.Random) -> tuple[int, list[Any]]:
    """Texts that branch off from each other, of two words only."""
    texts: list[list[int]] = [[]]
    script: list[Any] = []
    size, first = rng.randrange(1, 5), 1000
    for _ in range(14):
        base = rng.choice(texts)
        text = base[: rng.randrange(len(base) + 1)] + [rng.randrange(2) for _ in range(9)]
        if rng.random() < 0.5:
            script.append(_insert(text, first, size))
            first -= len(text)  # no block stands for two things
        else:
            script.append(("match", text))
        texts.append(text)
    script += [("match", text) for text in texts if text]
    return size, script


def cases(rng: random.Random) -> list[Case]:
    """Full hits and one token more, shared beginnings, the same words behind another beginning,
    gaps, equal blocks twice; tokens 0 and past every constant, long texts, many of them."""
    A, B, C, D = [1, 2], [3, 4], [5, 6], [7, 8]
    far, many = past(100_000), past(256)
    middle = list(range(10, 30))
    long = [i % 7 for i in range(past(2048))]
    fixed: dict[str, tuple[Any, ...]] = {
        "nothing known": (2, [("match", [1, 2, 3])]),
        "one block and a token more": (2, [_insert(A, 9, 2), ("match", [1, 2, 3])]),
        "the whole prompt": (2, [_insert(A + B, 9, 2), ("match", A + B)]),
        "the whole prompt, one block": (2, [_insert(A, 9, 2), ("match", A)]),
        "the whole prompt and a token": (2, [_insert(A + B, 9, 2), ("match", [*A, *B, 5])]),
        "a token less": (2, [_insert(A + B, 9, 2), ("match", [1, 2, 3])]),
        "a prompt of one token": (2, [_insert(A, 9, 2), ("match", [1])]),
        "a prompt of one token, blocks of one": (1, [_insert([1], 9, 1), ("match", [1])]),
        "blocks of one token": (1, [_insert([1, 2], 9, 1), ("match", [1, 2, 3])]),
        "the last block is not full": (2, [_insert([1, 2, 3], 9, 2), ("match", [1, 2, 3, 4, 5])]),
        "the last block is not full, and goes on alike": (
            2,
            [_insert([1, 2, 3], 9, 2), ("match", [1, 2, 3, 9]), ("match", [1, 2, 3])],
        ),
        "two caches, used in turn": (
            2,
            [_insert(A, 9, 2), ("match", [*A, 1]), ("match", [*B, 1])],
            [_insert(B, 9, 2), ("match", [*A, 1]), ("match", [*B, 1])],
        ),
        "not one block is full": (4, [_insert([1, 2, 3], 9, 4), ("match", [1, 2, 3, 4, 5])]),
        "the first block differs": (2, [_insert(A + B, 9, 2), ("match", [*C, *B, 1])]),
        "the same block at another place": (2, [_insert(A + B, 9, 2), ("match", [*B, *A, 1])]),
        "the same words behind another beginning": (
            2,
            [_insert(A + B, 9, 2), _insert(C + B, 7, 2), ("match", [*C, *B, 1])],
        ),
        "a beginning that was never read": (
            2,
            [_insert(A + B, 9, 2), _insert(C + D, 7, 2), ("match", [*A, *D, 1])],
        ),
        "the first of three blocks differs": (
            2,
            [_insert(A + B + C, 9, 2), _insert(D + B, 5, 2), ("match", [*D, *B, *C, 1])],
        ),
        "a gap": (2, [_insert(A + B + C, 9, 2), ("match", [*A, *D, *C, 1])]),
        "another order": (2, [_insert([2, 1, 3, 4], 9, 2), ("match", [1, 2, 3, 4, 5])]),
        "blocks in another order": (2, [_insert(A + B, 9, 2), ("match", [3, 4, 1, 2, 5])]),
        "known twice": (
            2,
            [_insert(A + B, 9, 2), _insert(A + B + C, 6, 2), ("match", [*A, *B, *C, 1])],
        ),
        "taken over, grown and known again": (
            1,
            [("insert", [1], [7]), ("insert", [1, 2], [7, 8]), ("match", [1, 2, 3])],
        ),
        "two that part": (
            2,
            [
                _insert(A + B, 9, 2),
                _insert(A + C, 7, 2),
                ("match", [*A, *C, 1]),
                ("match", [*A, *B, 1]),
                ("match", [*A, *D, 1]),
            ],
        ),
        "asked before and after": (
            2,
            [("match", [*A, 1]), _insert(A, 9, 2), ("match", [*A, 1]), ("match", [*B, 1])],
        ),
        "block 0, tokens 0": (2, [_insert([0, 0, 0], 1, 2), ("match", [0, 0, 0, 0, 0])]),
        "one 0 more": (2, [_insert([0, 0], 0, 2), ("match", [0, 0, 0]), ("match", [0, 1, 0])]),
        "block 0 is known first, then another one alike": (
            2,
            [("insert", A, [0]), ("insert", A, [7]), ("match", [1, 2, 3])],
        ),
        "digits that run together": (
            2,
            [_insert([1, 11], 9, 2), ("match", [11, 1, 2]), ("match", [1, 11, 2])],
        ),
        "alike but for their first block": (
            1,
            [
                _insert([1, *middle, 2], 90, 1),
                _insert([3, *middle, 4], 50, 1),
                ("match", [3, *middle, 2, 9]),
            ],
        ),
        "two blocks in another order, a known one behind them": (
            2,
            [_insert(A + B + C, 9, 2), _insert(B + A + D, 5, 2), ("match", [*B, *A, *C, 1])],
        ),
        "hashes that are alike: a + 2 b": (2, [_insert([2, 0], 9, 2), ("match", [0, 1, 5])]),
        "hashes that are alike: m a + b": (
            2,
            [_insert([1, 0], 9, 2), *(("match", [0, m, 5]) for m in MULTIPLIERS)],
        ),
        "a token 65,536 above another": (2, [_insert([65_537, 1], 9, 2), ("match", [1, 1, 2])]),
        "nothing is inserted": (2, [("insert", [], []), ("match", [1, 2, 3])]),
        "a table longer than the text": (
            2,
            [("insert", [1, 2, 3], [4, 8, 6]), ("match", [1, 2, 3, 4, 5, 6, 7])],
        ),
        "large tokens": (
            2,
            [_insert([far, 1], 9, 2), ("match", [far, 1, 2]), ("match", [1, 1, 2])],
        ),
        f"{len(long)} tokens": (
            3,
            [_insert(long, 5000, 3), ("match", [*long, 1]), ("match", [*long[:-1], 9])],
        ),
        f"a block of {many} tokens": (
            many,
            [_insert(long[: 2 * many], 9, many), ("match", long[: 2 * many + 1])],
        ),
        f"{many} texts": (
            1,
            [
                *(_insert([i, i], 2 * i + 1, 1) for i in range(many)),
                ("match", [many - 1] * 3),
                ("match", [0] * 3),
            ],
        ),
    }
    fresh = [_drawn(rng) for _ in range(5)]
    return [
        *(Case(name, args) for name, args in fixed.items()),
        *(Case(f"fresh {i + 1}", args, public=i < 1) for i, args in enumerate(fresh)),
    ]
