"""The cases of latent_attention-latent_cache: blocks that are appended, and what comes back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch

from twophase.checks import edges
from twophase.checks.answer import Answer, Handle, refuses
from twophase.checks.exercise import Case
from twophase.checks.kv_cache._data import in_turn, normal

Tensor = torch.Tensor
Sizes = tuple[int, int, int, int, float]  # B, S_max, R, rope_dim, theta


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """What each append returned, or whether one without room was refused. A case with several
    scripts has a cache for each, used in turn."""
    return in_turn([_run(answer.new("LatentCache", *s), s[1], b) for s, b in case.args])


def _run(cache: Handle, S_max: int, blocks: list[Tensor]) -> Iterator[tuple[str, dict[str, Any]]]:
    held = 0
    for block in blocks:
        T = block.shape[1]
        if held + T > S_max:
            refused = refuses(lambda block=block: cache.call("append", block))  # type: ignore[misc]
            yield f"append {T} without room", {"raises ValueError": refused}
            continue
        held += T
        back = cache.call("append", block)
        if not isinstance(back, list | tuple) or len(back) != 2:
            yield f"append {T}", {"returned": "something that is not a pair (latents, keys)"}
        else:
            yield f"append {T}", {"latents": back[0], "keys": back[1]}


MANY = LONG = edges.past(2048)
FAR = edges.past(8192)  # with keys 2 wide: their one angle, p itself, is exact in float32
SCRIPTS: tuple[tuple[str, Sizes, list[int]], ...] = (
    ("one token", (1, 3, 4, 2, 100.0), [1]),
    ("room for 5 tokens: append 2, 1, 2 (now full)", (1, 5, 6, 4, 10_000.0), [2, 1, 2]),
    ("room for 4: append 3, 2 (no room), 1", (2, 4, 6, 4, 10_000.0), [3, 2, 1]),
    ("room for 4: append 5 (no room), 1, 3, 1 (no room)", (1, 4, 3, 6, 50.0), [5, 1, 3, 1]),
    ("room for one token: append 1, 1", (1, 1, 2, 2, 100.0), [1, 1]),
    ("a key as wide as the latent", (2, 6, 4, 4, 100.0), [2, 1, 1]),
    ("a key wider than the latent", (1, 6, 3, 8, 1_000_000.0), [1, 3]),
    ("R = 512, rope_dim = 64", (1, 9, 512, 64, 10_000.0), [4, 1, 1]),
    (f"{MANY} sequences", (MANY, 3, 2, 2, 100.0), [2, 1]),
    (
        f"room for {LONG}: a block of {LONG - 2}, then 1, 1",
        (1, LONG, 2, 2, 100.0),
        [LONG - 2, 1, 1],
    ),
    (
        f"room for {LONG}: a token, then a block of {LONG - 2}, then 1",
        (2, LONG, 2, 4, 100.0),
        [1, LONG - 2, 1],
    ),
    (f"a key {2 * edges.past(1024)} wide", (1, 4, 2, 2 * edges.past(1024), 10_000.0), [1, 2]),
    (f"a latent {LONG} wide", (1, 4, LONG, 2, 10_000.0), [1, 2]),
    (f"room for {FAR}: a block of {FAR - 1}, then 1", (1, FAR, 1, 2, 10_000.0), [FAR - 1, 1]),
)


def _large(script: tuple[Sizes, list[Tensor]]) -> tuple[Sizes, list[Tensor]]:
    """The same, its first block of numbers that 16 bits hold badly or not at all: one token, at
    position 0, where no turn rounds."""
    sizes, (first, *others) = script
    assert first.shape[1] == 1
    return sizes, [first.sign() * 100_001.5, *others]


def cases(rng: random.Random) -> list[Case]:
    """One token, blocks, filled to the brim, refused and gone on with; widths in every order, more
    of each than any constant; two layers used in turn, alike and not; a fresh one."""

    def script(sizes: Sizes, blocks: list[int]) -> tuple[Sizes, list[Tensor]]:
        B, _, R, rope_dim, _ = sizes
        return sizes, [normal(rng, B, T, R + rope_dim) for T in blocks]

    layers = script((2, 6, 4, 2, 100.0), [2, 1, 3]), script((2, 4, 4, 2, 100.0), [1, 2, 1])
    unlike = script((2, 6, 5, 4, 100.0), [2, 1, 3]), script((1, 5, 3, 6, 50.0), [3, 2, 1])
    fresh = (2, 12, rng.randrange(5, 12), 2 * rng.randrange(2, 5), float(rng.randrange(50, 5000)))
    return [
        *(Case(name, (script(sizes, blocks),)) for name, sizes, blocks in SCRIPTS),
        Case("a token of numbers past 100,000", (_large(script((2, 4, 4, 2, 100.0), [1, 2])),)),
        Case("two layers, each with a cache of its own", layers),
        Case("two layers unlike in every size, and in theta", unlike),
        Case("fresh sizes", (script(fresh, [3, 1, 1, 4, 1]),), public=False),
    ]
