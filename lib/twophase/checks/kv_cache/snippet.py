"""kv_cache-snippet: a cache class as it circulates, its three faults exposed and repaired. The
notebook prints `Printed`."""

from __future__ import annotations

from typing import Any

from twophase.checks.exercise import Exercise
from twophase.checks.kv_cache import _snippet_caches as caches
from twophase.checks.kv_cache._snippet_caches import Right
from twophase.checks.kv_cache._snippet_cases import COMPARE, cases, observe
from twophase.checks.kv_cache._snippet_scripts import Script
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()


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
    "What you return is float32 whatever dtype says: hand it to torch.zeros.",
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
    ranges={"Cache.n_sequences": (1, 11), "update.k.shape[1]": (1, 2052)},
    recall=(
        "Which fault of a cache never raises an error and only makes the text worse?",
        "A hole: places between real tokens that hold zeros and are attended to.",
    ),
)
