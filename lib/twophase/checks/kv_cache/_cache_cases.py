"""The scripts of kv_cache-cache, and what an answer shows of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import torch

from twophase.checks import edges
from twophase.checks.answer import Answer, Handle, each, refuses, tell
from twophase.checks.exercise import Case
from twophase.checks.kv_cache._data import TELLING, in_turn, normal, telling

Pair = tuple[torch.Tensor, torch.Tensor]
MANY, STEPS, LONG = edges.past(256), edges.past(64), edges.past(4096)


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """What each step showed: the keys and values returned, or whether an append that does not fit
    was refused; the length. A case with several scripts has a cache for each, used in turn."""
    return in_turn([_run(answer.new("KVCache", *sizes), sizes[1], s) for sizes, s in case.args])


def _run(
    cache: Handle, S_max: int, steps: list[Pair | None]
) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "a new cache", {"length": cache.get("length")}
    held = 0
    for step in steps:
        if step is None:
            tell(cache, "reset")
            yield "reset", {"length": cache.get("length")}
            held = 0
        elif held + step[0].shape[1] > S_max:
            refused = refuses(lambda step=step: cache.call("append", *step))  # type: ignore[misc]
            length = cache.get("length")
            yield "append without room", {"raises ValueError": refused, "length": length}
        else:
            held += step[0].shape[1]
            yield f"append {step[0].shape[1]}", _held(cache, step)


def _held(cache: Handle, step: Pair) -> dict[str, Any]:
    held, length = each(cache, ("append", *step), "length")
    if not isinstance(held, list | tuple) or len(held) != 2:
        return {"returned": "something that is not a pair (keys, values)"}
    return {"keys": held[0], "values": held[1], "length": length}


Sizes = tuple[int, int, int, int, str]  # B, S_max, K, H, dtype
SCRIPTS: tuple[tuple[str, Sizes, list[int]], ...] = (  # appends of so many tokens; 0 is a reset
    ("room for 3 tokens: one append of 2", (1, 3, 1, 2, "float32"), [2]),
    ("room for 3 tokens: append 1, 2 (now full)", (1, 3, 1, 2, "float32"), [1, 2]),
    ("room for 3: append 2, 1, then one too many", (1, 3, 2, 2, "float32"), [2, 1, 1]),
    ("room for 7: append 3, 1, 4 (no room), 2", (2, 7, 3, 5, "float32"), [3, 1, 4, 2]),
    ("room for 5: append 1, 4, reset, 3, 1", (3, 5, 2, 4, "float32"), [1, 4, 0, 3, 1]),
    ("room for 2: append 3, 1, 3, 1, reset, 2, 1", (1, 2, 3, 2, "float32"), [3, 1, 3, 1, 0, 2, 1]),
    ("reset while empty, then again and again", (1, 3, 1, 2, "float32"), [0, 2, 0, 3, 0, 1, 0, 2]),
    ("room for one token: append 1, 1, reset, 1", (2, 1, 1, 2, "float32"), [1, 1, 0, 1]),
    (f"{MANY} sequences, room for 4: append 3, 1", (MANY, 4, 1, 1, "float32"), [3, 1]),
    (f"{STEPS} steps of one token", (1, STEPS, 1, 1, "float32"), [1] * STEPS),
    ("room for 4,099: append 4,098, 2 (no room), 1", (1, LONG, 1, 1, "float32"), [LONG - 1, 2, 1]),
)


def _script(rng: random.Random, name: str, sizes: Sizes, blocks: list[int]) -> Case:
    return Case(name, ((sizes, _steps(rng, sizes, blocks, normal)),))


def _steps(
    rng: random.Random, sizes: Sizes, blocks: list[int], made: Callable[..., torch.Tensor]
) -> list[Pair | None]:
    B, _, K, H, dtype = sizes

    def pair(T: int) -> Pair:
        return made(rng, B, T, K, H, dtype=dtype), made(rng, B, T, K, H, dtype=dtype)

    return [pair(T) if T else None for T in blocks]


def cases(rng: random.Random) -> list[Case]:
    """Filled to the brim, overfilled, refilled; more sequences, steps and places than any constant;
    every dtype, also after a refusal and a reset; the caches of three layers, used in turn."""
    same = (2, 6, 1, 2, "float32")
    again, zeros = _steps(rng, same, [2], normal), (torch.zeros(2, 1, 1, 2),) * 2
    layers = (same, [2, 1, 3, 1]), ((2, 4, 3, 5, "bfloat16"), [1, 2, 0, 4]), (same, [1, 0, 3, 3])
    return [
        *(_script(rng, *script) for script in SCRIPTS),
        *(
            Case(f"{dtype}, room for 6: append 2, 4, 1 (no room), reset, 3", ((sizes, steps),))
            for dtype in TELLING
            for sizes in [(2, 6, 2, 3, dtype)]
            for steps in [_steps(rng, sizes, [2, 4, 1, 0, 3], telling)]
        ),
        Case("the same two tokens twice, and one of zeros", ((same, [*again, *again, zeros]),)),
        Case(
            "three layers, each with a cache of its own",
            tuple((sizes, _steps(rng, sizes, blocks, normal)) for sizes, blocks in layers),
        ),
    ]
