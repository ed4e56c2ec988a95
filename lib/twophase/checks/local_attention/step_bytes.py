"""local_attention-step_bytes: predict what a decode step of a hybrid stack moves.

The reference is written down; a test holds it against the meter, on every case that a meter can
run."""

from __future__ import annotations

import random

from twophase.checks import edges
from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Windows = list[int | None]


def reference(
    B: int, S: int, windows: Windows, N: int, K: int, H: int, bytes_per_value: int
) -> int:
    """The right answer."""
    values = 0
    for window in windows:
        seen = S + 1 if window is None else min(S + 1, window)
        values += 2 * seen * K * H  # keys and values read
        values += 2 * N * H  # the query read, the output written
        values += 4 * K * H  # the new key and value, read and written
    return B * values * bytes_per_value


wrong.add(
    "windows_ignored",
    replaced(reference, {"S + 1 if window is None else min(S + 1, window)": "S + 1"}),
    "windows applied by a mask over the whole cache",
    "Every layer reads all S + 1 keys in your count: a ring has no more than `window` to read.",
)
wrong.add(
    "one_more_than_the_window",
    replaced(reference, {"min(S + 1, window)": "min(S, window) + 1"}),
    "the new token counted beside a full window",
    "The new token's key is one of the window's keys: a full ring reads `window`, not window + 1.",
)
wrong.add(
    "one_less_than_the_window",
    replaced(reference, {"min(S + 1, window)": "min(S + 1, window - 1) if window > 1 else 1"}),
    "off by one",
    "A window of w reads w keys, the query's own included.",
)
wrong.add(
    "one_token_short",
    replaced(
        reference,
        {"seen = S + 1 if": "seen = S if", "min(S + 1, window)": "min(S, window)"},
    ),
    "the cached step that excluded the current token",
    "You are short by one token: the new key and value are read as well, so it is S + 1, or"
    " min(S + 1, window).",
)
wrong.add(
    "ring_always_full",
    replaced(reference, {"min(S + 1, window)": "window"}),
    "static caches read whole",
    "You let a ring be read whole from the first token on: only the filled part is read.",
)
wrong.add(
    "query_heads",
    replaced(reference, {"2 * seen * K * H": "2 * seen * N * H"}),
    "KV calculators (modular handbook #131, LMCache #688)",
    "You read N heads of keys and values: there are K, each read once for its whole group.",
)
wrong.add(
    "keys_only",
    replaced(reference, {"2 * seen * K * H": "seen * K * H"}),
    "plausible",
    "Values are read as well as keys.",
)
wrong.add(
    "cache_alone",
    replaced(
        reference, {"values += 2 * N * H": "values += 0", "values += 4 * K * H": "values += 0"}
    ),
    "the usual estimate",
    "This is the cache being read. Exactly, each layer also reads its query, writes its output and"
    " stores the new token; beside a short window that shows.",
)
wrong.add(
    "append_left_out",
    replaced(reference, {"values += 4 * K * H": "values += 0"}),
    "plausible",
    "The append is missing: in each layer the new key and value are read once and written once.",
)
wrong.add(
    "queries_once",
    replaced(
        reference,
        {
            "return B * values * bytes_per_value": (
                "return B * (values - 2 * N * H * (len(windows) - 1)) * bytes_per_value"
            )
        },
    ),
    "plausible",
    "Query and output were counted for one layer only: every layer has its own.",
)
wrong.add(
    "cache_shared",
    replaced(
        reference,
        {"2 * seen * K * H": "2 * seen * K * H / B"},
    ),
    "plausible",
    "The batch does not share the cache: each of the B sequences reads its own.",
)
wrong.add(
    "ring_rewritten",
    replaced(
        reference,
        {"values += 4 * K * H": "values += 4 * K * H if window is None else 4 * seen * K * H"},
    ),
    "caches that shift, or grow by torch.cat",
    "You let a full ring move all its tokens: nothing moves in a ring, one slot is written.",
)


def _large() -> tuple[int, int, Windows, int, int, int, int]:
    """More of each than any table has, and more bytes than a float holds, but not than 64 bits."""
    S, window = edges.past(2**26), edges.past(2**12)
    K, H = edges.past(2**9), edges.past(2**11)
    sizes = edges.past(2048), S, [window, None, window], 3 * K, K, H, 2
    moved = reference(*sizes)
    assert int(float(moved)) != moved < 2**63
    return sizes


def _many_layers() -> Case:
    """More layers than any constant, the last of them unlike the others."""
    windows: Windows = [*[6, None, 6] * edges.past(128), 40]
    return Case(f"{len(windows)} layers, S=30", (2, 30, windows, 4, 2, 6, 2))


def cases(rng: random.Random) -> list[Case]:
    """One layer of each kind; an empty cache; a ring one short of full, full by this step, full
    before; different windows, every width of number; more than any table; then fresh ones."""

    def case(*sizes: object, public: bool = True) -> Case:
        B, S, windows, N, K, H, b = sizes
        name = f"B={B}, S={S}, windows={windows}, N={N}, K={K}, H={H}, {b} bytes"
        return Case(name, sizes, public=public)

    named = {"B": 2, "S": 11, "windows": [6, None], "N": 4, "K": 2, "H": 6, "bytes_per_value": 4}
    changed = edges.one_changed(
        named, B=3, S=12, windows=[7, None], N=6, K=1, H=10, bytes_per_value=2
    )
    fresh = []
    for i in range(4):
        windows: Windows = [
            rng.choice((None, rng.randrange(2, 60))) for _ in range(rng.randrange(1, 5))
        ] + [rng.randrange(8, 40), None]
        K = rng.randrange(2, 5)
        sizes = rng.randrange(2, 6), rng.randrange(10, 200), windows, K * rng.randrange(2, 6), K
        fresh.append(case(*sizes, 2 * rng.randrange(3, 20), (2, 4, 8, 2)[i], public=i < 2))
    return [
        case(1, 3, [None], 2, 1, 4, 4),
        case(1, 9, [4], 2, 1, 4, 4),
        case(1, 2, [4], 2, 1, 4, 4),
        case(2, 0, [4, None], 4, 2, 6, 4),
        *(case(2, S, [6, 6], 4, 2, 6, 2) for S in (4, 5, 6, 7)),
        *(Case(f"B=2, S=11, windows 6 and none, {n}", tuple(v.values())) for n, v in changed),
        case(*named.values()),
        case(1, 30, [1, 1], 4, 2, 6, 2),
        case(1, 30, [9, None], 4, 2, 6, 1),
        case(3, 40, [7, None, 90, 20], 6, 6, 4, 8),
        case(3, 40, [None, None], 6, 1, 4, 2),
        case(1, 8191, [1024] * 5 + [None], 32, 16, 128, 2),
        case(*_large()),
        _many_layers(),
        *fresh,
    ]


EXERCISE = Exercise(
    id="local_attention-step_bytes",
    title="Predict what a hybrid's step moves",
    kind="predict",
    points=4,
    minutes=15,
    entries=("step_bytes",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "One layer first: what is appended, and how many keys does the new token's query see?",
        (
            "A global layer reads S + 1 keys and values, a local one min(S + 1, window). Each also"
            " reads N·H numbers of the query and writes as many."
        ),
        (
            "The append reads 2·K·H numbers and writes as many, in every layer. Add up, times B,"
            " times bytes_per_value."
        ),
    ),
    ranges={"bytes_per_value": (1, 8), "S": (0, 2**26)},
    recall=(
        "A ring is full. What does one more token of context add to a local layer's step?",
        "Nothing: it reads `window` keys and values and overwrites one slot, whatever the context.",
    ),
)
