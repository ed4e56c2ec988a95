"""paging-preempt: put a sequence's cache aside, or compute it again."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks.compare import FORMULA
from twophase.checks.edges import one_changed, past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(
    n_tokens: int,
    block_size: int,
    token_bytes: float,
    link_bytes_per_s: float,
    token_flops: float,
    flops_per_s: float,
) -> dict[str, Any]:
    """The right answer."""
    places = -(-n_tokens // block_size) * block_size
    swap_s = 2 * places * token_bytes / link_bytes_per_s
    recompute_s = n_tokens * token_flops / flops_per_s
    cheaper = "recompute" if recompute_s <= swap_s else "swap"
    return {"swap_s": swap_s, "recompute_s": recompute_s, "cheaper": cheaper}


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "one_way",
    {"2 * places": "places"},
    "plausible",
    "What is put aside must come back: the bytes cross the link twice.",
)
_add(
    "tokens_not_blocks",
    {"-(-n_tokens // block_size) * block_size": "n_tokens"},
    "plausible",
    "Whole blocks are moved, the last one with its empty places.",
)
_add(
    "a_block_too_many",
    {"-(-n_tokens // block_size) * block_size": "(n_tokens // block_size + 1) * block_size"},
    "n // size + 1 for a number of blocks",
    "So many tokens that they fill their blocks need no block more.",
)
_add(
    "empty_places_recomputed",
    {"n_tokens * token_flops": "places * token_flops"},
    "plausible",
    "Empty places are moved, but nothing is computed for them: n_tokens of them are read again.",
)
_add(
    "one_token_recomputed",
    {"n_tokens * token_flops": "token_flops"},
    "plausible",
    "All keys and values are gone: every token of the sequence is read again, in one pass.",
)
_add(
    "equal_is_swapped",
    {"recompute_s <= swap_s": "recompute_s < swap_s"},
    "plausible",
    "Where both take as long, the task recomputes: that needs no room elsewhere.",
)
_add(
    "the_dearer",
    {
        '"recompute" if recompute_s <= swap_s else "swap"': (
            '"swap" if recompute_s <= swap_s else "recompute"'
        )
    },
    "plausible",
    "You name the one that takes longer.",
)


def cases(rng: random.Random) -> list[Case]:
    """Multiples of the block and their neighbors; both exactly as long; each argument changed;
    fast and slow links; short times, close together."""
    names = (
        "n_tokens",
        "block_size",
        "token_bytes",
        "link_bytes_per_s",
        "token_flops",
        "flops_per_s",
    )
    seven = dict(zip(names, (1000, 16, 524288.0, 6.4e10, 1.35e10, 4e14), strict=True))
    even = dict(zip(names, (64, 16, 2.0**20, 2.0**35, 2.0**34, 2.0**48), strict=True))
    assert 2 * even["token_bytes"] * even["flops_per_s"] == (
        even["token_flops"] * even["link_bytes_per_s"]
    )
    short = (1, 1, 50_000.0, 1e9, 1_000_005.0, 1e10)  # 100 microseconds
    shorter = (1, 1, 50.0, 1e9, 1_000_005.0, 1e13)  # 100 nanoseconds
    changed = one_changed(
        seven,
        n_tokens=past(4096),
        block_size=past(2048),
        token_bytes=100.0,
        link_bytes_per_s=1e9,
        token_flops=1e9,
        flops_per_s=1e13,
    )
    fixed = [
        ("7 billion parameters", seven),
        ("its blocks full", {**seven, "n_tokens": 1008}),
        ("one token more", {**seven, "n_tokens": 1009}),
        ("one token", {**seven, "n_tokens": 1}),
        ("blocks of one token", {**seven, "block_size": 1}),
        ("a block larger than the sequence", {**seven, "n_tokens": 100, "block_size": 128}),
        ("both exactly as long", even),
        ("a token less", {**even, "n_tokens": 63}),
        ("a slower link", {**even, "link_bytes_per_s": 2.0**34}),
        ("a faster link", {**even, "link_bytes_per_s": 2.0**36}),
        # twice a millionth: nearer than this the task promises that none comes
        ("a link faster by one in 524,288", {**even, "link_bytes_per_s": 2.0**35 + 2.0**16}),
        ("a link slower by one in 524,288", {**even, "link_bytes_per_s": 2.0**35 - 2.0**16}),
        # five millionths apart, and less than a nanosecond, or a picosecond: a slack that is no
        # share of the times themselves calls them equal
        ("a short while, swapped in a little less", dict(zip(names, short, strict=True))),
        ("a very short while, swapped in a little less", dict(zip(names, shorter, strict=True))),
        ("a million tokens", {**seven, "n_tokens": 1_000_000}),
        *changed,
    ]
    fresh = [
        dict(
            zip(
                names,
                (
                    rng.randrange(1, 9000),
                    rng.choice((8, 16, 24, 32)),
                    rng.uniform(1e3, 2e6),
                    rng.uniform(1e9, 5e11),
                    rng.uniform(1e8, 2e11),
                    rng.uniform(1e12, 2e15),
                ),
                strict=True,
            )
        )
        for _ in range(6)
    ]
    return [
        *(Case(name, kwargs=sizes) for name, sizes in fixed),
        *(Case(f"fresh {i + 1}", kwargs=s, public=i < 2) for i, s in enumerate(fresh)),
    ]


EXERCISE = Exercise(
    id="paging-preempt",
    title="Put aside, or compute again",
    kind="formula",
    points=3,
    minutes=8,
    entries=("give_way",),
    cases=cases,
    reference=reference,
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        "How many bytes are put aside, and how often do they cross the link?",
        "Whole blocks, there and back: 2 · ceil(n_tokens / block_size) · block_size · token_bytes.",
        "Computing again: n_tokens · token_flops / flops_per_s. Recompute unless that is longer.",
    ),
    recall=(
        "When is a preempted sequence better computed again than swapped out?",
        "When its tokens are computed in less time than their bytes need to cross the link twice.",
    ),
    ranges={"block_size": (1, 2053)},
)
