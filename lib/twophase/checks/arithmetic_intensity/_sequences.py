"""Queries, and blocks of keys in some order: the cases of arithmetic_intensity-flash."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import Any

import torch

from twophase.checks.arithmetic_intensity._data import normal
from twophase.checks.edges import past
from twophase.checks.exercise import Case

Tensor = torch.Tensor
Step = tuple[Any, ...]  # ("start", state, T, H), ("add_block", old, new, ...), ("finish", state)

MANY_KEYS = past(2048)  # in one block

# (key_start, keys): for every table of 2,048 to 131,072 positions, and for one of 100,000, a key
# that lies behind the queries if positions wrap around there
FAR_APART = [(0, 2), *((2**i - 2, 2) for i in range(11, 18)), (99_998, 2), (200_000, 4)]


@dataclass(frozen=True)
class Sequence:
    """Queries [T, H] from `query_start` on; blocks (k [n, H], v [n, H], key_start) in the order in
    which they are handed over."""

    q: Tensor
    query_start: int
    blocks: list[tuple[Tensor, Tensor, int]]

    def start(self, state: str) -> Step:
        return "start", state, *self.q.shape

    def add(self, block: int, old: str, new: str) -> Step:
        """The state `new` is `old` and one block more."""
        k, v, key_start = self.blocks[block]
        return "add_block", old, new, self.q, k, v, key_start, self.query_start

    def visible(self) -> Tensor:
        """Scores [T, all keys], −inf where they are masked."""
        keys = torch.cat([torch.arange(at, at + len(k)) for k, _, at in self.blocks])
        queries = torch.arange(self.query_start, self.query_start + len(self.q))
        scores = self.q @ torch.cat([k for k, _, _ in self.blocks]).T / math.sqrt(self.q.shape[1])
        return scores.masked_fill(keys > queries[:, None], -math.inf)


def one(sequence: Sequence) -> list[Step]:
    """The calls for one sequence."""
    blocks = range(len(sequence.blocks))
    return [sequence.start("one"), *(sequence.add(i, "one", "one") for i in blocks)]


def in_turn(first: Sequence, second: Sequence) -> list[Step]:
    """The calls for two sequences of as many blocks, block by block in turn."""
    steps = [first.start("one"), second.start("two")]
    for i in range(len(first.blocks)):
        steps += [first.add(i, "one", "one"), second.add(i, "two", "two")]
    return steps


def forked(sequence: Sequence) -> list[Step]:
    """The first block; then from that state once the second block, once the third."""
    return [
        sequence.start("both"),
        sequence.add(0, "both", "both"),
        sequence.add(1, "both", "one"),
        sequence.add(2, "both", "two"),
    ]


def drawn(
    rng: random.Random,
    T: int,
    H: int,
    blocks: list[tuple[int, int]],
    query_start: int | None = None,
    scale: float = 1.0,
) -> Sequence:
    """Random queries, keys and values; `blocks` are (key_start, number of keys). Without
    `query_start` the queries are the last positions that have a key."""
    if query_start is None:
        query_start = max(at + n for at, n in blocks) - T
    q = normal(rng, T, H, scale=scale)
    return Sequence(
        q,
        query_start,
        [(normal(rng, n, H, scale=scale), normal(rng, n, H), at) for at, n in blocks],
    )


def shifted(
    rng: random.Random, T: int, blocks: list[tuple[int, int]], *shift: float, rise: float = 0.0
) -> Sequence:
    """As `drawn`, H = 4, with `shift` added to every score (or one to each query's), and `rise`
    more to each block's than to those of the one before.

    Queries and keys are multiples of 1/8, so that fp32 holds every score exactly.
    """
    made = drawn(rng, T, 4, blocks, scale=0.5)
    q = made.q.mul(8).round().div(8)
    q[:, 0], q[:, 1] = 2 * torch.tensor(shift), 2.0
    placed = []
    for i, (keys, v, at) in enumerate(made.blocks):
        k = keys.mul(8).round().div(8)
        k[:, 0], k[:, 1] = 1.0, i * rise
        placed.append((k, v, at))
    return Sequence(q, made.query_start, placed)


def same_keys_again(rng: random.Random) -> Sequence:
    """Two blocks of the same keys with other values, all of them visible: two parts of equal
    log-sum-exp."""
    (k, v, _) = (made := drawn(rng, 2, 4, [(0, 3)], query_start=6)).blocks[0]
    return Sequence(made.q, 6, [(k, v, 0), (k, normal(rng, 3, 4), 3)])


def _scores_lie(low: float, high: float, sequence: Sequence) -> Sequence:
    """The sequence, which promises that every visible score lies between the two, and that some are
    masked."""
    scores = sequence.visible()
    visible = scores[scores > -math.inf]
    assert bool(((low <= visible) & (visible <= high)).all())
    assert len(visible) < scores.numel()
    return sequence


def _hidden_on_top(rng: random.Random) -> Sequence:
    """Scores around −900 for the keys that a query sees, around 900 for those behind all queries: a
    block of them first, some later among visible ones."""
    made = replace(shifted(rng, 2, [(11, 2), (0, 5), (5, 6)], -900.0), query_start=6)
    for k, _, at in made.blocks:
        k[torch.arange(at, at + len(k)) > 7, 0] = -1.0
    unmasked = replace(made, query_start=13).visible()
    assert bool((unmasked[:, [0, 1, *range(10, 13)]] > 800).all())
    return _scores_lie(-910.0, -890.0, made)


def _far(rng: random.Random) -> list[Case]:
    """Scores at both ends of what the task allows; positions beyond every table."""
    ends = {
        "every score around −250": (-260.0, -240.0, -250.0),
        "every score around −998": (-1000.0, -996.0, -998.0),
        "every score around 998": (996.0, 1000.0, 998.0),
    }
    return [
        *(
            Case(name, (one(_scores_lie(low, high, shifted(rng, 2, [(0, 5), (5, 4)], shift))),))
            for name, (low, high, shift) in ends.items()
        ),
        Case(
            "one query's scores around 150, the other's around −150",
            (one(shifted(rng, 2, [(0, 5), (5, 4)], 150.0, -150.0)),),
        ),
        Case("keys behind all queries have the largest scores", (one(_hidden_on_top(rng)),)),
        Case(
            "scores that rise from block to block",
            (one(shifted(rng, 2, [(2 * i, 2) for i in range(9)], -400.0, rise=100.0)),),
        ),
        Case(
            "scores that fall from block to block",
            (one(shifted(rng, 2, [(2 * i, 2) for i in range(9)], 400.0, rise=-100.0)),),
        ),
        Case(
            "queries at 200,001 and 200,002, keys far apart",
            (one(drawn(rng, 2, 4, FAR_APART, query_start=200_001)),),
        ),
    ]


def _one_changed() -> list[Case]:
    """Sequences that differ in one thing alone, in the first block or in all of them: the last
    block, which comes first, or where the queries are. Whoever keeps results by the rest is wrong
    here. Three of each: of three calls two meet the same process, where there are two."""
    own = random.Random(24)
    first, second, third = (drawn(own, 2, 3, [(2, 3), (0, 2)], query_start=3) for _ in range(3))
    keys, values, at = first.blocks[0]

    def with_block(k: Tensor, v: Tensor, key_start: int) -> Sequence:
        return replace(first, blocks=[(k, v, key_start), first.blocks[1]])

    others = {
        "other queries": [replace(first, q=x.q) for x in (second, third)],
        "other keys": [with_block(x.blocks[0][0], values, at) for x in (second, third)],
        "other values": [with_block(keys, x.blocks[0][1], at) for x in (second, third)],
        "keys elsewhere": [with_block(keys, values, start) for start in (3, 4)],
        "queries elsewhere": [replace(first, query_start=start) for start in (2, 4)],
    }
    name = "2 queries over 5 keys, the last 3 keys first"
    return [
        Case(name, (one(first),)),
        *(Case(f"two of these in turn, {says}", (in_turn(*two),)) for says, two in others.items()),
    ]


def cases(rng: random.Random) -> list[Case]:
    """Decode, prefill, a few queries over more keys; blocks in and out of order, of one key and of
    hundreds, and behind every query; scores and positions far from zero; states side by side."""
    return [
        Case("one query over two keys, one block", (one(drawn(rng, 1, 3, [(0, 2)])),)),
        Case(
            "one query over 40 keys, blocks of 16",
            (one(drawn(rng, 1, 4, [(0, 16), (16, 16), (32, 8)])),),
        ),
        Case(
            "7 queries over 7 keys, blocks of 3", (one(drawn(rng, 7, 5, [(0, 3), (3, 3), (6, 1)])),)
        ),
        Case(
            "5 queries over 5 keys, blocks of one key",
            (one(drawn(rng, 5, 2, [(i, 1) for i in range(5)])),),
        ),
        Case("one query, one key, one number", (one(drawn(rng, 1, 1, [(0, 1)])),)),
        Case(
            "3 queries over 50 keys, blocks of 20",
            (one(drawn(rng, 3, 6, [(0, 20), (20, 20), (40, 10)])),),
        ),
        Case("5 queries over 5 keys, last block first", (one(drawn(rng, 5, 4, [(3, 2), (0, 3)])),)),
        Case(
            "3 queries, a block of keys behind all of them",
            (one(drawn(rng, 3, 4, [(7, 4), (0, 4), (4, 2), (6, 3)], query_start=4)),),
        ),
        Case(
            "one query, keys behind it in its own block",
            (one(drawn(rng, 1, 4, [(2, 4), (0, 2)], query_start=3)),),
        ),
        Case(
            "scores of some hundreds",
            (one(drawn(rng, 2, 4, [(0, 9), (9, 9), (18, 4)], scale=14.0)),),
        ),
        *_far(rng),
        Case("the same keys twice, with other values", (one(same_keys_again(rng)),)),
        Case(
            "two sequences in turn, a state for each",
            (in_turn(drawn(rng, 2, 3, [(0, 4), (4, 3)]), drawn(rng, 3, 3, [(0, 9), (9, 4)])),),
        ),
        *_one_changed(),
        Case(
            "two ways to go on from one state",
            (forked(drawn(rng, 2, 3, [(0, 4), (4, 3), (5, 4)], query_start=7)),),
        ),
        Case(
            "2,053 queries, three of five keys behind most of them",
            (one(drawn(rng, 2053, 1, [(0, 2), (2000, 3)], query_start=2)),),
            public=False,
        ),
        Case("heads of 131 numbers", (one(drawn(rng, 2, 131, [(0, 3), (3, 2)])),)),
        Case(
            "61 keys, in any order",
            (one(drawn(rng, 6, 5, [(52, 9), (0, 13), (33, 19), (13, 20)], scale=3.0)),),
            public=False,
        ),
        Case(
            f"{MANY_KEYS} keys in one block, 19 queries",
            (one(drawn(rng, 19, 2, [(0, MANY_KEYS), (MANY_KEYS, 3)])),),
            public=False,
        ),
    ]
