"""continuous_batching-admit: whom to serve, in which order, and whom to refuse."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT, plain
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Request = dict[str, int]  # id, read_ms, due_ms
Queue = list[Request]


def reference(waiting: Queue) -> list[int]:
    """The right answer (Moore, 1968)."""
    kept: Queue = []
    spent = 0
    for r in sorted(waiting, key=lambda r: r["due_ms"]):
        kept.append(r)
        spent += r["read_ms"]
        if spent > r["due_ms"]:  # one must go: the longest takes most time from the others
            longest = max(kept, key=lambda r: r["read_ms"])
            kept.remove(longest)
            spent -= longest["read_ms"]
    return [r["id"] for r in kept]


def in_time(waiting: Queue, order: list[int]) -> int:
    """How many of those served, one after the other, are read when they are due."""
    by_id = {r["id"]: r for r in waiting}
    ends = accumulate(by_id[i]["read_ms"] for i in order)
    return sum(end <= by_id[i]["due_ms"] for i, end in zip(order, ends, strict=True))


def skipping(waiting: Queue, key: Callable[[Request], Any]) -> list[int]:
    """In the order of a key, whoever would be late left out."""
    order, spent = [], 0
    for r in sorted(waiting, key=key):
        if spent + r["read_ms"] <= r["due_ms"]:
            order.append(r["id"])
            spent += r["read_ms"]
    return order


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


@wrong(
    "first come, first served",
    "You serve everybody in the order of the queue. Those that can be in time no more hold up those"
    " that can.",
)
def as_they_came(waiting: Queue) -> list[int]:
    return [r["id"] for r in waiting]


@wrong(
    "plausible",
    "You keep the order of the queue, and leave out who would be late. A long one at the head still"
    " makes many others late.",
)
def as_they_came_but_the_late(waiting: Queue) -> list[int]:
    return skipping(waiting, lambda r: 0)


@wrong(
    "earliest deadline first",
    "You go by what is due first, and refuse nobody: in an overrun queue the first one that is late"
    " makes all others late.",
)
def by_deadline(waiting: Queue) -> list[int]:
    return [r["id"] for r in sorted(waiting, key=lambda r: r["due_ms"])]


@wrong(
    "earliest deadline first",
    "You leave out whoever would be late at its turn. Better give up the longest of those before"
    " it: that makes more room.",
)
def by_deadline_but_the_late(waiting: Queue) -> list[int]:
    return skipping(waiting, lambda r: r["due_ms"])


@wrong(
    "shortest job first",
    "You serve the shortest first. One that is a little longer, but due at once, is lost for one"
    " that had time.",
)
def shortest_but_the_late(waiting: Queue) -> list[int]:
    return skipping(waiting, lambda r: r["read_ms"])


@wrong(
    "least slack first",
    "You serve whoever has least time to spare: long ones come first, and each costs several short"
    " ones.",
)
def least_slack_but_the_late(waiting: Queue) -> list[int]:
    return skipping(waiting, lambda r: r["due_ms"] - r["read_ms"])


_add(
    "shortest_given_up",
    {"longest = max(kept": "longest = min(kept"},
    "plausible",
    "When somebody would be late you give up the shortest: giving up the longest makes most room.",
)
_add(
    "just_in_time_is_late",
    {"spent > r[": "spent >= r["},
    "plausible",
    "You give up a request that would be read at the very millisecond at which it is due: that is"
    " in time.",
)


@wrong(
    "plausible",
    "You give up the longest of the whole queue as long as anybody would be late. One that is due"
    " much later makes no room for those that are late now: look at those before it.",
)
def longest_of_all(waiting: Queue) -> list[int]:
    kept = sorted(waiting, key=lambda r: r["due_ms"])
    while in_time(kept, [r["id"] for r in kept]) < len(kept):
        kept.remove(max(kept, key=lambda r: r["read_ms"]))
    return [r["id"] for r in kept]


FACTS = ("the order", "requests in time, against the best")


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """Whether it is an order, and how near its requests in time are to the most."""
    (waiting,) = case.args
    order = plain(answer.call("admit", waiting))
    ids = {r["id"] for r in waiting}
    if not isinstance(order, list | tuple) or any(type(i) is not int for i in order):
        return dict(zip(FACTS, ("no list of ids, ints", ""), strict=True))
    if len(set(order)) < len(order) or not set(order) <= ids:
        said = "ids that are not in the queue, or one twice"
        return dict(zip(FACTS, (said, ""), strict=True))
    best, found = in_time(waiting, reference(waiting)), in_time(waiting, list(order))
    return dict(zip(FACTS, ("valid", _nearness(found, best)), strict=True))


def _nearness(found: int, best: int) -> str:
    if 20 * found >= 19 * best:
        return "within 5%"
    tenths = 10 * found // best
    return f"{10 * tenths}% or more, below {min(95, 10 * tenths + 10)}%"


def _queue(*rows: tuple[int, int]) -> Queue:
    """Requests of (read_ms, due_ms), as they came."""
    return [{"id": 10 + i, "read_ms": n, "due_ms": due} for i, (n, due) in enumerate(rows)]


def _drawn(r: random.Random, n: int, load: float) -> Queue:
    """A queue that takes `load` times as long as the longest may wait; ids in any order."""
    reads = [1 + min(999, int(r.expovariate(1 / 100))) for _ in range(n)]
    end = int(sum(reads) / load)
    rows = [(read, r.randrange(read, read + end + 1)) for read in reads]
    ids = r.sample(range(5 * n), n)
    return [{"id": i, "read_ms": a, "due_ms": b} for i, (a, b) in zip(ids, rows, strict=True)]


# found by trying: ten orders with the late ones left out (by arrival, due_ms, read_ms, their sum,
# difference, product, quotient, ...) have five of these in time at most, and six can be
NO_RULE_OF_THUMB = (
    *((200, 1210), (170, 880), (80, 1040), (290, 640), (290, 960)),
    *((330, 530), (520, 610), (160, 690), (490, 520)),
)


def cases(rng: random.Random) -> list[Case]:
    """Queues in which one rule of thumb after the other fails; nobody, everybody, nobody in time;
    just in time; an overrun server's, small and large."""
    fixed = random.Random(15)
    blocked = [(900, 1000), *((100, 1000 + i) for i in range(9))]
    return [
        Case("all can be in time", (_queue((100, 150), (200, 400), (50, 500)),)),
        Case(
            "in time in the order of deadlines only", (_queue((200, 400), (50, 500), (100, 100)),)
        ),
        Case("nobody waits", ([],)),
        Case("one request", (_queue((100, 100)),)),
        Case("one request, too late", (_queue((100, 99)),)),
        Case("one millisecond too late, and just in time", (_queue((100, 99), (100, 199)),)),
        Case("nobody can be in time", (_queue((100, 50), (200, 199), (9, 0)),)),
        Case("all just in time", (_queue((100, 100), (50, 150), (25, 175), (5, 180)),)),
        Case("the first is hopeless", (_queue((500, 100), (10, 110), (10, 120), (10, 130)),)),
        Case("a long one, due first", (_queue(*blocked),)),
        Case("a long one, due first, came last", (_queue(*blocked[::-1]),)),
        Case("one longer than another, due at once", (_queue((100, 900), (150, 150)),)),
        Case(
            "three pairs of these",
            (_queue((100, 2000), (150, 150), (110, 2000), (160, 310), (120, 2000), (170, 480)),),
        ),
        Case(
            "little time to spare for the longest",
            (_queue((700, 720), (100, 400), (100, 500), (100, 600), (100, 730)),),
        ),
        Case(
            "several must go",
            (
                _queue(
                    (300, 300), (10, 310), (400, 420), (20, 440), (500, 520), (30, 560), (40, 600)
                ),
            ),
        ),
        Case(
            "two at once, a long one that has time",
            (_queue((60, 100), (60, 110), (500, 5000), (400, 6000)),),
        ),
        Case("every rule of thumb loses one of six", (_queue(*NO_RULE_OF_THUMB),)),
        Case("equal in all", (_queue(*[(100, 350)] * 6),)),
        Case("12 requests, twice too many", (_drawn(fixed, 12, 2.0),)),
        Case("40 requests, a little too many", (_drawn(fixed, 40, 1.2),)),
        Case("40 requests, three times too many", (_drawn(fixed, 40, 3.0),)),
        Case("300 requests, twice too many", (_drawn(fixed, past(300), 2.0),), public=False),
        Case("1,000 requests, a little too many", (_drawn(fixed, 1000, 1.2),), public=False),
        Case("fresh 1", (_drawn(rng, 20, 1.5),)),
        Case("fresh 2", (_drawn(rng, 60, 2.5),), public=False),
    ]


EXERCISE = Exercise(
    id="continuous_batching-admit",
    title="Whom to refuse",
    kind="judgement",
    points=5,
    minutes=16,
    entries=("admit",),
    cases=cases,
    observe=observe,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        (
            "If all that you serve can be in time, in which order are they? And when somebody would"
            " be late, who should go, so that most room is made?"
        ),
        "Go by due_ms and add up read_ms. As soon as the sum is past due_ms somebody must go.",
        (
            "Give up the one with the largest read_ms of all that you have taken so far, take its"
            " time off the sum, and go on."
        ),
    ),
    recall=(
        "An overrun server wants most requests in time. Whom should it refuse?",
        "The longest of those that stand before the first late one: its time serves most others.",
    ),
)
