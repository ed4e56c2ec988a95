"""pruning-stored: what zeros save in a file, by the way in which they are left out."""

from __future__ import annotations

import random

from twophase.checks.compare import FORMULA
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(n: int, n_zero: int, bytes_per_number: int, bytes_per_index: int) -> dict[str, float]:
    """The right answer."""
    left = n - n_zero
    return {
        "dense": n * bytes_per_number,
        "bitmap": left * bytes_per_number + n / 8,
        "indexed": left * (bytes_per_number + bytes_per_index),
        "two_four": n / 2 * bytes_per_number + n / 2 * 2 / 8,
    }


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "zeros_for_what_is_left",
    {"left = n - n_zero": "left = n_zero"},
    "sparsity taken for density",
    "You store the zeros. What is stored are the n − n_zero others.",
)
_add(
    "places_are_free",
    {
        " + n / 8": "",
        " + n / 2 * 2 / 8": "",
        "(bytes_per_number + bytes_per_index)": "bytes_per_number",
    },
    "“50 % sparsity halves the file”",
    "You store the numbers only. A reader must also know where they stand: bits or indices.",
)
_add(
    "bits_for_bytes",
    {" + n / 8": " + n", " + n / 2 * 2 / 8": " + n / 2 * 2"},
    "plausible",
    "You count bits as bytes: eight of them make one.",
)
_add(
    "bitmap_of_what_is_left",
    {" + n / 8": " + left / 8"},
    "plausible",
    "The bitmap has a bit for every weight, also for those that are zero.",
)
_add(
    "one_place_for_two",
    {" + n / 2 * 2 / 8": " + n / 4 * 2 / 8"},
    "plausible",
    "Each of the two numbers of a four has two bits of place.",
)
_add(
    "indices_of_all",
    {
        ("left * (bytes_per_number + bytes_per_index)"): (
            "left * bytes_per_number + n * bytes_per_index"
        )
    },
    "plausible",
    "Only what is stored has an index.",
)


def cases(rng: random.Random) -> list[Case]:
    """No zero, all zeros, half of them; each width of numbers and indices; few weights and many."""
    n = 4096 * 4096
    made = [
        (n, n // 2, 2, 4),
        (n, 0, 2, 4),
        (n, n, 2, 4),
        (n, n // 2, 4, 4),
        (n, n // 2, 1, 4),
        (n, n // 2, 2, 2),
        (n, n // 2, 2, 8),
        (n, 9 * n // 10, 2, 4),
        (8, 4, 2, 4),
        (16, 4, 2, 4),
        (8, 1, 8, 1),
        (24, 7, 4, 2),
        (8 * past(2**31), past(2048), 2, 4),
    ]
    fresh = []
    for _ in range(4):
        m = 8 * rng.randrange(100, 10**6)
        fresh.append((m, rng.randrange(m), rng.choice((1, 2, 4)), rng.choice((2, 4))))
    names = [f"{zero:,} of {m:,} zero, {b} bytes, index of {i}" for m, zero, b, i in made]
    return [
        *(Case(name, args) for name, args in zip(names, made, strict=True)),
        *(Case(f"fresh {i + 1}", args, public=i < 2) for i, args in enumerate(fresh)),
    ]


EXERCISE = Exercise(
    id="pruning-stored",
    title="What zeros save",
    kind="formula",
    points=2,
    minutes=10,
    entries=("stored_bytes",),
    cases=cases,
    reference=reference,
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        "Each way stores the numbers that are left, and something that says where they stand.",
        "A bitmap: a bit for each of the n. Indices: one for each number that is left.",
        "2:4: n/2 numbers, and two bits of place for each of them, n/2 · 2/8 bytes.",
    ),
    recall=(
        "Half of a bf16 matrix is zero, in 2:4. How much of its file is left?",
        "9/16: half the numbers, and two bits for each of these.",
    ),
    ranges={"bytes_per_number": (1, 8), "bytes_per_index": (1, 8)},
)
