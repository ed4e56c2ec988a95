"""continuous_batching-step: one pass of a scheduler, from those that run and those that wait."""

from __future__ import annotations

import random

from twophase.checks.compare import EXACT
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Request = dict[str, int]  # id, missing
Pass = list[tuple[int, int]]


def reference(
    running: list[Request], waiting: list[Request], seats: int, budget: int, chunked: bool
) -> Pass:
    """The right answer."""
    made: Pass = []
    decoding = [r for r in running if r["missing"] == 1]
    reading = [r for r in running if r["missing"] > 1]
    for r in decoding + reading:
        n = min(r["missing"], budget)
        if n:
            made.append((r["id"], n))
            budget -= n
    free = seats - len(running)
    for r in waiting[:free]:
        n = min(r["missing"], budget)
        if n == 0 or (n < r["missing"] and not chunked):
            break
        made.append((r["id"], n))
        budget -= n
    return made


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "in_the_order_of_the_list",
    {"in decoding + reading": "in running"},
    "plausible",
    "A prompt that is being read took the budget before others had their one token: those that"
    " decode come first, wherever they stand.",
)
_add(
    "reading_first",
    {"in decoding + reading": "in reading + decoding"},
    "schedulers that read prompts first",
    "You read prompts first. Then everybody's next token waits for them: one token each for those"
    " that decode comes first.",
)
_add(
    "budget_not_kept",
    {
        'n = min(r["missing"], budget)\n        if n:': (
            'n = r["missing"] if r["missing"] > 1 and budget > 0 else min(r["missing"], budget)\n'
            "        if n > 0:"
        ),
        "if n == 0 or": "if n <= 0 or",
    },
    "plausible",
    "A running prompt read all that it misses: it gets what is left of the budget.",
)
_add(
    "budget_not_spent",
    {"            budget -= n\n    free": "    free"},
    "plausible",
    "What running requests read comes off the budget, too: new ones get what is left.",
)
_add(
    "decoding_is_free",
    {
        "            budget -= n\n    free": (
            '            budget -= n if r["missing"] > 1 else 0\n    free'
        )
    },
    "budgets for prompts only",
    "You do not count the tokens of those that decode. The budget is one of all tokens of a pass.",
)
_add(
    "seats_not_kept",
    {"waiting[:free]": "waiting"},
    "plausible",
    "More run than there are seats.",
)
_add(
    "seats_for_new_ones",
    {"seats - len(running)": "seats"},
    "plausible",
    "You admit as many as there are seats. Those that run sit on theirs.",
)
_add(
    "overtakes",
    {"            break": "            continue"},
    "“backfilling”",
    "A prompt did not fit, and you let a later one overtake it. Then a long one may wait for ever:"
    " nobody joins before it.",
)
_add(
    "always_chunks",
    {'(n < r["missing"] and not chunked)': "False"},
    "plausible",
    "With chunked=False a prompt joins whole or not at all.",
)
_add(
    "never_chunks",
    {'(n < r["missing"] and not chunked)': 'n < r["missing"]'},
    "plausible",
    "With chunked=True a prompt that does not fit reads as much as is left.",
)
_add(
    "zeros_listed",
    {"        if n:\n": "        if True:\n"},
    "plausible",
    "You list requests that read nothing: only those with a token take part.",
)
_add(
    "shortest_first",
    {"in waiting[:free]": 'in sorted(waiting, key=lambda r: r["missing"])[:free]'},
    "shortest job first",
    "You took the shortest prompt first. Whoever stands first in the queue joins first.",
)


def _requests(*missing: int, first: int = 1) -> list[Request]:
    return [{"id": first + i, "missing": n} for i, n in enumerate(missing)]


