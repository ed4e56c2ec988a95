"""paging-admit: who of those that wait gets blocks now, if some must stay free."""

from __future__ import annotations

import random

from twophase.checks.compare import EXACT
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(
    prompts: list[int], n_free: int, n_blocks: int, block_size: int, percent: int
) -> dict[str, list[int]]:
    """The right answer."""
    watermark = n_blocks * percent // 100
    admitted, refused = [], []
    for i, n_tokens in enumerate(prompts):
        needed = -(-n_tokens // block_size)
        if n_blocks - needed < watermark:
            refused.append(i)
        elif n_free - needed < watermark:
            break
        else:
            admitted.append(i)
            n_free -= needed
    return {"admitted": admitted, "refused": refused}


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "no_watermark",
    {"elif n_free - needed < watermark": "elif n_free - needed < 0"},
    "plausible",
    "After an admission the watermark's blocks must still be free: those that run will want more.",
)
_add(
    "watermark_of_what_is_free",
    {"n_blocks * percent // 100": "n_free * percent // 100"},
    "plausible",
    "The watermark is a share of the whole pool, not of what happens to be free.",
)
_add(
    "a_percent_as_a_float",
    {"n_blocks * percent // 100": "int(n_blocks * (percent / 100))"},
    "a share, where 0.29 * 100 is 28.999999999999996",
    "You round a float down: 0.29 times 100 is a little less than 29. Multiply the ints first, then"
    " divide by 100 with //.",
)
_add(
    "at_the_watermark_refused",
    {"elif n_free - needed < watermark": "elif n_free - needed <= watermark"},
    "plausible",
    "Exactly the watermark may be left.",
)
_add(
    "shorter_ones_overtake",
    {"            break": "            continue"},
    "first fit in a queue",
    "Somebody who does not fit now makes all behind wait: if shorter ones pass, a long prompt may"
    " wait for ever.",
)
_add(
    "never_refused",
    {"if n_blocks - needed < watermark:": "if False:"},
    "a queue that stands still",
    "A prompt that would not fit into an empty pool waits for ever, and all behind it do: refuse"
    " it.",
)
_add(
    "refused_by_what_is_free",
    {"if n_blocks - needed < watermark:": "if n_free - needed < watermark:"},
    "plausible",
    "You refuse what does not fit now. It may fit later: refuse only what would not fit into an"
    " empty pool.",
)
_add(
    "the_whole_pool_counts",
    {"if n_blocks - needed < watermark:": "if n_blocks - needed < 0:"},
    "plausible",
    "A prompt that leaves less than the watermark of an empty pool can never be admitted: refuse"
    " it.",
)
_add(
    "blocks_not_taken",
    {"            n_free -= needed\n": ""},
    "plausible",
    "Those admitted take their blocks at once: the next one finds fewer free.",
)
_add(
    "a_block_too_many",
    {"-(-n_tokens // block_size)": "n_tokens // block_size + 1"},
    "n // size + 1 for a number of blocks",
    "So many tokens that they fill their blocks need no block more.",
)
_add(
    "rounded_up",
    {"n_blocks * percent // 100": "-(-n_blocks * percent // 100)"},
    "plausible",
    "The watermark is rounded down to whole blocks.",
)


