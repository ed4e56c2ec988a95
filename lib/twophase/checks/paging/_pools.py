"""Pools, machines and texts for paging-block_size, and how many tokens a second each block size
brings."""

from __future__ import annotations

import random
from typing import Any

Pool = dict[str, float]  # pool_bytes, token_bytes, bytes_per_s, block_s, other_s
Situation = tuple[list[int], list[int], Pool]  # lengths, sizes, pool


def blocks_of(n_tokens: int, size: int) -> int:
    return -(-n_tokens // size)


def running(lengths: list[int], size: int, pool: Pool) -> list[int]:
    """The lengths of the sequences that run: in order, up to the first that does not fit."""
    left = pool["pool_bytes"] // (size * pool["token_bytes"])
    found = []
    for n in lengths:
        left -= blocks_of(n, size)
        if left < 0:
            break
        found.append(n)
    return found


def step_s(lengths: list[int], size: int, pool: Pool) -> float:
    """Seconds of a step that says one token of each of these."""
    read = sum(lengths) * pool["token_bytes"] / pool["bytes_per_s"]
    looked_up = sum(blocks_of(n, size) for n in lengths) * pool["block_s"]
    return pool["other_s"] + read + looked_up


def rate(lengths: list[int], size: int, pool: Pool) -> float:
    """Tokens a second of those that run."""
    found = running(lengths, size, pool)
    return len(found) / step_s(found, size, pool) if found else 0.0


def pool(**changes: float) -> Pool:
    """A pool of 4,096 tokens of 1 KiB; reading one takes a microsecond or so, a look-up, too."""
    return {
        "pool_bytes": 2.0**22,
        "token_bytes": 2.0**10,
        "bytes_per_s": 2.0**30,
        "block_s": 2.0**-20,
        "other_s": 2.0**-13,
        **changes,
    }


SIZES = [1, 8, 16, 32, 128]


def made(rng: random.Random, **changes: float) -> Situation:
    """Sequences enough to fill a pool of some 4,000 tokens."""
    typical = rng.choice((20, 60, 200))
    lengths = [rng.randrange(1, 2 * typical) for _ in range(400)]
    changed = {
        "block_s": 2.0 ** rng.uniform(-24, -16),
        "other_s": 2.0 ** rng.uniform(-16, -8),
        **changes,
    }
    sizes = rng.sample([1, 2, 4, 8, 16, 32, 64, 128, 256], 5)
    return lengths, sizes, pool(**changed)


def fixed() -> dict[str, Situation]:
    """Cases in which each part of the rule decides."""
    long, short = [2000, 1990, 2010], [9] * 600
    free: dict[str, Any] = {"block_s": 0.0}
    dear: dict[str, Any] = {"block_s": 2.0**-12}
    # two blocks of 2^16 tokens fill 2^27 bytes; a byte less, and one runs: small blocks hold two
    two = [2**16 - 64] * 2, [2**16, 64]
    large = pool(pool_bytes=2.0**27, block_s=2.0**-13, other_s=1.0)
    return {
        "short texts": (short, SIZES, pool()),
        "short texts, five other sizes": (short, [2, 4, 9, 64, 256], pool()),
        "short texts, look-ups for nothing": (short, SIZES, pool(**free)),
        "short texts, look-ups dear": (short, SIZES, pool(**dear)),
        "long texts": (long, SIZES, pool()),
        "long texts, look-ups dear": (long, SIZES, pool(**dear)),
        "room for all": ([100] * 10, SIZES, pool()),
        "room for all, look-ups dear": ([100] * 10, SIZES, pool(**dear)),
        "texts of 17 tokens": ([17] * 300, SIZES, pool(other_s=2.0**-6)),
        # whoever keeps results by some of the numbers is wrong here
        "the same texts, a pool twice as large": (
            [17] * 300,
            SIZES,
            pool(other_s=2.0**-6, pool_bytes=2.0**23),
        ),
        "the same texts, smaller tokens": (
            [17] * 300,
            SIZES,
            pool(other_s=2.0**-6, token_bytes=2.0**9),
        ),
        "the same texts, look-ups dearer": (
            [17] * 300,
            SIZES,
            pool(other_s=2.0**-6, block_s=2.0**-18),
        ),
        "texts of 16 tokens": ([16] * 300, SIZES, pool(other_s=2.0**-6)),
        "texts of 33 tokens, dear": ([33] * 300, [8, 16, 32, 64], pool(**dear)),
        "a step that takes long": (short, SIZES, pool(other_s=1.0)),
        "a step that takes no time": (short, SIZES, pool(other_s=0.0)),
        "room for many more, look-ups dear": ([1] * 64, [1, 256], pool(block_s=1e-3, other_s=1e-2)),
        "one size": (short, [64], pool()),
        "one text": ([100], SIZES, pool()),
        "one token": ([1], SIZES, pool(other_s=0.0)),
        "the largest size first": (short, SIZES[::-1], pool()),
        "a long text among short ones": (
            [9] * 20 + [4000] + [9] * 400,
            [1, 16, 64, 512],
            pool(pool_bytes=2.0**23),
        ),
        "the same, read quickly": (
            [9] * 20 + [4000] + [9] * 400,
            [1, 16, 64, 512],
            pool(pool_bytes=2.0**23, bytes_per_s=2.0**32),
        ),
        "a long text first, short ones behind": (
            [3000] + [5] * 400,
            [1, 4, 64, 256],
            pool(other_s=2.0**-7),
        ),
        "the same, the long text behind": (
            [5] * 400 + [3000],
            [1, 4, 64, 256],
            pool(other_s=2.0**-7),
        ),
        "a pool that just holds them": ([32] * 128, [16, 32, 64], pool(**dear)),
        "a byte less": ([32] * 128, [16, 32, 64], pool(pool_bytes=2.0**22 - 1, other_s=2.0**-7)),
        "two blocks of 65,536 tokens": (*two, large),
        "two blocks of 65,536 tokens, a byte less": (*two, {**large, "pool_bytes": 2.0**27 - 1}),
        "two texts of a million tokens, room for all but one": (
            [2**20] * 2,
            [1, 2**16],
            pool(pool_bytes=2.0**31 - 2.0**10, block_s=2.0**-22, other_s=1.0),
        ),
        "large tokens": (
            [300] * 40,
            SIZES,
            pool(token_bytes=2.0**20, pool_bytes=2.0**32, bytes_per_s=2.0**41),
        ),
        "three large blocks": ([700, 100, 100], [64, 256, 1024], pool(**dear, other_s=2.0**-6)),
        "room for all, look-ups dear, the largest first": ([100] * 10, SIZES[::-1], pool(**dear)),
        "texts that the larger size fits": ([32] * 200, [24, 32], pool(other_s=2.0**-6)),
        "a part of a block is none": (
            [100] * 3,
            [50, 190],
            pool(pool_bytes=190 * 2.0**10, block_s=2.0**-10, other_s=2.0**-8),
        ),
        "a pool that is just full": (
            [60] * 3,
            [34, 60],
            pool(pool_bytes=120 * 2.0**10, block_s=0.0),
        ),
        "a step that takes a quarter of an hour": (short, SIZES[::-1], pool(other_s=1000.0)),
        "a block larger than the pool": ([300, 20], [512, 64, 1], pool(pool_bytes=500 * 2.0**10)),
        "texts behind that never fit": (
            [100, 100] + [4000] * 10,
            [10, 200],
            pool(pool_bytes=200 * 2.0**10, block_s=2.0**-12, other_s=2.0**-12),
        ),
        "a hundred sizes": (short, [*range(1, 101)], pool(**dear)),
        "a hundred sizes, the largest first": (short, [*range(100, 0, -1)], pool(other_s=2.0**-6)),
        "texts of 24 tokens": ([24] * 300, [16, 24, 32], pool(other_s=2.0**-6)),
    }