def cases(rng: random.Random) -> list[Case]:
    """Nobody, only running, only waiting; seats and budget just full and one more; a prompt being
    read before, between and behind those that decode; with chunks and without."""

    def case(
        name: str,
        running: tuple[int, ...],
        waiting: tuple[int, ...],
        seats: int,
        budget: int,
        chunked: bool = True,
        public: bool = True,
    ) -> Case:
        r, w = _requests(*running), _requests(*waiting, first=10_000)
        return Case(name, (r, w, seats, budget, chunked), public=public)

    def drawn(name: str, public: bool) -> Case:
        running = tuple(rng.choice((1, 1, 1, rng.randrange(2, 60))) for _ in range(6))
        waiting = tuple(rng.randrange(1, 60) for _ in range(5))
        seats, budget = rng.randrange(6, 12), rng.randrange(3, 140)
        return case(name, running, waiting, seats, budget, public=public)

    many, far = past(256), past(2048)
    running = [{"id": i, "missing": n} for i, n in ((9, 1), (4, 7), (0, 1), (2, 3))]
    waiting = [{"id": i, "missing": n} for i, n in ((8, 4), (5, 1), (6, 4))]
    return [
        case("two decode, two wait", (1, 1), (5, 3), 4, 20),
        case("two decode, the second prompt is cut", (1, 1), (5, 30), 4, 20),
        case("the same without chunks", (1, 1), (5, 30), 4, 20, False),
        case("without chunks, a short prompt behind a long one", (1,), (30, 4), 4, 20, False),
        case("without chunks, the prompt just fits", (1, 1), (6, 12, 1), 5, 20, False),
        case("without chunks, a token too long", (1, 1), (6, 13, 1), 5, 20, False),
        case("without chunks, nothing left", (1, 1), (18, 1), 5, 20, False),
        case("without chunks, the first prompt is longer than the budget", (), (10,), 4, 5, False),
        case("nobody", (), (), 3, 10),
        case("nobody waits", (1, 1, 1), (), 3, 10),
        case("nobody runs", (), (4, 2, 9), 3, 10),
        case("nobody runs, two seats", (), (4, 2, 9), 2, 100),
        case("no seat free", (1, 1, 1), (4, 2), 3, 100),
        case("one seat free", (1, 1, 1), (4, 2), 4, 100),
        case("a prompt is being read, before those that decode", (50, 1, 1), (3,), 4, 10),
        case("between those that decode", (1, 50, 1), (3,), 4, 10),
        case("behind those that decode", (1, 1, 50), (3,), 4, 10),
        case("its rest fits, and leaves some", (1, 7, 1), (3, 9), 5, 12),
        case("its rest fits exactly", (1, 7, 1), (3, 9), 5, 9),
        case("its rest fits, one token is left", (1, 7, 1), (3, 9), 5, 10),
        case("two prompts are being read", (9, 1, 8, 1), (3,), 6, 15),
        case("two prompts are being read, the first takes all", (30, 1, 8, 1), (3,), 6, 15),
        case("a budget of one for two that decode", (1, 1), (2,), 4, 1),
        case("a budget for some of those that decode", (1, 1, 1, 1), (2,), 6, 3),
        case("one token is left for a prompt that is being read", (1, 50, 1), (3,), 4, 3),
        case("without chunks, a prompt is being read", (1, 50), (3, 2), 4, 10, False),
        case("prompts of one token wait", (1,), (1, 1, 1), 3, 10),
        case("a prompt with two tokens left", (2, 1), (4,), 3, 4),
        case("the last waiting one gets one token", (1, 1), (3, 4, 8), 6, 10),
        case("the shortest waits last", (1,), (9, 8, 2), 3, 40),
        case("long prompts", (1, 5000), (8000, 3), 4, 6000),
        case(f"{many} decode, {many} wait", (1,) * many, (3,) * many, 2 * many, 1300),
        case("600 decode, 600 join", (1,) * 600, (2,) * 600, 1200, 1800, public=False),
        case("many seats, a large budget", (1,), (far, 9, 8, 7, 6, 5, 4), far, 2 * far),
        Case("ids in no order, one of them 0", (running, waiting, 7, 18, True)),
        Case("the same, but those that ran wait", (waiting, running, 7, 18, True)),
        Case("the same, the running ones reversed", (running[::-1], waiting, 7, 18, True)),
        Case("the same, the waiting ones reversed", (running, waiting[::-1], 7, 18, True)),
        case("a budget of 200,000", (1, 150_000), (60_000,), 3, 200_000),
        case("1,000 decode, 1,000 wait", (1,) * 1000, (3,) * 1000, 2000, 4000, public=False),
        case("1,000 are being read", (2,) * 1000, (3,) * 1000, 2000, 5000, public=False),
        drawn("fresh 1", True),
        drawn("fresh 2", False),
        drawn("fresh 3", False),
    ]


EXERCISE = Exercise(
    id="continuous_batching-step",
    title="One pass of a scheduler",
    kind="kernel",
    points=5,
    minutes=18,
    entries=("schedule",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Keep what is left of the budget in a variable. Whose token must not be late?",
        (
            "First those with one missing token, then running ones with more, each min(missing,"
            " left). Then whoever waits, as long as there is a seat, in order."
        ),
        (
            "Seats that are free: seats − len(running). Stop at the first that gets nothing, or,"
            " without chunks, less than it misses."
        ),
    ),
    ranges={"seats": (2, past(2048)), "budget": (1, 200_000)},
    recall=(
        "A prompt does not fit into what is left of a pass. Why may no shorter one overtake it?",
        "Under a steady stream of short prompts the long one would wait for ever.",
    ),
)