def cases(rng: random.Random) -> list[Case]:
    """Each argument changed; just at the watermark and one block less, none at all; what never
    fits, before and behind others; multiples of the block; a queue, a pool and a prompt past every
    constant."""
    many, far = past(256), past(4096)
    fixed = {
        "two of three": ([5, 8, 3], 6, 10, 4, 20),
        "the same, three more free": ([5, 8, 3], 9, 10, 4, 20),
        "the same, a larger pool": ([5, 8, 3], 6, 25, 4, 20),
        "the same, blocks of eight": ([5, 8, 3], 6, 10, 8, 20),
        "the same, half of the pool must stay free": ([5, 8, 3], 6, 10, 4, 50),
        "just at the watermark": ([16], 6, 10, 4, 20),
        "one block less": ([17], 6, 10, 4, 20),
        "a block each": ([4, 4, 4], 2, 10, 4, 0),
        "a multiple of the block": ([8], 4, 10, 4, 20),
        "no watermark, all blocks": ([8, 8], 4, 10, 4, 0),
        "no watermark, a token too many": ([8, 9], 4, 10, 4, 0),
        "nothing free": ([1], 0, 10, 4, 0),
        "nothing free but the watermark": ([1], 2, 10, 4, 20),
        "an empty pool, filled to the watermark": ([32], 10, 10, 4, 20),
        "never, by one token": ([33, 2], 10, 10, 4, 20),
        "more than the whole pool": ([41, 2], 10, 10, 4, 20),
        "the whole pool": ([40, 2], 10, 10, 4, 0),
        "refused between others": ([4, 99, 4], 9, 10, 4, 20),
        "a long one before a short one": ([24, 2], 6, 10, 4, 20),
        "the short one before the long one": ([2, 24], 6, 10, 4, 20),
        "waiting before one that never fits": ([24, 99], 6, 10, 4, 20),
        "fewer free than the watermark": ([1], 1, 10, 4, 20),
        "a watermark of a block and a half": ([32], 10, 15, 4, 10),
        "half a block of watermark": ([20], 5, 5, 4, 10),
        "everything is watermark": ([1, 1], 10, 10, 4, 100),
        "half of a thousand blocks": ([1992, 4, 4, 4], 1000, 1000, 4, 50),
        "29 percent of 100 blocks": ([285, 284, 1], 100, 100, 4, 29),
        "58 percent of 50 blocks": ([84], 49, 50, 4, 58),
        # 58 · 0.01 · 50, 29 / 100 · 100 and 25 / (100 / 44) are a little too small in floats
        "50 percent of 58 blocks": ([117, 116, 1], 58, 58, 4, 50),
        "100 percent of 29 blocks": ([1], 29, 29, 4, 100),
        "44 percent of 25 blocks": ([57, 56, 1], 25, 25, 4, 44),
        "nobody waits": ([], 5, 10, 4, 20),
        "blocks of one token": ([3, 2, 1], 6, 10, 1, 10),
        "blocks of three": ([3, 4, 1], 8, 10, 3, 10),
        f"{many} prompts": ([1] * many, many + 2, many + 9, 4, 1),
        f"a prompt of {far} tokens": ([far, 5], far, far, 2, 1),
        f"blocks of {far}": ([far, far + 1, 1], 4, 9, far, 0),
    }
    fresh = []
    for _ in range(6):
        n_blocks, size = rng.randrange(10, 300), rng.choice((8, 16, 20))
        prompts = [rng.randrange(1, n_blocks * size // 3) for _ in range(rng.randrange(2, 9))]
        free = rng.randrange(n_blocks // 2, n_blocks + 1)
        fresh.append((prompts, free, n_blocks, size, rng.choice((0, 1, 5, 10))))
    return [
        *(Case(name, args) for name, args in fixed.items()),
        *(Case(f"fresh {i + 1}", args, public=i < 2) for i, args in enumerate(fresh)),
    ]


EXERCISE = Exercise(
    id="paging-admit",
    title="Admit, wait, refuse",
    kind="kernel",
    points=3,
    minutes=8,
    entries=("admit",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "How many blocks must stay free, and how many does each prompt need?",
        (
            "Compare n_blocks − needed and n_free − needed with the watermark: the first says"
            " never, the second not now."
        ),
        "Never: note it and go on. Not now: stop. Else admit it, and take its blocks off n_free.",
    ),
    recall=(
        "Why does an admission leave some blocks free?",
        "Those that run take more as they grow; with none left, one of them must give way at once.",
    ),
    ranges={"percent": (0, 100), "block_size": (1, 4099)},
)
