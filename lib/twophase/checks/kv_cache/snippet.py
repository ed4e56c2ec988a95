"""kv_cache-snippet: a cache class as it circulates, its three faults exposed and repaired. The
notebook prints `Printed`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from twophase.checks.answer import Answer, outcome, tell
from twophase.checks.compare import Tolerance, difference, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.kv_cache import _snippet_caches as caches
from twophase.checks.kv_cache._data import SAME_NUMBERS, normal
from twophase.checks.kv_cache._snippet_caches import FAULTS, Right
from twophase.checks.kv_cache._snippet_scripts import Script, problem
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

Tensor = torch.Tensor
Sizes = tuple[int, int, int, int, str]
COMPARE = Tolerance(rtol=0.0, atol=0.0, dtype=True, why=SAME_NUMBERS)


def _play(make: Callable[..., Right], script: Script) -> list[Any]:
    """What a cache of the judge's own shows of a script, with numbers that differ from place to
    place."""
    cache, seen = make(script["n_sequences"], script["S_max"], 1, 2, script["dtype"]), []
    for i, (rows, T) in enumerate(script["blocks"]):
        block = (torch.arange(len(rows) * T * 2) + 1000 * i).view(
            len(rows), T, 1, 2
        )  # [n, T, 1, 2]
        block = block.to(getattr(torch, script["dtype"]))
        try:
            cache.update(list(rows), block, -block)
        except (ValueError, RuntimeError) as e:
            seen.append(type(e).__name__)
    return seen + [list(cache.read(b)) for b in range(script["n_sequences"])]


def observe(answer: Answer, case: Case) -> Any:
    """A case with a fault's name asks whether `expose` shows it; one with sizes and blocks runs the
    repaired cache."""
    if isinstance(case.args[0], str):
        scripts = plain(answer.call("expose"))
        found = problem(scripts)
        fault = FAULTS[case.args[0]]
        shown = not found and any(
            difference(_play(fault, s), _play(Right, s), COMPARE) for s in scripts
        )
        return {"the inputs": found or "valid", "one shows it": shown}
    return _repaired(answer, *case.args)


def _repaired(
    answer: Answer, sizes: Sizes, blocks: list[tuple[list[int], Tensor, Tensor]]
) -> dict[str, Any]:
    cache = answer.new("Cache", *sizes)
    updates: list[str] = []
    for block in blocks:
        said = outcome(lambda block=block: tell(cache, "update", *block))  # type: ignore[misc]
        raised = said["raised"] if isinstance(said, dict) and "raised" in said else []
        updates.append("refused" if "ValueError" in raised else raised[0] if raised else "taken")
    return {
        "updates": updates,
        "read": {f"sequence {b}": _pair(cache.call("read", b)) for b in range(sizes[0])},
    }


def _pair(found: Any) -> Any:
    return list(found) if isinstance(found, list | tuple) else found


def _run(rng: random.Random, name: str, sizes: Sizes, blocks: list[tuple[list[int], int]]) -> Case:
    _, _, K, H, dtype = sizes

    def made(n: int, T: int) -> Tensor:
        return normal(rng, n, T, K, H, dtype=dtype)

    return Case(
        f"repaired: {name}",
        (sizes, [(rows, made(len(rows), T), made(len(rows), T)) for rows, T in blocks]),
    )


def cases(rng: random.Random) -> list[Case]:
    """Runs of the repaired cache, then the faults that `expose` must show."""
    both, all3, ends = [0, 1], [0, 1, 2], [0, 2]
    return [
        _run(rng, "one sequence, 2 tokens, then 1", (1, 4, 1, 2, "float32"), [([0], 2), ([0], 1)]),
        _run(
            rng,
            "two sequences, then one token for the first only",
            (2, 4, 1, 2, "float32"),
            [(both, 2), ([0], 1)],
        ),
        _run(
            rng,
            "one token for the second, then one for both",
            (2, 5, 2, 3, "float32"),
            [(both, 2), ([1], 1), (both, 1)],
        ),
        _run(
            rng,
            "room for 3: filled, then one token too many",
            (1, 3, 2, 2, "float32"),
            [([0], 2), ([0], 1), ([0], 1)],
        ),
        _run(
            rng,
            "room for 3: 2 tokens, then 2 more",
            (1, 3, 2, 2, "float32"),
            [([0], 2), ([0], 2), ([0], 1)],
        ),
        _run(rng, "bfloat16", (2, 6, 1, 4, "bfloat16"), [(both, 3), ([0], 1)]),
        _run(rng, "float64, and nothing for the first", (2, 6, 1, 4, "float64"), [([1], 2)]),
        _run(
            rng,
            "room for 4: the second sequence is full, then one for both, one for the first",
            (2, 4, 1, 3, "float32"),
            [(both, 2), ([1], 2), (both, 1), ([0], 1)],
        ),
        _run(
            rng,
            "three sequences in any order",
            (3, 7, 2, 2, "float32"),
            [(all3, 2), ([2, 0], 1), ([1], 3), (ends, 2), ([2, 1], 2)],
        ),
        *(Case(f"exposed: {fault}", (fault,)) for fault in FAULTS),
    ]


def _script(n_sequences: int, S_max: int, dtype: str, *blocks: Any) -> Script:
    return {"n_sequences": n_sequences, "S_max": S_max, "dtype": dtype, "blocks": list(blocks)}


def expose() -> list[Script]:
    """The right answer (one of many)."""
    return [
        _script(2, 8, "float32", ([0, 1], 3), ([0], 1)),
        _script(1, 2, "float32", ([0], 2), ([0], 1)),
        _script(1, 2, "bfloat16", ([0], 1)),
    ]


@wrong(
    "tests with one batch size",
    "All your updates are for all sequences: then one shared length is right, and that fault stays"
    " hidden.",
    entry="expose",
)
def exposed_full_batches() -> list[Script]:
    return [_script(2, 3, "bfloat16", ([0, 1], 3), ([0, 1], 1))]


@wrong(
    "tests that never fill a cache",
    "None of your scripts overfills a cache: the missing check stays hidden.",
    entry="expose",
)
def exposed_no_overflow() -> list[Script]:
    return [_script(2, 4, "float16", ([0, 1], 3), ([0], 1))]


@wrong(
    "tests in float32",
    "All your scripts use float32, which is what the printed code always stores: ask for another"
    " dtype.",
    entry="expose",
)
def exposed_default_dtype() -> list[Script]:
    return expose()[:2]


@wrong(
    "plausible",
    "Your script breaks the contract (a sequence that does not exist): a failure on invalid input"
    " shows nothing.",
    entry="expose",
)
def exposed_too_many_sequences() -> list[Script]:
    return [_script(2, 4, "bfloat16", ([0, 1, 2], 2), ([0], 3))]


wrong.add(
    "unrepaired",
    {"Cache": caches.Printed},
    "a blog's cache class",
    "The class is still the printed one: all three faults are in it.",
)
wrong.add(
    "length_still_shared",
    {"Cache": caches.LengthStillShared},
    "a blog's cache class",
    "One length serves all sequences: a sequence left out of an update gets a hole of zeros. Keep"
    " one length for each.",
)
wrong.add(
    "overflow_still_lost",
    {"Cache": caches.OverflowStillLost},
    "a blog's cache class",
    "Nothing looks at the room yet: the token after the last vanishes without an error.",
)
wrong.add(
    "still_float32",
    {"Cache": caches.StillFloat32},
    "a blog's cache class",
    "The buffers are float32 whatever dtype says: hand it to torch.zeros.",
)
wrong.add(
    "truncates",
    {"Cache": caches.Truncates},
    "plausible",
    "You store what fits and drop the rest: the contract says ValueError.",
)
wrong.add(
    "half_refused",
    {"Cache": caches.HalfRefused},
    "plausible",
    "The update is refused after earlier sequences were written: look at the room of all rows"
    " first.",
)
wrong.add(
    "all_must_have_room",
    {"Cache": caches.AllMustHaveRoom},
    "plausible",
    "A full sequence that is not in rows must not refuse the update: only those in rows need room.",
)
wrong.add(
    "first_must_have_room",
    {"Cache": caches.FirstMustHaveRoom},
    "plausible",
    "You look at the room of the first of the rows only: any of them may be full.",
)
wrong.add(
    "first_rows_written",
    {"Cache": caches.FirstRowsWritten},
    "a blog's cache class, which writes to the first rows of the buffer",
    "You write to the first len(rows) sequences: block i belongs to sequence rows[i].",
)


EXERCISE = Exercise(
    id="kv_cache-snippet",
    title="Repair a cache that circulates",
    kind="fault",
    points=6,
    minutes=20,
    entries=("expose", "Cache"),
    cases=cases,
    observe=observe,
    reference={"Cache": Right, "expose": expose},
    compare=COMPARE,
    misconceptions=tuple(wrong),
    hints=(
        "Read the contract sentence by sentence, and ask of each what in the code keeps it.",
        (
            "Three scripts: an update for some of the sequences; one token after the last place; a"
            " dtype other than float32."
        ),
        (
            "Repair: a list of lengths, one per sequence; before anything is written, check that"
            " each of the rows has room for T; torch.zeros(…, dtype=getattr(torch, dtype))."
        ),
    ),
    recall=(
        "Which fault of a cache never raises an error and only makes the text worse?",
        "A hole: places between real tokens that hold zeros and are attended to.",
    ),
    withholds=(),
)
