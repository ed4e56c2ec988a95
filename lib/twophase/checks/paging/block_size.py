"""paging-block_size: the block size for these texts, this pool and this machine."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions
from twophase.checks.paging import _pools as p
from twophase.checks.paging._pools import Pool

wrong = Misconceptions()

NEAR = 0.95  # of the best rate


def reference(lengths: list[int], sizes: list[int], pool: Pool) -> int:
    """The right answer."""
    return max(sizes, key=lambda size: p.rate(lengths, size, pool))


Score = Callable[[list[int], int, Pool], float]


def _by(seen: str, says: str) -> Callable[[Score], Score]:
    """The answer that takes the size with most of something else."""

    def record(score: Score) -> Score:
        def choose(lengths: list[int], sizes: list[int], pool: Pool) -> int:
            return max(sizes, key=lambda size: score(lengths, size, pool))

        wrong.add(score.__name__, choose, seen, says)
        return score

    return record


@_by("“smaller blocks waste less”", "You take the smallest: each look-up costs time.")
def the_smallest(lengths: list[int], size: int, pool: Pool) -> float:
    return -size


@_by(
    "“larger blocks are read faster”",
    "You take the largest: its empty places keep other sequences out.",
)
def the_largest(lengths: list[int], size: int, pool: Pool) -> float:
    return size


@_by("vLLM's default", "You take 16, or what is nearest. Count, for these texts and this machine.")
def sixteen(lengths: list[int], size: int, pool: Pool) -> float:
    return -abs(size - 16)


@_by(
    "plausible",
    "You take what lets most sequences run. Small blocks do, and their look-ups make each step"
    " longer.",
)
def most_sequences(lengths: list[int], size: int, pool: Pool) -> float:
    return len(p.running(lengths, size, pool))


@_by(
    "plausible",
    "You take the shortest step. It is short because few sequences fit: count tokens a second.",
)
def shortest_step(lengths: list[int], size: int, pool: Pool) -> float:
    found = p.running(lengths, size, pool)
    return -p.step_s(found, size, pool) if found else -1e9


@_by(
    "plausible",
    "You let sequences take as many places as they have tokens: they take whole blocks.",
)
def nothing_wasted(lengths: list[int], size: int, pool: Pool) -> float:
    found = p.running(lengths, 1, pool)
    return len(found) / p.step_s(found, size, pool)


@_by(
    "plausible",
    "You leave out what a step takes besides, other_s: the more run, the smaller each one's share.",
)
def the_rest_left_out(lengths: list[int], size: int, pool: Pool) -> float:
    found = p.running(lengths, size, pool)
    seconds = p.step_s(found, size, {**pool, "other_s": 0.0})
    return len(found) / seconds if seconds else 0.0


@_by(
    "plausible",
    "You look up one block of each sequence: every block is looked up in every step.",
)
def one_look_up_each(lengths: list[int], size: int, pool: Pool) -> float:
    found = p.running(lengths, size, pool)
    seconds = p.step_s(found, size, {**pool, "block_s": 0.0}) + len(found) * pool["block_s"]
    return len(found) / seconds


@_by(
    "averages for a workload",
    "You count with the mean length. What a last block wastes depends on each length.",
)
def of_the_mean_length(lengths: list[int], size: int, pool: Pool) -> float:
    mean = round(sum(lengths) / len(lengths))
    return p.rate([mean] * len(lengths), size, pool)


@_by(
    "first fit in a queue",
    "You skip sequences that do not fit. Here those behind them wait.",
)
def shorter_ones_overtake(lengths: list[int], size: int, pool: Pool) -> float:
    found: list[int] = []
    for n in lengths:
        if len(p.running([*found, n], size, pool)) > len(found):
            found.append(n)
    return len(found) / p.step_s(found, size, pool)


FACTS = ("the size", "within 5% of the best")


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """Whether the choice is one of the sizes, and nearly as quick as the best by brute force."""
    lengths, sizes, pool = case.args
    size = plain(answer.call("choose", *case.args))
    if type(size) is not int or size not in sizes:
        return dict(zip(FACTS, ("is none of those to choose from", False), strict=True))
    best = max(p.rate(lengths, one, pool) for one in sizes)
    return dict(zip(FACTS, ("valid", p.rate(lengths, size, pool) >= NEAR * best), strict=True))


def cases(rng: random.Random) -> list[Case]:
    """Short and long texts; look-ups for nothing and dear; pools that just hold them; fresh."""
    r = random.Random(16)
    return [
        *(Case(name, args) for name, args in p.fixed().items()),
        *(Case(f"texts {i + 1}", p.made(r)) for i in range(6)),
        *(Case(f"fresh {i + 1}", p.made(rng), public=False) for i in range(4)),
    ]


EXERCISE = Exercise(
    id="paging-block_size",
    title="Which block size",
    kind="judgement",
    points=5,
    minutes=15,
    entries=("choose",),
    cases=cases,
    observe=observe,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Try every size. How many sequences run, and how long does a step take?",
        (
            "The pool has pool_bytes // (size · token_bytes) blocks; each sequence takes"
            " ceil(n / size) of them, in order, until one does not fit."
        ),
        (
            "Seconds: other_s, the tokens' bytes over bytes_per_s, and block_s for each block."
            " Tokens a second: how many run, over these seconds."
        ),
    ),
    recall=(
        "What makes blocks too small, and what too large?",
        "Small ones: a look-up each. Large ones: empty places in every last block.",
    ),
)
