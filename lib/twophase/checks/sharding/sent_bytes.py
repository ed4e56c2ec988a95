"""sharding-sent_bytes: predict what a layer of a decode step sends in each layout.

The reference is written down; tests hold it against theory and against a trace."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks import edges
from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced
from twophase.checks.sharding._layouts import Sizes

wrong = Misconceptions()


def reference(B: int, D: int, F: int, N: int, K: int, H: int, n: int, b: int) -> dict[str, int]:
    """The right answer."""
    sums = 2 * 2 * B * D * b * (n - 1) // n
    asked, out = B * (N + 2 * K) * H * b, B * N * H * b
    there_and_back = (asked + out) // n * (n - 1) // n
    partial = B * N * (H + 2) * 4
    weights = (3 * D * F + 2 * N * H * D + 2 * K * H * D) * b
    return {
        "tensor": sums,
        "batch": sums + there_and_back,
        "length": sums + asked * (n - 1) // n + partial * (n - 1) // n,
        "gathered": weights * (n - 1) // n,
    }


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "ring_factor_left_out",
    {
        "sums = 2 * 2 * B * D * b * (n - 1) // n": "sums = 2 * 2 * B * D * b",
        "(asked + out) // n * (n - 1) // n": "(asked + out) // n",
        "asked * (n - 1) // n + partial * (n - 1) // n": "asked + partial",
        "weights * (n - 1) // n": "weights",
    },
    "“V / W”, the limit of many chips",
    "You left out the factor (n − 1)/n: what a rank has already it does not receive.",
)
_add(
    "half_of_the_sums",
    {"sums = 2 * 2 * B": "sums = 2 * B"},
    "an all-reduce taken for a gather",
    "Your sums are half of it: a layer has two, attention's and the MLP's, and each sends twice"
    " (n − 1)/n of the array.",
)
_add(
    "sums_of_the_inner_width",
    {"sums = 2 * 2 * B * D *": "sums = 2 * B * (D + F) *"},
    "plausible",
    "What is summed in the MLP is its result, D wide: the inner vector stays cut.",
)
_add(
    "outputs_stay",
    {"(asked + out)": "asked"},
    "plausible",
    "Cut by sequence: the outputs go back to the ranks of their heads, a second exchange.",
)
_add(
    "keys_stay",
    {"B * (N + 2 * K) * H * b": "B * N * H * b"},
    "queries alone",
    "The new keys and values travel as well: 2·K heads beside the N of the queries.",
)
_add(
    "exchange_taken_for_a_gather",
    {"(asked + out) // n * (n - 1) // n": "(asked + out) * (n - 1) // n"},
    "all-to-all taken for an all-gather",
    "In an exchange a rank holds 1/n of the queries, and sends (n − 1)/n of that.",
)
_add(
    "maximum_and_sum_left_out",
    {"(H + 2)": "H"},
    "outputs without their weights",
    "Partial outputs cannot be merged without maximum and sum: H + 2 numbers for each head.",
)
_add(
    "partials_in_activation_bytes",
    {"(H + 2) * 4": "(H + 2) * b"},
    "plausible",
    "Partial outputs are float32: 4 bytes a number.",
)
_add(
    "partials_of_own_heads",
    {"partial = B * N *": "partial = B * N // n *"},
    "plausible",
    "Every rank has partial outputs of all N heads, over its own positions.",
)
_add(
    "mlp_of_two_matrices",
    {"3 * D * F": "2 * D * F"},
    "MLPs without a gate",
    "The MLP is gated: three matrices.",
)
_add(
    "attention_weights_left_out",
    {"(3 * D * F + 2 * N * H * D + 2 * K * H * D)": "3 * D * F"},
    "plausible",
    "The projections of attention are gathered, too: queries and output N·H by D, keys and values"
    " K·H by D.",
)
_add(
    "square_projections",
    {"2 * N * H * D + 2 * K * H * D": "4 * N * H * D"},
    "MHA assumed",
    "Keys and values have K heads, not N.",
)


def observe(answer: Answer, case: Case) -> Any:
    """Called with the sizes by name."""
    return answer.call("sent_bytes", **case.kwargs)


NAMES = ("B", "D", "F", "N", "K", "H", "n", "b")


def divides(s: Sizes) -> bool:
    """Whether n divides all that the task says it divides."""
    return not any(s[name] % s["n"] for name in ("B", "D", "F", "N", "K"))


def _large() -> list[int]:
    """Sizes of which no count is a float's, and none is beyond 64 bits."""
    wide = 3 * edges.past(2**28)
    sizes = [wide, wide, 3, 3 * edges.past(2**10), 3, edges.past(2**17), 3, 1]
    assert all(int(float(sent)) != sent < 2**63 for sent in reference(*sizes).values())
    return sizes


def cases(rng: random.Random) -> list[Case]:
    """One rank, two; small and real widths; one change at a time; counts beyond a float, one of
    them, then all."""

    def case(*sizes: int, public: bool = True) -> Case:
        named = dict(zip(NAMES, sizes, strict=True))
        assert divides(named)
        shown = ", ".join(f"{name}={value}" for name, value in named.items())
        return Case(shown, kwargs=named, public=public)

    plain = dict(zip(NAMES, (4, 6, 10, 4, 2, 3, 2, 2), strict=True))
    changed = edges.one_changed(plain, B=8, D=8, F=12, N=6, K=4, H=5, n=1, b=4)
    n = rng.choice((2, 3, 5))
    fresh = [n * rng.randrange(1, 40) for _ in range(5)]
    return [
        case(1, 2, 3, 2, 1, 2, 1, 2),
        case(*plain.values()),
        *(case(*sizes.values()) for _, sizes in changed),
        case(8, 8192, 28672, 64, 8, 128, 8, 2),
        case(64, 4096, 16384, 32, 8, 256, 4, 1),
        case(3, 9, 15, 6, 3, 4, 3, 2),
        case(2 * edges.past(4096), 2, 2, 2, 2, 1, 2, 2),
        case(2, 2, 2, 2 * edges.past(2048), 2 * edges.past(2048), 1, 2, 2),
        case(2, 2 * edges.past(2**20), 2 * edges.past(2**22), 2, 2, edges.past(2**14), 2, 2),
        case(2, 2 * edges.past(2**28), 2 * edges.past(2**30), 2, 2, 2, 2, 4),
        case(*_large()),
        case(17, 17, 17, 17, 17, 2, 17, 2),
        case(4, 8, 8, 4, 4, 2, 4, 8),  # partial outputs take less than the other numbers
        case(*fresh, rng.randrange(2, 200), n, rng.choice((1, 2, 4)), public=False),
    ]


EXERCISE = Exercise(
    id="sharding-sent_bytes",
    title="Predict what a layer sends",
    kind="predict",
    points=4,
    minutes=20,
    entries=("sent_bytes",),
    cases=cases,
    observe=observe,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "List the collectives of each layout first, with the array that each is about.",
        (
            "tensor: two all-reduces of B·D numbers. batch: two exchanges more, of (N + 2K)·H·B/n"
            " and N·H·B/n. length: a gather of B·(N + 2K)·H and an exchange of B·N·(H + 2)."
        ),
        (
            "A gather or an exchange sends (n − 1)/n of its bytes, an all-reduce twice that;"
            " partial outputs take 4 bytes a number."
        ),
    ),
    ranges={"n": (1, 17)},
    recall=(
        "Which layout's bytes do not grow with the batch?",
        "Gathered weights: they are the same for one token and for a million.",
    ),
)
