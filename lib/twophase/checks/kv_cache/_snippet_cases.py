"""What kv_cache-snippet asks of a repaired cache, and of the inputs that expose the printed one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import torch

from twophase.checks import edges
from twophase.checks.answer import Answer, Handle, each, outcome, tell
from twophase.checks.compare import Tolerance, difference, plain
from twophase.checks.exercise import Case
from twophase.checks.kv_cache._data import SAME_NUMBERS, TELLING, in_turn, normal, telling
from twophase.checks.kv_cache._snippet_caches import FAULTS, Right
from twophase.checks.kv_cache._snippet_scripts import Script, problem

Tensor = torch.Tensor
Sizes = tuple[int, int, int, int, str]  # n_sequences, S_max, K, H, dtype
Block = tuple[list[int], Tensor, Tensor]
COMPARE = Tolerance(rtol=0.0, atol=0.0, dtype=True, why=SAME_NUMBERS)


def _play(make: Callable[..., Right], script: Script) -> list[Any]:
    """What a cache of the judge's own shows of a script, with numbers that differ from place to
    place."""
    cache, seen = make(script["n_sequences"], script["S_max"], 1, 2, script["dtype"]), []
    for i, (rows, T) in enumerate(script["blocks"]):
        block = torch.arange(1 + 1000 * i, 1 + 1000 * i + len(rows) * T * 2)
        block = block.view(len(rows), T, 1, 2)  # [n, T, 1, 2]
        block = block.to(getattr(torch, script["dtype"]))
        try:
            cache.update(list(rows), block, -block)
        except (ValueError, RuntimeError) as e:
            seen.append(type(e).__name__)
    return seen + [list(cache.read(b)) for b in range(script["n_sequences"])]


def observe(answer: Answer, case: Case) -> Any:
    """A case with a fault's name asks whether `expose` shows it; one with sizes and blocks runs the
    repaired cache, and reads it after every update, all of it at the end."""
    if isinstance(case.args[0], str):
        scripts = plain(answer.call("expose"))
        found = problem(scripts)
        fault = FAULTS[case.args[0]]
        shown = not found and any(
            difference(_play(fault, s), _play(Right, s), COMPARE) for s in scripts
        )
        return {"the inputs": found or "valid", "one shows it": shown}
    return in_turn([_run(answer.new("Cache", *sizes), sizes[0], b) for sizes, b in case.args])


def _run(
    cache: Handle, n_sequences: int, blocks: list[Block]
) -> Iterator[tuple[str, dict[str, Any]]]:
    for rows, k, v in blocks:
        said = outcome(lambda block=(rows, k, v): tell(cache, "update", *block))  # type: ignore[misc]
        raised = said["raised"] if isinstance(said, dict) and "raised" in said else []
        update = "refused" if "ValueError" in raised else raised[0] if raised else "taken"
        seen = {"the update is": update, f"read({rows[0]})": _pair(cache.call("read", rows[0]))}
        yield f"update of {rows} by {k.shape[1]}", seen
    found = each(cache, *(("read", b) for b in range(n_sequences)))
    yield "all of it", {f"read({b})": _pair(read) for b, read in enumerate(found)}


def _pair(found: Any) -> Any:
    return list(found) if isinstance(found, list | tuple) else found


FEW, STEPS, LONG = list(range(edges.past(8))), edges.past(64), edges.past(2048)
RUNS: tuple[tuple[str, Sizes, list[tuple[list[int], int]]], ...] = (  # updates: rows, T
    ("one sequence, a token, then 2", (1, 4, 1, 2, "float32"), [([0], 1), ([0], 2)]),
    ("two sequences, then the first alone", (2, 4, 1, 2, "float32"), [([0, 1], 2), ([0], 1)]),
    (
        "one token for the second, then one for both",
        (2, 5, 2, 3, "float32"),
        [([0, 1], 2), ([1], 1), ([0, 1], 1)],
    ),
    ("room for 3: filled, then one more", (1, 3, 2, 2, "float32"), [([0], 2), ([0], 1), ([0], 1)]),
    ("room for 3: 2 tokens, then 2 more", (1, 3, 2, 2, "float32"), [([0], 2), ([0], 2), ([0], 1)]),
    ("float64, and nothing for the first", (2, 6, 1, 4, "float64"), [([1], 2)]),
    (
        "room for 4: the second is full, then one for both, one for the first",
        (2, 4, 1, 3, "float32"),
        [([0, 1], 2), ([1], 2), ([0, 1], 1), ([0], 1)],
    ),
    (
        "room for 4: the first is full, then one for both, one for the second",
        (2, 4, 1, 3, "float32"),
        [([0, 1], 2), ([0], 2), ([0, 1], 1), ([1, 0], 1), ([1], 1)],
    ),
    (
        "room for 3: the one in the middle is full",
        (3, 3, 1, 2, "float32"),
        [([1], 3), ([0, 1, 2], 1), ([2, 0], 3), ([1], 1)],
    ),
    (
        "three sequences in any order",
        (3, 7, 2, 2, "float32"),
        [([0, 1, 2], 2), ([2, 0], 1), ([1], 3), ([0, 2], 2), ([2, 1], 2)],
    ),
    ("room for 3: 4 at once, then 3", (2, 3, 1, 2, "float32"), [([0, 1], 4), ([1], 3)]),
    (
        f"{len(FEW)} sequences; one after the other full",
        (len(FEW), 3, 1, 2, "float32"),
        [(FEW[::-1], 2), (FEW[5:], 1), (FEW, 1), (FEW[:5], 1)],
    ),
    (f"{STEPS} tokens, one by one", (1, STEPS, 1, 1, "float32"), [([0], 1)] * STEPS),
    (f"{LONG:,} tokens", (1, LONG, 1, 1, "float32"), [([0], LONG - 1), ([0], 2), ([0], 1)]),
)


def _blocks(
    rng: random.Random,
    sizes: Sizes,
    blocks: list[tuple[list[int], int]],
    made: Callable[..., Tensor] = normal,
) -> list[Block]:
    _, _, K, H, dtype = sizes

    def numbers(n: int, T: int) -> Tensor:
        return made(rng, n, T, K, H, dtype=dtype)

    return [(rows, numbers(len(rows), T), numbers(len(rows), T)) for rows, T in blocks]


def _small(rng: random.Random, *shape: int, dtype: str) -> Tensor:
    """Numbers around 2·10⁻⁷: not nothing, in float16 either."""
    return (1 + normal(rng, *shape, dtype=dtype).sigmoid()) * 2.0**-23


def cases(rng: random.Random) -> list[Case]:
    """Runs of the repaired cache (every dtype; any of the rows full; more sequences, places and
    reads than any constant; three caches in turn), then the faults that `expose` must show."""
    some: list[tuple[list[int], int]] = [([0, 1], 3), ([0], 1), ([1, 0], 2), ([1], 1)]
    same = (2, 6, 1, 4, "bfloat16")
    layers = same, (3, 4, 2, 3, "float32"), same
    return [
        *(Case(f"repaired: {n}", ((sizes, _blocks(rng, sizes, b)),)) for n, sizes, b in RUNS),
        *(
            Case(f"repaired: {dtype}, room for 6", ((sizes, _blocks(rng, sizes, some, telling)),))
            for dtype in TELLING
            for sizes in [(2, 6, 1, 4, dtype)]
        ),
        *(
            Case(
                f"repaired: {dtype}, numbers below a millionth",
                ((sizes, _blocks(rng, sizes, some, _small)),),
            )
            for dtype in TELLING
            for sizes in [(2, 6, 1, 4, dtype)]
        ),
        Case(
            "repaired: three layers, each with a cache of its own",
            tuple((sizes, _blocks(rng, sizes, some)) for sizes in layers),
        ),
        *(Case(f"exposed: {fault}", (fault,)) for fault in FAULTS),
    ]
