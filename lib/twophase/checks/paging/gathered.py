"""paging-gathered: the bytes that attention moves if it reads blocks in place, and if it gathers
them first."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks.compare import EXACT
from twophase.checks.edges import one_changed, past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(
    lengths: list[int], block_size: int, K: int, H: int, bytes_per_number: int
) -> dict[str, int]:
    """The right answer."""
    token_bytes = 2 * K * H * bytes_per_number
    tokens = sum(lengths)
    padded = len(lengths) * -(-max(lengths) // block_size) * block_size
    return {
        "in_place": tokens * token_bytes,
        "one_by_one": 3 * tokens * token_bytes,
        "padded": 3 * padded * token_bytes,
    }


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "keys_only",
    {"2 * K": "K"},
    "plausible",
    "A token has a key and a value: twice K·H numbers.",
)
_add(
    "the_copy_is_free",
    {"3 * tokens": "tokens", "3 * padded": "padded"},
    "“gathering is only indexing”",
    "A copy reads what it copies and writes it; then attention reads the copy: three times in all.",
)
_add(
    "the_copy_is_written_only",
    {"3 * tokens": "2 * tokens", "3 * padded": "2 * padded"},
    "plausible",
    "You count two of three: the blocks are read, the copy is written, and the copy is read.",
)
_add(
    "whole_blocks_in_place",
    {"tokens = sum(lengths)": "tokens = sum(-(-n // block_size) * block_size for n in lengths)"},
    "plausible",
    "Read in place, or copied one by one, only places that hold tokens are touched, not the rest of"
    " the last block.",
)
_add(
    "padded_to_the_token",
    {"-(-max(lengths) // block_size) * block_size": "max(lengths)"},
    "plausible",
    "The padded copy takes whole blocks: each row has as many as the longest sequence fills.",
)
_add(
    "not_padded",
    {
        "len(lengths) * -(-max(lengths) // block_size) * block_size": (
            "sum(-(-n // block_size) * block_size for n in lengths)"
        )
    },
    "plausible",
    "One tensor has rows of one length: every sequence takes as many blocks as the longest.",
)
_add(
    "padding_not_read_again",
    {"3 * padded * token_bytes": "(2 * padded + tokens) * token_bytes"},
    "plausible",
    "Attention reads the padded copy whole; a mask hides what it has read.",
)


def cases(rng: random.Random) -> list[Case]:
    """Equal and uneven lengths, multiples of the block and their neighbors, one sequence, many;
    each argument changed; fresh ones."""
    base: dict[str, Any] = {
        "lengths": [5, 8, 3],
        "block_size": 4,
        "K": 2,
        "H": 8,
        "bytes_per_number": 2,
    }
    changed = one_changed(
        base,
        lengths=[past(4096)] * 3,
        block_size=past(2048),
        K=past(64),
        H=past(256),
        bytes_per_number=4,
    )
    fixed = [
        ("three sequences", base),
        ("the longest fills its blocks", {**base, "lengths": [8, 7, 1]}),
        ("one token more", {**base, "lengths": [9, 7, 1]}),
        ("one sequence", {**base, "lengths": [6]}),
        ("one token", {**base, "lengths": [1]}),
        ("equal ones, multiples of the block", {**base, "lengths": [8, 8]}),
        ("the longest last", {**base, "lengths": [1, 2, 30]}),
        ("blocks of one", {**base, "block_size": 1}),
        ("numbers of one byte", {**base, "bytes_per_number": 1}),
        ("blocks of 12", {**base, "block_size": 12, "lengths": [13, 30, 2]}),
        ("7 billion parameters", dict(zip(base, ([2048] * 16, 16, 32, 128, 2), strict=True))),
        (
            "7 billion parameters, 64 sequences",
            dict(zip(base, ([2051] * 64, 16, 32, 128, 2), strict=True)),
        ),
        # 141 million bytes for a sequence, no number of float32
        (
            "no power of two",
            dict(zip(base, ([past(4096)] * 3, 3, past(64), past(256), 1), strict=True)),
        ),
        # no number of float32: a sum in it loses the last token
        ("16,777,217 tokens", dict(zip(base, ([2**24 + 1], 1, 1, 1, 2), strict=True))),
        (f"{past(256)} sequences", {**base, "lengths": [3, 9] * past(256)}),
        *changed,
    ]
    fresh = [
        {
            "lengths": [rng.randrange(1, 5000) for _ in range(rng.randrange(1, 40))],
            "block_size": rng.choice((8, 16, 24, 64)),
            "K": rng.randrange(1, 33),
            "H": rng.choice((64, 80, 128)),
            "bytes_per_number": rng.choice((1, 2, 4)),
        }
        for _ in range(5)
    ]
    return [
        *(Case(name, kwargs=sizes) for name, sizes in fixed),
        *(Case(f"fresh {i + 1}", kwargs=s, public=i < 2) for i, s in enumerate(fresh)),
    ]


EXERCISE = Exercise(
    id="paging-gathered",
    title="Predict what gathering costs",
    kind="predict",
    points=3,
    minutes=8,
    entries=("moved_bytes",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "How many bytes are the key and the value of one token?",
        "A copy is read, written, and read again. In place everything is read once.",
        (
            "Padded: as many rows as sequences, each of ceil(longest / block_size) blocks, and"
            " three times that."
        ),
    ),
    recall=(
        "Attention gathers its blocks into a copy first. How many times the bytes?",
        "Three: it reads the blocks, writes the copy, and reads the copy.",
    ),
    ranges={"bytes_per_number": (1, 4), "block_size": (1, 2053)},
)
