"""grouped_query_attention-repeated_bytes: predict what repeating keys and values moves, and what
sharing them does.

The reference is written down; a test holds it against the meter, on every case that a meter can
run."""

from __future__ import annotations

import random

from twophase.checks import edges
from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(B: int, S: int, N: int, K: int, H: int, bytes_per_value: int) -> dict[str, int]:
    """The right answer."""
    cache, repeated = 2 * B * S * K * H, 2 * B * S * N * H  # keys and values, in numbers
    ends = 2 * B * N * H  # queries read, outputs written
    return {
        "repeated": (cache + repeated + repeated + ends) * bytes_per_value,
        "shared": (cache + ends) * bytes_per_value,
    }


wrong.add(
    "copies_only_written",
    replaced(reference, {"cache + repeated + repeated + ends": "cache + repeated + ends"}),
    "plausible",
    "The copies are written, and attention then reads them: 2·B·S·N·H numbers each way.",
)
wrong.add(
    "copies_for_free",
    replaced(reference, {"cache + repeated + repeated + ends": "repeated + ends"}),
    "repeat_interleave taken for a view",
    "You let attention read N heads that nobody wrote. repeat_interleave is no view: it reads the"
    " cache and writes G copies.",
)
wrong.add(
    "cache_not_read",
    replaced(reference, {"cache + repeated + repeated + ends": "repeated + repeated + ends"}),
    "plausible",
    "To copy keys and values, they must be read: 2·B·S·K·H numbers.",
)
wrong.add(
    "no_difference",
    replaced(reference, {"cache + repeated + repeated + ends": "cache + ends"}),
    "counting FLOPs for bytes",
    "Both ways do the same arithmetic, but repeating moves the copies as well: written once, read"
    " once.",
)
wrong.add(
    "shared_reads_query_heads",
    replaced(reference, {"(cache + ends) *": "(repeated + ends) *"}),
    "KV calculators that multiply by query heads (modular handbook #131, LMCache #688)",
    "You let the shared kernel read N heads. It reads K heads once, for a whole group each.",
)
wrong.add(
    "ends_left_out",
    replaced(
        reference,
        {"repeated + repeated + ends": "repeated + repeated", "(cache + ends)": "(cache)"},
    ),
    "the usual estimate",
    "This is keys and values alone. The queries are read and the outputs written as well.",
)
wrong.add(
    "keys_only",
    replaced(
        reference, {"2 * B * S * K * H": "B * S * K * H", "2 * B * S * N * H": "B * S * N * H"}
    ),
    "plausible",
    "Keys are half of it: values are copied and read as well.",
)
wrong.add(
    "batch_shares_the_cache",
    replaced(
        reference, {"2 * B * S * K * H": "2 * S * K * H", "2 * B * S * N * H": "2 * S * N * H"}
    ),
    "plausible",
    "The batch does not share the cache: each of the B sequences has its own.",
)
wrong.add(
    "outputs_left_out",
    replaced(reference, {"= 2 * B * N * H": "= B * N * H"}),
    "plausible",
    "N·H numbers of the queries are read, and as many of the outputs written: 2·B·N·H.",
)


def _large() -> tuple[int, int, int, int, int]:
    """More positions than any table has, and more bytes both ways than a float holds, but not than
    64 bits."""
    K = edges.past(2**10)
    sizes = edges.past(2048), edges.past(2**17 + 32), 3 * K, K, edges.past(2**17)
    moved = reference(*sizes, bytes_per_value=2)
    assert all(int(float(n)) != n < 2**63 for n in moved.values())
    return sizes


def cases(rng: random.Random) -> list[Case]:
    """Tiny shapes; MHA, where repeating copies all the same; MQA; each argument changed alone; one
    longer than any table; then shapes that nobody has seen."""

    def case(B: int, S: int, N: int, K: int, H: int, b: int, public: bool = True) -> Case:
        return Case(
            f"B={B}, S={S:,}, N={N}, K={K}, H={H}, {b} bytes", (B, S, N, K, H, b), {}, public
        )

    unseen = []
    for i in range(4):
        K = rng.randrange(2, 5)
        sizes = rng.randrange(2, 6), rng.randrange(10, 200), K * rng.randrange(2, 6), K
        unseen.append(case(*sizes, 2 * rng.randrange(3, 20), rng.choice((2, 4, 8)), i < 2))
    return [
        case(1, 1, 1, 1, 2, 2),
        case(1, 5, 2, 1, 4, 4),
        case(2, 7, 6, 2, 4, 2),
        case(3, 7, 6, 2, 4, 2),
        case(2, 8, 6, 2, 4, 2),
        case(2, 7, 8, 2, 4, 2),
        case(2, 7, 6, 3, 4, 2),
        case(2, 7, 6, 2, 6, 2),
        case(2, 7, 6, 2, 4, 8),
        case(2, 7, 6, 6, 4, 4),
        case(2, 7, 6, 1, 4, 4),
        case(*_large(), 2),
        *unseen,
    ]


EXERCISE = Exercise(
    id="grouped_query_attention-repeated_bytes",
    title="Predict what repeated keys move",
    kind="predict",
    points=4,
    minutes=15,
    entries=("attention_bytes",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Go through the operators in order: two repeats, then one fused kernel of attention.",
        (
            "Each repeat reads B·S·K·H numbers and writes B·S·N·H. The kernel then reads keys and"
            " values of N heads."
        ),
        (
            "repeated: 2·B·S·K·H + 2·B·S·N·H + 2·B·S·N·H + 2·B·N·H numbers; shared: 2·B·S·K·H +"
            " 2·B·N·H."
        ),
    ),
    ranges={"bytes_per_value": (2, 8), "S": (1, 2**17)},
    recall=(
        "Keys and values are repeated for G query heads each. How many times the cache is moved?",
        "2·G + 1 times: the cache is read once, and G copies are written and read.",
    ),
)
