"""paging-waste: places of a cache that are used, reserved and lost, in one piece and in blocks."""

from __future__ import annotations

import random

from twophase.checks.compare import EXACT
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(
    held: list[int], final: list[int], max_len: int, block_size: int
) -> dict[str, dict[str, int]]:
    """The right answer."""
    used = sum(held)
    taken = [-(-n // block_size) * block_size for n in held]
    kept = sum(min(end, places) for end, places in zip(final, taken, strict=True))
    return {
        "pieces": {
            "used": used,
            "reserved": sum(final) - used,
            "internal": len(held) * max_len - sum(final),
        },
        "blocks": {"used": used, "reserved": kept - used, "internal": sum(taken) - kept},
    }


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "a_block_too_many",
    {"-(-n // block_size) * block_size": "(n // block_size + 1) * block_size"},
    "n // size + 1 for a number of blocks",
    "A sequence whose tokens fill its blocks has no block more.",
)
_add(
    "blocks_of_the_final_length",
    {"block_size for n in held": "block_size for n in final"},
    "plausible",
    "You give each sequence the blocks of its final length. Blocks are taken as it grows: now it"
    " has those of the tokens that it holds.",
)
_add(
    "blocks_reserve_nothing",
    {
        '"reserved": kept - used, "internal": sum(taken) - kept': (
            '"reserved": 0, "internal": sum(taken) - used'
        )
    },
    "“paging reserves nothing”",
    "A last block's empty places that tokens will still take are reserved, not lost: only those"
    " behind the final length are internal waste.",
)
_add(
    "blocks_lose_nothing",
    {'"internal": sum(taken) - kept': '"internal": 0'},
    "“no memory fragmentation”",
    "The last block of a sequence may have places that no token will take: that is internal waste.",
)
_add(
    "pieces_lose_nothing",
    {"len(held) * max_len - sum(final)": "0"} | {"sum(final) - used": "len(held) * max_len - used"},
    "plausible",
    "You call all empty places of a piece reserved. Behind the final length no token will come:"
    " these are internal waste.",
)
_add(
    "largest_in_the_batch",
    {"len(held) * max_len": "len(held) * max(final, default=0)"},
    "padding of a batch",
    "A piece is as long as any sequence may become, max_len, not as the longest of these.",
)
_add(
    "one_place_for_all",
    {
        "-(-n // block_size) * block_size for n in held": (
            "x for x in [-(-used // block_size) * block_size]"
        )
    }
    | {
        "sum(min(end, places) for end, places in zip(final, taken, strict=True))": (
            "min(sum(final), sum(taken))"
        )
    },
    "plausible",
    "You fill blocks with the tokens of all sequences together. Each has blocks of its own, so each"
    " rounds up.",
)


def _drawn(rng: random.Random) -> tuple[list[int], list[int], int, int]:
    max_len = rng.choice((64, 100, 2048))
    final = [rng.randrange(1, max_len + 1) for _ in range(rng.randrange(3, 20))]
    return [rng.randrange(1, n + 1) for n in final], final, max_len, rng.choice((1, 7, 16, 24))


def cases(rng: random.Random) -> list[Case]:
    """Begun and ended sequences, multiples of the block and their neighbors, blocks of one token
    and larger than a sequence; lengths and batches past every constant; nobody."""
    many, far = past(256), past(4096)
    fixed = {
        "one that has begun": ([3], [10], 16, 4),
        "one that will end in its block": ([5], [6], 16, 4),
        "one that has ended": ([6], [6], 16, 4),
        "ended, its blocks full": ([8], [8], 16, 4),
        "its blocks full, more to come": ([8], [9], 16, 4),
        "one less than full": ([7], [8], 16, 4),
        "as long as any may become": ([16], [16], 16, 4),
        "one token of one": ([1], [1], 16, 4),
        "three of different lengths": ([3, 9, 1], [10, 9, 2], 16, 4),
        "the same, pieces of 20": ([3, 9, 1], [10, 9, 2], 20, 4),
        # the same numbers: whoever sorts either list is wrong here
        "the same, but the first one holds nine": ([9, 3, 1], [10, 9, 2], 16, 4),
        "the same, but the second one ends with ten": ([3, 9, 1], [9, 10, 2], 16, 4),
        "two equal ones": ([5, 5], [7, 7], 8, 4),
        "blocks of one token": ([3, 9], [10, 12], 16, 1),
        "blocks of two, ended": ([3], [3], 8, 2),
        "blocks of five": ([3, 9, 10], [10, 12, 10], 16, 5),
        "a block larger than any": ([3, 9], [10, 12], 16, 64),
        "a block as large as any": ([3, 9], [10, 12], 16, 16),
        "a length that blocks do not divide": ([9, 9], [9, 10], 10, 4),
        "nobody": ([], [], 2048, 16),
        f"{many} sequences": ([2] * many, [5] * many, 6, 4),
        f"{far} tokens": ([far], [far + 2], far + 90, 16),
        f"blocks of {far}": ([far - 2, far + 1], [far, 3 * far], 4 * far, far),
    }
    fresh = [_drawn(rng) for _ in range(5)]
    return [
        *(Case(name, args) for name, args in fixed.items()),
        *(Case(f"fresh {i + 1}", args, public=i < 2) for i, args in enumerate(fresh)),
    ]


EXERCISE = Exercise(
    id="paging-waste",
    title="Used, reserved, lost",
    kind="formula",
    points=3,
    minutes=8,
    entries=("waste",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "How many places does each sequence have now: in a piece, and in blocks?",
        (
            "A piece has max_len. In blocks it has as many as its held tokens fill, rounded up to"
            " whole blocks."
        ),
        (
            "Of these places, held are used; those up to the final length are reserved; those"
            " behind it are internal waste. In blocks the final length may lie behind the last"
            " place."
        ),
    ),
    recall=(
        "A sequence holds 5 tokens, will end with 6, in blocks of 4. What is reserved, what lost?",
        "It has 8 places: one is reserved, two are lost inside.",
    ),
    ranges={"block_size": (1, 4099)},
)
