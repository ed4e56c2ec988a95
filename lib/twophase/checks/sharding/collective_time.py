"""sharding-collective_time: how long a collective takes along one axis of chips."""

from __future__ import annotations

import random

from twophase.checks import edges
from twophase.checks.compare import FORMULA
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()


def reference(
    kind: str, array_bytes: int, n_chips: int, axis_bytes_per_s: float, hop_s: float, closed: bool
) -> float:
    """The right answer."""
    hops = n_chips // 2 if closed else n_chips - 1
    rate = axis_bytes_per_s if closed else axis_bytes_per_s / 2
    once = hops * hop_s + array_bytes * (n_chips - 1) / n_chips / rate
    return 2 * once if kind == "all_reduce" else once


wrong.add(
    "ring_factor_left_out",
    replaced(reference, {"array_bytes * (n_chips - 1) / n_chips": "array_bytes"}),
    "“V / W”, the limit of many chips",
    "You let a chip send the whole array. Its own piece it has: (n − 1)/n of it travels.",
)
wrong.add(
    "pieces_of_the_others_left_out",
    replaced(reference, {"array_bytes * (n_chips - 1) / n_chips": "array_bytes / n_chips"}),
    "one step counted",
    "That is one step: a chip passes on n − 1 pieces, of 1/n of the array each.",
)
wrong.add(
    "all_reduce_once",
    replaced(reference, {"2 * once if": "once if"}),
    "“an all-reduce is an all-gather with a plus”",
    "An all-reduce is a reduce-scatter and an all-gather: each takes that time.",
)
wrong.add(
    "everything_twice",
    replaced(reference, {'2 * once if kind == "all_reduce" else once': "2 * once"}),
    "plausible",
    "Only an all-reduce is two collectives: a gather or a reduce-scatter takes half as long.",
)
wrong.add(
    "line_taken_for_ring",
    replaced(
        reference, {"axis_bytes_per_s if closed else axis_bytes_per_s / 2": "axis_bytes_per_s"}
    ),
    "“V / W” on a 4 × 4 slice of v5e, which has no wraparound",
    "On an open line the chip at the end has one wire of two: everything reaches it at half the"
    " rate.",
)
wrong.add(
    "one_way_round",
    replaced(
        reference,
        {
            "n_chips // 2 if closed else n_chips - 1": "n_chips - 1",
            "axis_bytes_per_s if closed else axis_bytes_per_s / 2": "axis_bytes_per_s / 2",
        },
    ),
    "a ring in one direction",
    "A closed ring is used both ways: half the hops, twice the rate.",
)
wrong.add(
    "hops_of_a_ring_all_round",
    replaced(reference, {"n_chips // 2 if closed else n_chips - 1": "n_chips - 1"}),
    "NCCL's ring, which goes one way",
    "On a closed ring used both ways the farthest chip is n // 2 hops away.",
)
wrong.add(
    "hops_half_of_a_line",
    replaced(reference, {"n_chips // 2 if closed else n_chips - 1": "n_chips // 2"}),
    "plausible",
    "On an open line a piece goes from one end to the other: n − 1 hops.",
)
wrong.add(
    "half_hops",
    replaced(reference, {"n_chips // 2 if": "n_chips / 2 if"}),
    "“N/2 hops”",
    "With an odd number of chips the farthest is (n − 1)/2 hops away: hops are whole.",
)
wrong.add(
    "hops_left_out",
    replaced(reference, {"hops * hop_s + ": ""}),
    "bandwidth alone",
    "You left out the hops: for a small array they are nearly all of the time.",
)
wrong.add(
    "one_hop",
    replaced(reference, {"hops * hop_s + ": "hop_s + "}),
    "one latency for a collective",
    "A piece makes a hop for each chip on its way, not one.",
)


@wrong(
    "rooflines: the larger of the two",
    "You took the larger of hops and bytes. Each step of a ring is a hop and then its bytes: they"
    " add up.",
)
def larger_of_both(
    kind: str, array_bytes: int, n_chips: int, axis_bytes_per_s: float, hop_s: float, closed: bool
) -> float:
    hops = reference(kind, 0, n_chips, axis_bytes_per_s, hop_s, closed)
    return max(hops, reference(kind, array_bytes, n_chips, axis_bytes_per_s, 0.0, closed))


KINDS = ("all_gather", "reduce_scatter", "all_reduce")
MOST_CHIPS = 5_000  # as the task says


def cases(rng: random.Random) -> list[Case]:
    """Each collective on each axis; one chip and two, odd and even; a profiled gather; nearly no
    bytes; one change at a time; then unseen numbers."""

    def case(*given: object, public: bool = True) -> Case:
        kind, size, n, rate, hop, closed = given
        axis = "closed" if closed else "open"
        name = f"{kind} of {size:,} B, {n} chips, {axis} axis, {rate:g} B/s, hop {hop:g} s"
        return Case(name, given, public=public)

    plain = {
        "kind": "all_gather",
        "array_bytes": 33_554_432,
        "n_chips": 4,
        "axis_bytes_per_s": 9e10,
        "hop_s": 1e-6,
        "closed": False,
    }
    changed = edges.one_changed(
        plain,
        kind="all_reduce",
        array_bytes=131_072,
        n_chips=5,
        axis_bytes_per_s=1.8e11,
        hop_s=2.5e-6,
        closed=True,
    )
    around = [
        case(kind, 1_000_000, n, 4e9, 3e-6, closed)
        for kind in KINDS
        for n in (1, 2, 3, 16)
        for closed in (True, False)
    ]
    unseen = [
        case(
            rng.choice(KINDS),
            rng.randrange(10**3, 10**9),
            rng.randrange(2, 300),
            rng.uniform(1e9, 1e12),
            rng.uniform(1e-7, 1e-4),
            rng.random() < 0.5,
            public=False,
        )
        for _ in range(4)
    ]
    return [
        case(*plain.values()),
        *(case(*given.values()) for _, given in changed),
        *around,
        case("all_reduce", 1, 8, 9e10, 0.0, True),
        case("all_gather", edges.past(10**12), edges.past(4096), 1e9, 1e-6, True),
        *(case("reduce_scatter", 4096, MOST_CHIPS, 9e10, 1e-6, closed) for closed in (True, False)),
        *unseen,
    ]


EXERCISE = Exercise(
    id="sharding-collective_time",
    title="How long a collective takes",
    kind="formula",
    points=3,
    minutes=10,
    entries=("collective_s",),
    cases=cases,
    reference=reference,
    compare=FORMULA,
    misconceptions=tuple(wrong),
    hints=(
        "Two parts, added: hops, and bytes over a rate. Take the all-gather first.",
        (
            "Each chip lacks (n − 1)/n of the array. A closed ring brings it from both sides; an"
            " open line has one wire at its end, at half the axis' rate."
        ),
        (
            "hops = n // 2 if closed else n − 1; rate = W if closed else W / 2; an all-reduce takes"
            " twice hops·hop_s + V·(n − 1)/n/rate."
        ),
    ),
    ranges={"n_chips": (1, MOST_CHIPS)},
    recall=(
        "A slice of 4 × 4 chips of TPU v5e has no wraparound. What does that cost a gather?",
        "A factor of two in bandwidth, and hops from end to end instead of half way round.",
    ),
)
