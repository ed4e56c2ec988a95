"""sharding-ring: one rank's part of a ring all-reduce."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from twophase.checks import edges
from twophase.checks.answer import Answer
from twophase.checks.compare import Tolerance
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Tensor = torch.Tensor
Exchange = Callable[[Tensor], Tensor]


def reference(chunks: list[Tensor], rank: int, exchange: Exchange) -> list[Tensor]:
    """The right answer."""
    n, have = len(chunks), list(chunks)
    for step in range(n - 1):  # sums go round
        came = exchange(have[(rank - step) % n])
        have[(rank - step - 1) % n] = have[(rank - step - 1) % n] + came
    for step in range(n - 1):  # whole sums go round
        came = exchange(have[(rank - step + 1) % n])
        have[(rank - step) % n] = came
    return have


wrong.add(
    "all_gather_alone",
    replaced(
        reference,
        {
            "have[(rank - step - 1) % n] = have[(rank - step - 1) % n] + came": (
                "have[(rank - step - 1) % n] = came"
            )
        },
    ),
    "plausible",
    "Nothing is added: in the first n − 1 steps what comes is added to the chunk that you have.",
)
wrong.add(
    "adds_to_the_chunk_that_was_sent",
    replaced(
        reference,
        {
            "have[(rank - step - 1) % n] = have[(rank - step - 1) % n] + came": (
                "have[(rank - step) % n] = have[(rank - step) % n] + came"
            )
        },
    ),
    "off by one",
    "You add to the chunk that you sent. From the left comes its chunk, numbered one lower.",
)
wrong.add(
    "wrong_way_round",
    replaced(
        reference,
        {
            "exchange(have[(rank - step) % n])": "exchange(have[(rank + step) % n])",
            "have[(rank - step - 1) % n] = have[(rank - step - 1) % n] + came": (
                "have[(rank + step - 1) % n] = have[(rank + step - 1) % n] + came"
            ),
        },
    ),
    "signs exchanged",
    "After the first step you send a chunk that nothing was added to: the next to go is the one"
    " that you have just added to, numbered one lower.",
)
wrong.add(
    "sends_its_own_only",
    replaced(
        reference, {"exchange(have[(rank - step) % n])": "exchange(chunks[(rank - step) % n])"}
    ),
    "plausible",
    "You pass on your own numbers without what came before: send the chunk that you added to.",
)
wrong.add(
    "starts_with_chunk_0",
    replaced(
        reference,
        {
            "exchange(have[(rank - step) % n])": "exchange(have[(-step) % n])",
            "have[(rank - step - 1) % n] = have[(rank - step - 1) % n] + came": (
                "have[(-step - 1) % n] = have[(-step - 1) % n] + came"
            ),
        },
    ),
    "the rank forgotten",
    "Every rank starts with a chunk of its own number; you start with chunk 0 on each.",
)
wrong.add(
    "second_round_starts_early",
    replaced(
        reference,
        {
            "exchange(have[(rank - step + 1) % n])": "exchange(have[(rank - step) % n])",
            "have[(rank - step) % n] = came": "have[(rank - step - 1) % n] = came",
        },
    ),
    "the same indices in both loops",
    "After the first round chunk (rank + 1) mod n is whole on this rank; you start the second with"
    " another.",
)
wrong.add(
    "adds_in_the_second_round",
    replaced(
        reference,
        {
            "have[(rank - step) % n] = came": (
                "have[(rank - step) % n] = have[(rank - step) % n] + came"
            )
        },
    ),
    "the same loop twice",
    "In the second round whole sums come: they replace what you have.",
)
wrong.add(
    "one_step_short",
    replaced(
        reference,
        {"for step in range(n - 1):  # whole": "for step in range(n - 2):  # whole"},
    ),
    "off by one",
    "The last whole chunk does not arrive: both rounds take n − 1 steps.",
)
wrong.add(
    "n_steps",
    replaced(reference, {"for step in range(n - 1):  # sums": "for step in range(n):  # sums"}),
    "off by one",
    "n steps bring your own numbers back to you, and add them twice: n − 1 are enough.",
)


@wrong(
    "everything to everybody",
    "You send the whole array n − 1 times. Ring: one chunk a step, 2(n − 1) steps.",
)
def whole_array_round(chunks: list[Tensor], rank: int, exchange: Exchange) -> list[Tensor]:
    total = going = torch.cat(chunks)
    for _ in range(len(chunks) - 1):
        going = exchange(going)
        if going.shape == total.shape:
            total = total + going
    return list(torch.split(total, [len(c) for c in chunks]))


def messages(data: list[list[Tensor]]) -> list[list[Tensor]]:
    """What each rank sends in each step, if all do as the task says."""
    n = len(data)
    have = [list(chunks) for chunks in data]
    sent: list[list[Tensor]] = [[] for _ in range(n)]
    for step in range(2 * (n - 1)):
        summing = step < n - 1
        place = -step if summing else n - step  # of the chunk that rank r sends, from r
        for r in range(n):
            sent[r].append(have[r][(r + place) % n].clone())
        for r in range(n):
            at, came = (r + place - 1) % n, sent[(r - 1) % n][step]
            have[r][at] = have[r][at] + came if summing else came
    return sent


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """The rank between neighbors that do as they should: what it sends, and what it ends with."""
    data, rank = case.args
    coming = messages(data)[(rank - 1) % len(data)]
    sent: list[Any] = []

    def exchange(chunk: Any) -> Any:
        sent.append(chunk)
        return coming[len(sent) - 1] if len(sent) <= len(coming) else torch.zeros(1).double()

    found = answer.call("ring_all_reduce", data[rank], rank, exchange)
    return {"what it sends": sent, "the sums": found}


def cases(rng: random.Random) -> list[Case]:
    """One rank, two, each place of some, many; chunks of unequal length; large numbers."""

    def case(
        n: int, rank: int, lengths: list[int] | None = None, scale: float = 1, public: bool = True
    ) -> Case:
        widths = lengths or [2] * n
        data = [
            [
                torch.tensor([scale * rng.randrange(-99, 100) for _ in range(w)]).double()
                for w in widths
            ]
            for _ in range(n)
        ]
        name = f"rank {rank} of {n}" + (f", chunks of {widths}" if lengths else "")
        name += ", numbers that float32 rounds" if scale > 1 else ", eighths" if scale < 1 else ""
        return Case(name, (data, rank), public=public)

    return [
        case(1, 0),
        case(2, 0, [1, 1]),
        case(2, 1),
        *(case(3, r, [1, 1, 1]) for r in range(3)),
        *(case(4, r) for r in range(4)),
        case(5, 2, [3, 2, 2, 2, 2]),
        case(5, 4, [1, 1, 1, 0, 0]),
        case(3, 0, [1, 3, 2]),
        case(3, 2, scale=0.125),
        case(8, 0),
        case(8, 7),
        case(edges.past(16), 11),
        case(3, 1, scale=2**40 + 2),  # more digits than float32 has
        case(rng.randrange(6, 12), 5, public=False),
        case(rng.randrange(6, 12), 0, public=False),
    ]


EXERCISE = Exercise(
    id="sharding-ring",
    title="An all-reduce that goes round",
    kind="kernel",
    points=5,
    minutes=25,
    entries=("ring_all_reduce",),
    cases=cases,
    observe=observe,
    reference={"ring_all_reduce": reference},
    compare=Tolerance(
        rtol=0.0, atol=0.0, dtype=True, why="sums of whole numbers are exact in float64"
    ),
    misconceptions=tuple(wrong),
    hints=(
        "Two loops of n − 1 steps. All indices are mod n, and start from the rank's own number.",
        (
            "First loop, step s: send chunk rank − s; what comes belongs to chunk rank − s − 1."
            " After it chunk rank + 1 is whole."
        ),
        "Second loop, step s: send chunk rank + 1 − s; what comes replaces chunk rank − s.",
    ),
    ranges={"len(chunks)": (1, 17)},
    recall=(
        "How many bytes does a rank send in a ring all-reduce of V bytes over n ranks?",
        "2·(n − 1)/n·V: nearly 2 V, however many ranks there are.",
    ),
)
