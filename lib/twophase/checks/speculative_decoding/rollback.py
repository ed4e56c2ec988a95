"""speculative_decoding-rollback: what stays of a pass in a cache whose rows are of any length."""

from __future__ import annotations

import random

import torch

from twophase.checks.compare import Tolerance
from twophase.checks.edges import crossed, past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Tensor = torch.Tensor


def reference(cache: Tensor, lengths: list[int], kept: list[list[int]]) -> tuple[Tensor, list[int]]:
    """The right answer."""
    new = torch.zeros_like(cache)  # [B, S_max, H]
    for b, (n, places) in enumerate(zip(lengths, kept, strict=True)):
        rows = [*range(n), *(n + place for place in places)]
        new[b, : len(rows)] = cache[b, rows]
    return new, [n + len(places) for n, places in zip(lengths, kept, strict=True)]


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "first_ones_kept",
    {"*(n + place for place in places)": "*range(n, n + len(places))"},
    "rollback by length, as a chain needs it",
    "You keep the first few that were written. In a tree the kept tokens are not the first ones:"
    " move each to its new place.",
)
_add(
    "places_from_the_start",
    {"n + place for place in places": "place for place in places"},
    "plausible",
    "You count places from the start of the row. Place 0 is the first token that this pass wrote,"
    " behind the row's own length.",
)
_add(
    "longest_length_for_all",
    {
        "rows = [*range(n)": "n = max(lengths); rows = [*range(n)",
        "[n + len(places) for n, places": "[max(lengths) + len(places) for n, places",
    },
    "padded batches",
    "You take all rows to be as long as the longest: each has its own length.",
)
_add(
    "shortest_kept_for_all",
    {
        "*(n + place for place in places)": (
            "*(n + place for place in places[: min(map(len, kept))])"
        ),
        "[n + len(places) for": "[n + min(map(len, kept)) for",
    },
    "batches cut to what all sequences accepted",
    "You cut every sequence to what the one that kept least has. Each keeps its own.",
)
_add(
    "refused_left_behind",
    {"torch.zeros_like(cache)": "cache.clone()"},
    "plausible",
    "What was refused is still behind the new end: the task wants zeros there.",
)
_add(
    "length_of_the_pass",
    {"[n + len(places) for": "[n + (places[-1] + 1 if places else 0) for"},
    "plausible",
    "The new length counts the tokens that stay, not up to the last of them.",
)
_add(
    "moved_and_not_cut",
    {"[n + len(places) for n, places": "[n for n, places"},
    "plausible",
    "The lengths are still the old ones: add what each sequence keeps.",
)


def _case(
    rng: random.Random,
    lengths: list[int],
    kept: list[list[int]],
    S_max: int,
    H: int,
    dtype: torch.dtype = torch.float32,
    public: bool = True,
    name: str = "",
) -> Case:
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    shape = len(lengths), S_max, H
    cache = torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5
    called = name or f"lengths {lengths}, kept {kept}"
    return Case(called, (cache.to(dtype), lengths, kept), public=public)


def _one_other() -> list[Case]:
    """The same but for one argument."""
    rng = random.Random(6)
    one = _case(rng, [3, 1], [[0, 2], [1]], 6, 2)
    other = _case(rng, [2, 2], [[1], [0, 2]], 6, 2)
    return crossed(one, other, "other numbers", "other lengths", "others kept")


def cases(rng: random.Random) -> list[Case]:
    """Chains and ways down a tree; nothing kept, everything kept; rows of one length and of many;
    full to the last place; both ends of the widths."""
    fixed = random.Random(14)
    deep = past(256)
    unwritten = torch.tensor([0.5, 1.5, 2.5, 3.5, torch.nan, torch.inf]).reshape(1, 6, 1)
    # beyond the largest number of float16, and below its smallest
    bfloats = torch.tensor([1e5, 1e-9, -1e-9, 7.0, -1e5], dtype=torch.bfloat16).reshape(1, 5, 1)
    many = [i % 5 for i in range(past(256))]
    return [
        _case(fixed, [2], [[0, 1]], 6, 3),
        _case(fixed, [2], [[0, 2]], 6, 3),
        # of the same sizes: whoever keeps results by shape and lengths is wrong here
        _case(fixed, [2], [[0, 2]], 6, 3, name="lengths [2], kept [[0, 2]], other numbers"),
        _case(fixed, [3, 1], [[0], [0, 1, 2]], 6, 2),
        _case(fixed, [3, 1], [[0, 1, 3], [0, 2]], 7, 2),
        *_one_other(),
        _case(fixed, [1, 4, 2], [[0], [0, 2], [0, 1]], 8, 1),
        _case(fixed, [2, 3], [[], [0, 1]], 6, 2, name="an ended sequence, which keeps nothing"),
        _case(fixed, [2, 2], [[], []], 4, 2, name="nothing is kept"),
        _case(fixed, [0, 2], [[0, 1], [1]], 5, 2, name="an empty row, and a first token refused"),
        _case(fixed, [1], [[4]], 6, 2, name="the last of five alone"),
        _case(fixed, [2, 1], [[0, 1, 2, 3], [1, 3]], 6, 2, name="full to the last place"),
        _case(fixed, [2, 4], [[0, 2], [1]], 8, 2, torch.float16, name="float16"),
        _case(fixed, [2, 4], [[0, 2], [1]], 8, 2, torch.bfloat16, name="bfloat16"),
        Case("bfloat16, numbers that float16 does not have", (bfloats, [2], [[0, 2]])),
        _case(fixed, [2, 4], [[0, 2], [1]], 8, 2, torch.float64, name="float64"),
        _case(fixed, many, [[0, 2][: i % 3] for i in range(len(many))], 9, 2, name="257 sequences"),
        _case(fixed, [deep, 3], [[0, 3, 300], [2, 9]], deep + 302, 2, name="257 tokens and more"),
        _case(fixed, [2], [[0, 2]], 6, past(128), name="wide rows"),
        _case(
            fixed,
            [2, 1],
            [[2 * i for i in range(100)], [5]],
            202,
            2,
            name="a hundred tokens kept, and one",
        ),
        Case("a place that nobody wrote holds NaN", (unwritten, [1], [[0, 2]])),
        _case(
            rng,
            [rng.randrange(1, 5) for _ in range(3)],
            [[0, 2, 3], [1], [0, 1]],
            10,
            4,
            name="fresh 1",
        ),
        _case(
            rng,
            [rng.randrange(1, 5) for _ in range(4)],
            [[0], [0, 3], [], [2, 3]],
            9,
            3,
            public=False,
            name="fresh 2",
        ),
    ]


EXERCISE = Exercise(
    id="speculative_decoding-rollback",
    title="What stays in the cache",
    kind="kernel",
    points=4,
    minutes=15,
    entries=("keep",),
    cases=cases,
    reference=reference,
    compare=Tolerance(rtol=0.0, atol=0.0, dtype=True, why="numbers are moved, not computed"),
    misconceptions=tuple(wrong),
    hints=(
        "For one sequence: which rows of its cache stay, in order? Its first lengths[b], and then?",
        "Row lengths[b] + place for each place in kept[b]: these move up to lengths[b] and on.",
        (
            "Begin with torch.zeros_like(cache) and write the rows that stay to its front; the new"
            " length is lengths[b] + len(kept[b])."
        ),
    ),
    recall=(
        "Why is cutting a cache to a shorter length not enough after a tree was verified?",
        "The kept tokens need not be the first that were written: they must move together.",
    ),
)
