"""grouped_query_attention-chip_heads: heads dealt to chips, a fault that shows only where KV heads
are copied. The notebook prints `_chips.printed`."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks import edges
from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.grouped_query_attention import _chips
from twophase.checks.grouped_query_attention._chips import Heads, problem
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Input = tuple[int, int, int, int]  # rank, n_chips, N, K

# a first KV head that comes out one too low, or too high, where a quotient is rounded on the way
ROUNDED: tuple[Input, ...] = (
    (3, 11, 55, 55),
    (5, 6, 18, 18),
    (7, 10, 90, 90),
    (49, 98, 98, 2),
    (100, 101, 101, 1),
)
UNORDERED: Input = (2, 4, 12, 12)  # a set of these KV heads, 6 to 8, does not come in rising order
LARGEST: Input = (511, 512, 1024, 2)  # as many query heads as the task names, two on a chip


def expose() -> list[Input]:
    """The right answer (one of many)."""
    return [(1, 8, 32, 4)]


@wrong(
    "tests with at most as many chips as KV heads",
    "Your inputs have at most as many chips as KV heads, where the printed code is right. Copy a KV"
    " head: take more chips.",
    entry="expose",
)
def exposed_without_copies() -> list[Input]:
    return [(1, 4, 32, 8), (3, 4, 32, 4)]


@wrong(
    "tests of the first chip",
    "Chip 0 begins with KV head 0 in any case. Look at another chip.",
    entry="expose",
)
def exposed_on_the_first_chip() -> list[Input]:
    return [(0, 8, 32, 4), (0, 16, 32, 2)]


@wrong(
    "plausible",
    "With one KV head every chip holds a copy of it, and the printed code is right.",
    entry="expose",
)
def exposed_multi_query() -> list[Input]:
    return [(3, 8, 32, 1)]


@wrong(
    "tests of the last chip",
    "On the chips that you name both functions give the same KV head: the last chip gets the last"
    " one either way. Try chip 1.",
    entry="expose",
)
def exposed_on_the_last_chip() -> list[Input]:
    return [(7, 8, 32, 4)]


@wrong(
    "plausible",
    "Your input breaks the contract: N is at most 1,024, and n_chips and K must both divide it.",
    entry="expose",
)
def exposed_out_of_contract() -> list[Input]:
    return [(2, 6, 32, 4)]


wrong.add(
    "unrepaired",
    {"heads_of_chip": _chips.printed},
    "plausible",
    "The function is still the printed one: with more chips than KV heads it goes round, so that"
    " chip 1 gets KV head 1, while its queries read KV head 0.",
)
wrong.add(
    "kept_in_range",
    {
        "heads_of_chip": replaced(
            _chips.right, {"rank * K // n_chips": "min(rank * held, K - held)"}
        )
    },
    "an index error silenced",
    "You keep the number in range, but all chips from K on get the last KV head. Copies of one KV"
    " head lie on neighbors: rank · K // n_chips.",
)
wrong.add(
    "all_kv_heads_copied",
    {
        "heads_of_chip": replaced(
            _chips.right,
            {"return list": "if n_chips > K: held, first = K, 0\n    return list"},
        )
    },
    "plausible",
    "With more chips than KV heads you put all of them on every chip. One is enough: all queries of"
    " a chip are of one group.",
)
wrong.add(
    "none_left",
    {"heads_of_chip": replaced(_chips.right, {"max(1, K // n_chips)": "K // n_chips"})},
    "num_kv_heads // tensor_parallel_size",
    "With more chips than KV heads K // n_chips is 0, and your chips have no keys at all.",
)
wrong.add(
    "one_for_each",
    {"heads_of_chip": replaced(_chips.right, {"max(1, K // n_chips)": "1"})},
    "plausible",
    "You give every chip one KV head. With fewer chips than KV heads each holds K // n_chips.",
)
wrong.add(
    "queries_dealt_out",
    {
        "heads_of_chip": replaced(
            _chips.right, {"range(rank * queries, (rank + 1) * queries)": "range(rank, N, n_chips)"}
        )
    },
    "heads dealt out in turn",
    "You dealt the query heads out in turn. Neighbors stay together, so that a chip's queries read"
    " the KV heads that it holds.",
)


@wrong(
    "plausible",
    "You refuse more chips than KV heads. Copies are allowed, and needed.",
    entry="heads_of_chip",
)
def refuses_copies(rank: int, n_chips: int, N: int, K: int) -> Heads:
    if n_chips > K:
        raise ValueError("more chips than KV heads")
    return _chips.right(rank, n_chips, N, K)


def observe(answer: Answer, case: Case) -> Any:
    """Without arguments: whether `expose` shows the fault; with them: the heads of one chip."""
    if case.args:
        return plain(answer.call("heads_of_chip", *case.args))
    inputs = plain(answer.call("expose"))
    found = problem(inputs)
    copied = [] if found else [i for i in inputs if i[1] > i[3]]
    later = [i for i in copied if i[0] > 0]
    return {
        "the inputs": found or "valid",
        "one has more chips than KV heads": bool(copied),
        "one of these is not of chip 0": bool(later),
        "one of these has several KV heads": any(i[3] > 1 for i in later),
        "one shows the fault": any(_chips.printed(*i) != _chips.right(*i) for i in copied),
    }


def cases(rng: random.Random) -> list[Case]:
    """The exposing inputs; every chip of several layouts (fewer chips than KV heads, as many, more;
    MHA, MQA; no power of two); the first and the last of very many; where quotients are rounded;
    then fresh ones."""
    layouts = [(1, 4, 2), (2, 8, 4), (4, 8, 4), (8, 8, 4), (4, 12, 2), (6, 12, 3), (3, 6, 6)]
    layouts += [(4, 4, 1), (8, 8, 8), (2, 12, 4)]  # (2, 8, 4), but for N
    big = 3 * edges.past(256)
    chips = [(rank, n, N, K) for n, N, K in layouts for rank in range(n)]
    chips += [(rank, big, big, big // 3) for rank in (0, 1, 3, big - 1)]
    chips += [(rank, 3, big, 3) for rank in edges.places(3)]
    chips += [*ROUNDED, UNORDERED, LARGEST]
    fresh = []
    for _ in range(6):
        K, copies = rng.randrange(2, 9), rng.randrange(2, 5)
        n_chips = K * copies
        fresh.append((rng.randrange(1, n_chips), n_chips, n_chips * rng.randrange(1, 4), K))
    return [
        Case("inputs that expose the fault"),
        *(Case(f"chip {c[0]} of {c[1]}, N={c[2]}, K={c[3]}", c) for c in chips),
        *(Case(f"chip {c[0]} of {c[1]}, N={c[2]}, K={c[3]}", c, public=False) for c in fresh),
    ]


EXERCISE = Exercise(
    id="grouped_query_attention-chip_heads",
    title="Repair heads on the wrong chip",
    kind="fault",
    points=4,
    minutes=15,
    entries=("expose", "heads_of_chip"),
    cases=cases,
    observe=observe,
    reference={"expose": expose, "heads_of_chip": _chips.right},
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        (
            "Draw N = 8, K = 2 on four chips: which query heads has chip 1, and which KV head do"
            " they read?"
        ),
        "As long as n_chips ≤ K, nothing goes round. Try n_chips = 2·K, on chip 1.",
        (
            "Chip r begins with query head r·N/n_chips. Which KV head does it read? Divide by N/K,"
            " round down: r·K // n_chips."
        ),
    ),
    ranges={"heads_of_chip.n_chips": (1, 771), "heads_of_chip.K": (1, 257)},
    recall=(
        "Eight KV heads over 16 chips: what does chip 5 hold?",
        "A copy of KV head 2, which chip 4 holds as well: 5 · 8 // 16 = 2.",
    ),
)
