"""The scripts of kv_cache-ragged, and what an answer shows of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch

from twophase.checks import edges
from twophase.checks.answer import Answer, Handle, refuses, tell
from twophase.checks.compare import plain
from twophase.checks.exercise import Case
from twophase.checks.kv_cache._data import in_turn, normal, telling

Append = tuple[torch.Tensor, torch.Tensor, list[int]]
Step = Append | int  # or the sequence to free
MANY, LONG = edges.past(32), edges.past(2048)


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """Each append: the lengths returned and what lies within them, or whether it was refused.
    Nothing behind a length counts. A case with several scripts has a cache for each, used in
    turn."""
    return in_turn([_run(answer.new("RaggedKVCache", *s), s, steps) for s, steps in case.args])


def _run(
    cache: Handle, sizes: tuple[int, int, int, int], steps: list[Step]
) -> Iterator[tuple[str, dict[str, Any]]]:
    B, S_max = sizes[:2]
    lengths = [0] * B
    for step in steps:
        if isinstance(step, int):
            tell(cache, "free", step)
            lengths[step] = 0
            yield f"free {step}", {}
            continue
        after = [n + new for n, new in zip(lengths, step[2], strict=True)]
        if max(after) > S_max:
            refused = refuses(lambda step=step: cache.call("append", *step))  # type: ignore[misc]
            yield f"append {step[2]} without room", {"raises ValueError": refused}
        else:
            lengths = after
            yield f"append {step[2]}", _held(cache.call("append", *step), lengths)


def _held(found: Any, lengths: list[int]) -> dict[str, Any]:
    """The valid part of each sequence, cut by the judge's own lengths."""
    if not isinstance(found, list | tuple) or len(found) != 3:
        return {"append returned": "something that is not (keys, values, lengths)"}
    keys, values, told = found
    told = plain(told)
    if isinstance(told, list) and any(isinstance(n, float | bool) for n in told):
        return {"append returned": "lengths that are not whole numbers (ints or an integer tensor)"}
    if not all(
        isinstance(x, torch.Tensor) and x.ndim == 4 and len(x) == len(lengths)
        for x in (keys, values)
    ):
        return {"append returned": "keys and values that are not tensors [B, S, K, H]"}
    return {
        "lengths": told,
        "keys": [keys[b, :n] for b, n in enumerate(lengths)],
        "values": [values[b, :n] for b, n in enumerate(lengths)],
    }


Sizes = tuple[int, int, int, int]  # B, S_max, K, H
Script = tuple[str, Sizes, list[list[int] | int]]
SCRIPTS: tuple[Script, ...] = (  # appends by their n_new; a whole number frees that sequence
    ("two prompts of 2 and 1 tokens", (2, 5, 1, 2), [[2, 1]]),
    ("prompts of 1 and 3, then one token each", (2, 6, 1, 2), [[1, 3], [1, 1]]),
    ("prompts of 3, 1, 2; then 0, 2, 1 more", (3, 5, 2, 3), [[3, 1, 2], [0, 2, 1]]),
    ("nothing new for anybody, then one each", (2, 5, 1, 2), [[0, 0], [1, 1], [0, 0], [0, 1]]),
    ("room for 4: the second is full, to the last place", (2, 4, 2, 3), [[1, 3], [1, 1]]),
    ("room for 4: the first gets 4, and one more", (2, 4, 1, 2), [[4, 1], [1, 1], [0, 3]]),
    (
        "room for 4: the last overflows, then all but it go on",
        (3, 4, 1, 3),
        [[1, 2, 4], [1, 1, 1], [2, 1, 0]],
    ),
    (
        "room for 4: the one in the middle overflows, and is not the longest",
        (3, 4, 1, 2),
        [[3, 2, 1], [1, 3, 1], [1, 1, 1]],
    ),
    ("a sequence ends and another takes its slot", (2, 6, 2, 2), [[4, 2], 0, [3, 1], [1, 1]]),
    (
        "every slot is freed: the last, one that is empty, one twice",
        (3, 4, 1, 2),
        [1, [4, 0, 4], 2, 1, [0, 4, 3], 0, 0, [4, 0, 1], 1, [0, 2, 0]],
    ),
    (
        "one sequence: 2 tokens, none, one, one too many; then the next",
        (1, 3, 1, 2),
        [[2], [0], [1], [1], 0, [3]],
    ),
    (
        "all of it",
        (3, 8, 3, 5),
        [[3, 5, 1], [1, 0, 2], [2, 4, 1], 1, [1, 7, 1], [2, 1, 1], [1, 1, 4]],
    ),
    ("room for 3: 4 at once for one that is empty", (2, 3, 1, 2), [[1, 4], [1, 3], 1, [1, 4]]),
    (
        f"{MANY} sequences; the last is full, and freed",
        (MANY, 3, 1, 2),
        [[*[1, 2, 0, 2] * (MANY // 4), 3], [1] * MANY, MANY - 1, [1] * MANY],
    ),
    (f"a sequence of {LONG:,} tokens, freed", (1, LONG, 1, 2), [[LONG - 1], [2], [1], 0, [9]]),
)


def _steps(rng: random.Random, sizes: Sizes, steps: list[list[int] | int]) -> list[Step]:
    """Every second append is padded by a token more than the longest. The last one starts with a
    token of zeros, which is a token like any other."""
    B, _, K, H = sizes

    def made(i: int, step: list[int] | int) -> Step:
        if isinstance(step, int):
            return step
        T = max(1, max(step) + 1 - i % 2)
        if i == len(steps) - 1:
            return (
                telling(rng, B, T, K, H, dtype="float32"),
                telling(rng, B, T, K, H, dtype="float32"),
                step,
            )
        return normal(rng, B, T, K, H), normal(rng, B, T, K, H), step

    return [made(i, step) for i, step in enumerate(steps)]


def _mostly_padding(rng: random.Random) -> tuple[Sizes, list[Step]]:
    """Blocks eight times as long as the room, of which the real tokens just fill it."""
    sizes = B, _, K, H = 2, 4, 1, 2
    block = [B, 8 * 4, K, H]
    news = [4, 2], [0, 1], [0, 1]
    return sizes, [(normal(rng, *block), normal(rng, *block), n_new) for n_new in news]


def cases(rng: random.Random) -> list[Case]:
    """Prompts of different lengths, a sequence without a new token, an overflow in the first, a
    middle and the last one, slots used again; more sequences and places than any constant; the
    caches of three layers, used in turn."""
    layers: list[tuple[Sizes, list[list[int] | int]]] = [
        ((2, 5, 1, 2), [[2, 1], [1, 3], 0, [2, 1]]),
        ((3, 4, 2, 3), [[1, 0, 4], [0, 1, 1], 2, [1, 1, 1]]),
        ((2, 5, 1, 2), [[1, 4], 1, [2, 2], [2, 3]]),
    ]
    return [
        *(Case(name, ((sizes, _steps(rng, sizes, steps)),)) for name, sizes, steps in SCRIPTS),
        Case("room for 4: blocks of 32, all but 4 and 2 of it padding", (_mostly_padding(rng),)),
        Case(
            "three layers, each with a cache of its own",
            tuple((sizes, _steps(rng, sizes, steps)) for sizes, steps in layers),
        ),
    ]
