"""The scripts of local_attention-ring, and what an answer shows of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import torch

from twophase.checks import edges
from twophase.checks.answer import Answer, Handle, each
from twophase.checks.exercise import Case

Pair = tuple[torch.Tensor, torch.Tensor]
Sizes = tuple[int, int, int, int]  # B, window, K, H
SLOTS = "length", "keys", "values"
# asked for twice: nothing changes by being looked at
TWICE = *SLOTS, *(f"{slot}, asked again" for slot in SLOTS)
MOST, LONGEST = 1_000, 2_000  # the ends that the task names, for the window and for one append


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """What each append returned, and what then lies in the slots. A case with several scripts has a
    ring for each, used in turn, as the layers of a model use theirs."""
    runs = [_run(answer.new("RingCache", *sizes), blocks) for sizes, blocks in case.args]
    seen: dict[str, Any] = {}
    for number, steps in enumerate(zip_longest(*runs)):
        for layer, step in enumerate(steps):
            if step is not None:
                where = f"layer {layer + 1}, step {number}" if len(runs) > 1 else f"step {number}"
                seen[f"{where}: {step[0]}"] = step[1]
    return seen


def _run(ring: Handle, blocks: list[Pair]) -> Iterator[tuple[str, Any]]:
    yield "a new ring", dict(zip(TWICE, each(ring, *SLOTS, *SLOTS), strict=True))
    for k, v in blocks:
        found, *slots = each(ring, ("append", k, v), *SLOTS, *SLOTS)
        pair = list(found) if isinstance(found, list | tuple) else found
        shown = dict(zip(TWICE, slots, strict=True))
        yield f"append {k.shape[1]}", {"returned": pair, **shown}


SCRIPTS: tuple[tuple[str, Sizes, list[int]], ...] = (
    ("window 3: one append of 2", (1, 3, 1, 2), [2]),
    ("window 3: append 1, 1, 1, 1, 1", (1, 3, 1, 2), [1, 1, 1, 1, 1]),
    ("window 4: a prompt of 6, then 1, 1", (1, 4, 1, 2), [6, 1, 1]),
    ("window 4: a prompt of 3, then 1, 1, 1", (1, 4, 1, 2), [3, 1, 1, 1]),
    ("window 4: a prompt of 4, then 1, 1", (1, 4, 1, 2), [4, 1, 1]),
    ("window 4: a prompt of 5, then 1, 1", (1, 4, 1, 2), [5, 1, 1]),
    ("window 5: chunks of 3, 3, 3, 3", (2, 5, 2, 3), [3, 3, 3, 3]),
    ("window 5: chunks of 4, 5, 2", (1, 5, 1, 2), [4, 5, 2]),
    ("window 5: 1, then 4, then 6, then 1", (1, 5, 2, 2), [1, 4, 6, 1]),
    ("window 5: chunks of 12, 11, 1, 10", (2, 5, 1, 2), [12, 11, 1, 10]),
    ("window 1: append 1, 2, 1", (1, 1, 1, 2), [1, 2, 1]),
    ("window 2: append 1, 1, 3, 2, 1", (2, 2, 1, 2), [1, 1, 3, 2, 1]),
    (f"window 3, {edges.past(64)} steps of one token", (1, 3, 1, 1), [1] * edges.past(64)),
    (f"{edges.past(8)} sequences", (edges.past(8), 3, 1, 1), [2, 2, 1]),
    ("many heads", (1, 3, edges.past(8), 2), [2, 2, 1]),
    (f"window {MOST:,}: {MOST - 1:,}, then 3, then {MOST:,}", (1, MOST, 1, 1), [MOST - 1, 3, MOST]),
    (f"window 7: {LONGEST:,} at once, then 1, 9", (1, 7, 1, 1), [LONGEST, 1, 9]),
    (f"window 7: {LONGEST:,} three times, then 1", (1, 7, 1, 1), [LONGEST] * 3 + [1]),
    (f"window 1: {LONGEST:,}, then 1", (1, 1, 1, 1), [LONGEST, 1]),
)


def _blocks(rng: random.Random, sizes: Sizes, lengths: list[int]) -> list[Pair]:
    """Standard normal numbers: no two places alike, so that a wrong slot shows."""
    B, _, K, H = sizes
    generator = torch.Generator().manual_seed(rng.getrandbits(32))
    return [
        (
            torch.randn(B, T, K, H, generator=generator),
            torch.randn(B, T, K, H, generator=generator),
        )
        for T in lengths
    ]


def cases(rng: random.Random) -> list[Case]:
    """Steps, prompts and chunks around a window's length; windows of one and of a thousand; more
    sequences, steps, heads and tokens than any constant; the same tokens twice; three rings in
    turn; a random script."""
    same = (1, 3, 1, 2)
    again = _blocks(rng, same, [2])
    full, full_again, one = _blocks(rng, same, [3, 3, 1])
    layers = (same, [2, 1, 4, 1]), ((2, 5, 2, 3), [1, 6, 1, 1]), (same, [1, 3, 1, 2])
    sizes = (2, rng.randrange(4, 9), 2, 2)
    lengths = [rng.choice((1, rng.randrange(2, 14))) for _ in range(9)]
    first, *others = (
        Case(n, ((sizes, _blocks(rng, sizes, lengths)),)) for n, sizes, lengths in SCRIPTS
    )
    return [
        first,
        # early, while the guard of arguments keeps what it gave: is the second block still whole?
        Case(
            "window 3: blocks of 3 and 3, then 1, then the second block again",
            ((same, [full, full_again, one, full_again]),),
        ),
        *others,
        Case("the same two tokens, three times over", ((same, [*again, *again, *again]),)),
        Case(
            "three layers, each with a ring of its own",
            tuple((sizes, _blocks(rng, sizes, lengths)) for sizes, lengths in layers),
        ),
        Case(
            f"window {sizes[1]}: chunks of {', '.join(map(str, lengths))}",
            ((sizes, _blocks(rng, sizes, lengths)),),
            public=False,
        ),
    ]
