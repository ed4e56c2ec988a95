"""What local_attention-prefill asks of a repaired ring, and of the inputs that expose the printed
one."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks import edges
from twophase.checks.answer import Answer
from twophase.checks.compare import plain
from twophase.checks.exercise import Case
from twophase.checks.local_attention._prefill_rings import FAULTS, Right

Input = dict[str, Any]
MOST_WINDOW, MOST_BLOCK, MOST_BLOCKS, MOST_INPUTS = 16, 40, 20, 10
WIDEST, LONGEST = 200, 2_000  # a ring's window, and tokens of a block, as the task says


def problem(inputs: Any) -> str:
    """Why the inputs are not valid, in one sentence; empty if they are."""
    if not isinstance(inputs, list | tuple) or not 1 <= len(inputs) <= MOST_INPUTS:
        return "expose() must return a list of 1 to 10 inputs"
    for one in inputs:
        if not isinstance(one, dict) or set(one) != {"window", "blocks"}:
            return 'an input is a dict with the keys "window" and "blocks"'
        if not _between(1, one["window"], MOST_WINDOW):
            return '"window" must be a whole number from 1 to 16'
        blocks = one["blocks"]
        if not isinstance(blocks, list | tuple) or not 1 <= len(blocks) <= MOST_BLOCKS:
            return '"blocks" must be a list of 1 to 20 lengths'
        if not all(_between(1, T, MOST_BLOCK) for T in blocks):
            return "a block has from 1 to 40 tokens, a whole number"
    return ""


def _between(low: int, value: Any, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _play(make: type[Right], one: Input) -> list[list[list[int]]]:
    """What the tokens see, each list sorted; all tokens of an input differ."""
    ring, seen, start = make(one["window"]), [], 0
    for T in one["blocks"]:
        seen.append([sorted(row) for row in ring.feed(list(range(start, start + T)))])
        start += T
    return seen


def observe(answer: Answer, case: Case) -> Any:
    """A case with a fault's name asks whether `expose` shows it; one with scripts feeds repaired
    rings, one for each script, in turn."""
    if isinstance(case.args[0], str):
        inputs = plain(answer.call("expose"))
        found = problem(inputs)
        fault = FAULTS[case.args[0]]
        shown = not found and any(_play(fault, one) != _play(Right, one) for one in inputs)
        return {"the inputs": found or "valid", "one shows it": shown}
    rings = [(answer.new("Ring", window), blocks) for window, blocks in case.args]
    seen: dict[str, Any] = {}
    for number in range(max(len(blocks) for _, blocks in rings)):
        for layer, (ring, blocks) in enumerate(rings):
            if number < len(blocks):
                where = f"layer {layer + 1}, " if len(rings) > 1 else ""
                rows = plain(ring.call("feed", blocks[number]))
                seen[f"{where}block {number + 1}"] = _in_any_order(rows)
    return seen


def _in_any_order(rows: Any) -> Any:
    """The tokens of each list sorted, where they are lists of whole numbers; else as they came."""
    if not isinstance(rows, list | tuple):
        return rows
    return [
        sorted(row)
        if isinstance(row, list | tuple) and all(type(token) is int for token in row)
        else row
        for row in rows
    ]


SCRIPTS: tuple[tuple[int, list[int]], ...] = (  # window, lengths of the blocks
    (3, [2]),
    (3, [1, 1, 1, 1, 1]),
    (2, [3]),
    (3, [2, 2]),
    (4, [4, 1, 1]),
    (4, [5, 1, 1]),
    (4, [3, 1, 1, 1]),
    (4, [9, 4, 5, 1]),
    (4, [1, 4, 3, 3, 1]),
    (4, [8, 4]),
    (5, [2, 3, 4, 5, 6]),
    (1, [1, 3, 1, 2]),
    (2, [1, 1, 2, 1]),
    (7, [4, 4, 4, 4]),
    (7, [6, 2, 7, 8, 1]),
    (edges.past(64), [edges.past(64) - 1, 3, edges.past(64)]),
    (5, [LONGEST, 1, 2]),
    (WIDEST, [WIDEST + 100, 1]),
)


def cases(rng: random.Random) -> list[Case]:
    """Repaired rings: prompts, steps and chunks around a window's length, a window of one, more
    tokens than any table, equal tokens, three rings in turn, a random script; then the faults."""

    def blocks(lengths: list[int]) -> list[list[int]]:
        return [[rng.randrange(10**6) for _ in range(T)] for T in lengths]

    window = rng.randrange(4, 9)
    drawn = [rng.choice((1, rng.randrange(2, 14))) for _ in range(8)]
    scripts = [*SCRIPTS, (window, drawn)]
    layers = (3, [2, 1, 4, 1]), (5, [1, 6, 1, 1]), (3, [1, 3, 1, 2])
    return [
        *(
            Case(f"repaired: window {w}, blocks of {', '.join(map(str, n))}", ((w, blocks(n)),))
            for w, n in scripts
        ),
        Case("repaired: equal tokens", ((3, [[7, 7], [7, 7], [7], [0, 7, 7, 0]]),)),
        Case("repaired: three layers", tuple((w, blocks(n)) for w, n in layers)),
        *(Case(f"exposed: {fault}", (fault,)) for fault in FAULTS),
    ]
