"""continuous_batching-starves: shortest first, exposed, hidden and repaired."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT, plain
from twophase.checks.edges import past
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Arrival = dict[str, int]  # at_s, tokens
Waiting = list[dict[str, Any]]  # id, arrival_s, tokens
MOST, STARVED_S, IN_TURN_S, SOON_S = 60, 20, 2, 4


def next_id(waiting: Waiting, now_s: float, patience_s: float) -> int:
    """The right answer."""
    tired = [r for r in waiting if now_s - r["arrival_s"] >= patience_s]
    if tired:
        return int(min(tired, key=lambda r: r["arrival_s"])["id"])
    return int(min(waiting, key=lambda r: (r["tokens"], r["arrival_s"]))["id"])


def expose() -> list[Arrival]:
    """The right answer (one of many)."""
    return [{"at_s": 0, "tokens": 9}] + [{"at_s": i, "tokens": 1} for i in range(25)]


def harmless() -> list[Arrival]:
    """The right answer (one of many)."""
    return [{"at_s": 0, "tokens": 9}, {"at_s": 0, "tokens": 5}, {"at_s": 0, "tokens": 1}]


@wrong(
    "a queue that was simply long",
    "In your trace somebody would wait for more than 2 s in the order of arrival, too: the server"
    " is overrun, whatever the order.",
    entry="expose",
)
def exposed_by_a_crowd() -> list[Arrival]:
    return [{"at_s": 0, "tokens": i + 1} for i in range(30)]


@wrong(
    "plausible",
    "Nobody starves in your trace: some request must wait for 20 s or longer. Let shorter ones"
    " come, one a second, for longer than that.",
    entry="expose",
)
def exposed_too_short() -> list[Arrival]:
    return [{"at_s": 0, "tokens": 9}] + [{"at_s": i, "tokens": 1} for i in range(15)]


@wrong(
    "plausible",
    "In your harmless trace nobody is overtaken: the printed rule serves it in the order of"
    " arrival.",
    entry="harmless",
)
def harmless_in_order() -> list[Arrival]:
    return [{"at_s": 0, "tokens": 1}, {"at_s": 1, "tokens": 5}, {"at_s": 2, "tokens": 9}]


@wrong(
    "plausible",
    "In your harmless trace somebody waits for more than 4 s.",
    entry="harmless",
)
def harmless_that_is_not() -> list[Arrival]:
    return [{"at_s": 0, "tokens": 9}] + [{"at_s": i, "tokens": 1} for i in range(8)]


def _repair(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, {"next_id": replaced(next_id, parts)}, seen, says)


_repair(
    "unrepaired",
    {"    if tired:\n": "    if False:\n"},
    "shortest job first",
    "Your rule still starves the long: whoever has waited for patience_s goes first.",
)
_repair(
    "in_the_order_of_arrival",
    {"    if tired:\n": "    if waiting:\n        tired = waiting\n"},
    "first come, first served",
    "You serve in the order of arrival. Nobody starves, but everybody waits for the long ones:"
    " as long as nobody has waited for patience_s, the shortest goes first.",
)
_repair(
    "patience_just_over",
    {">= patience_s": "> patience_s"},
    "plausible",
    "Whoever has waited for exactly patience_s goes first already.",
)
_repair(
    "shortest_of_the_tired",
    {'min(tired, key=lambda r: r["arrival_s"])': 'min(tired, key=lambda r: r["tokens"])'},
    "plausible",
    "Of those that have waited long enough you take the shortest: then the long ones starve among"
    " them. Take the one that arrived first.",
)
_repair(
    "latest_of_the_tired",
    {'min(tired, key=lambda r: r["arrival_s"])': 'max(tired, key=lambda r: r["arrival_s"])'},
    "plausible",
    "Of those that have waited long enough you take the last to arrive.",
)
_repair(
    "equals_by_id",
    {'(r["tokens"], r["arrival_s"])': '(r["tokens"], r["id"])'},
    "plausible",
    "Of equally long ones the first to arrive goes first. Numbers say nothing of that.",
)
_repair(
    "equals_as_they_stand",
    {'lambda r: (r["tokens"], r["arrival_s"])': 'lambda r: r["tokens"]'},
    "plausible",
    "Of equally long ones you take the first in the list. The list is in no order: take the first"
    " to arrive.",
)
_repair(
    "everybody_if_anybody_is_tired",
    {
        "    if tired:\n": (
            "    if tired:\n        return int(max(waiting, key=lambda r: r['tokens'])['id'])\n"
        )
    },
    "plausible",
    "When somebody has waited long enough you take the longest of all. It is the one that has"
    " waited longest whose turn it is.",
)


def problem(trace: Any) -> str:
    """What makes it no trace, in one sentence; empty if nothing does."""
    if not isinstance(trace, list | tuple) or not 1 <= len(trace) <= MOST:
        return "a trace is a list of 1 to 60 requests"
    for one in trace:
        if not isinstance(one, dict) or set(one) != {"at_s", "tokens"}:
            return 'a request is a dict with the keys "at_s" and "tokens"'
        if any(type(x) is not int for x in one.values()):
            return "at_s and tokens are ints"
        if not 0 <= one["at_s"] <= 1000 or not 1 <= one["tokens"] <= 1000:
            return "at_s is 0 to 1,000, tokens 1 to 1,000"
    return ""


def waits(trace: list[Arrival], printed: bool) -> tuple[list[int], list[int]]:
    """(who was served, in order; how long each waited) by a server that starts one request at every
    full second: the printed rule's, or in the order of arrival."""
    left = list(range(len(trace)))
    order, waited, now = [], [0] * len(trace), 0
    while left:
        there = [i for i in left if trace[i]["at_s"] <= now]
        if there:
            keys = {i: (trace[i]["tokens"] if printed else 0, trace[i]["at_s"], i) for i in there}
            i = min(there, key=lambda i: keys[i])
            left.remove(i)
            order.append(i)
            waited[i] = now - trace[i]["at_s"]
        now += 1
    return order, waited


EXPOSED = ("the trace", "longest wait in the order of arrival is 2 s at most", "somebody starves")
HIDDEN = ("the trace", "somebody is overtaken", "nobody waits for more than 4 s")


def observe(answer: Answer, case: Case) -> Any:
    """Whether `expose` shows the fault, whether `harmless` hides it, or whom the repaired rule
    takes."""
    if case.args[0] == "expose":
        trace = plain(answer.call("expose"))
        if said := problem(trace):
            return {EXPOSED[0]: said, **dict.fromkeys(EXPOSED[1:], False)}
        in_turn, printed = (max(waits(trace, p)[1]) for p in (False, True))
        facts = "valid", in_turn <= IN_TURN_S, printed >= STARVED_S
        return dict(zip(EXPOSED, facts, strict=True))
    if case.args[0] == "harmless":
        trace = plain(answer.call("harmless"))
        if said := problem(trace):
            return {HIDDEN[0]: said, **dict.fromkeys(HIDDEN[1:], False)}
        order, waited = waits(trace, True)
        overtaken = order != waits(trace, False)[0]
        return dict(zip(HIDDEN, ("valid", overtaken, max(waited) <= SOON_S), strict=True))
    return answer.call("next_id", *case.args)


def _waiting(*rows: tuple[int, float, int]) -> Waiting:
    return [{"id": i, "arrival_s": at, "tokens": n} for i, at, n in rows]


def cases(rng: random.Random) -> list[Case]:
    """The two traces, then the repaired rule: nobody, one and several out of patience, exactly and
    just not; equal lengths in any order; one that waits; thousands."""

    def drawn(name: str, public: bool) -> Case:
        ids = rng.sample(range(100), 8)
        rows = [
            (i, rng.randrange(0, 40) / 4 + n / 64, rng.randrange(1, 30)) for n, i in enumerate(ids)
        ]
        return Case(name, (_waiting(*rows), 10.0, rng.choice((1.0, 5.0, 50.0))), public=public)

    three = _waiting((7, 1.0, 40), (3, 2.0, 5), (5, 3.0, 12))
    short = _waiting((7, 1.0, 4), (3, 2.0, 5), (5, 3.0, 12))
    equal = _waiting((7, 6.0, 8), (9, 4.0, 8), (2, 5.0, 8), (8, 3.0, 9))
    tired = _waiting((4, 2.0, 3), (6, 1.0, 50), (2, 3.0, 70), (5, 7.5, 1), (8, 1.5, 2))
    later = 2.0 * (1 + 1e-8)
    crowd = _waiting(*((i, (7 * i % past(2048)) / 8, 1 + 5 * i % 997) for i in range(1, 400)))
    queue = _waiting(*((i, i / 8, 1001 - i) for i in range(1, 1001)))
    return [
        Case("a trace that shows the fault", ("expose",)),
        Case("a trace that hides it", ("harmless",)),
        Case("three wait, nobody for long", (three, 4.0, 10.0)),
        # whoever keeps results by how many wait is wrong here
        Case("the same, the first one is the shortest", (short, 4.0, 10.0)),
        Case("the first of three has waited long enough", (three, 7.0, 5.5)),
        Case("it has waited for exactly patience_s", (three, 6.0, 5.0)),
        Case("an eighth of a second less", (three, 5.875, 5.0)),
        Case("a 4,096th of a second less", (three, 6.0 - 2.0**-12, 5.0)),
        Case("a hundred-millionth less", (three, 1.0 + 5.0 * (1 - 1e-8), 5.0)),
        Case(
            "two have waited long enough, a hundred-millionth apart",
            (_waiting((4, later, 3), (6, 2.0, 50), (2, 7.0, 1)), 8.0, 5.0),
        ),
        Case(
            "equally long ones, a hundred-millionth apart",
            (_waiting((4, later, 8), (6, 2.0, 8), (2, 3.0, 9)), 4.0, 5.0),
        ),
        Case("it has waited for 5.75 s, patience_s is 5.5", (three, 6.75, 5.5)),
        Case("less than a second of patience", (_waiting((7, 1, 40), (3, 1.25, 5)), 1.75, 0.625)),
        Case("the shortest has id 0", (_waiting((0, 3.0, 5), (4, 1.0, 9)), 4.0, 10.0)),
        Case("id 0 has waited long enough", (_waiting((0, 0, 9), (1, 5, 1)), 5, 5)),
        Case("one waits, not for long", (_waiting((3, 1.0, 9)), 2.0, 5.0)),
        Case("one waits, and has waited long enough", (_waiting((3, 1.0, 9)), 9.0, 5.0)),
        Case("equally long ones, out of order", (equal, 7.0, 5.0)),
        Case("several have waited long enough", (tired, 8.0, 5.0)),
        Case("all of them have", (tired, 100.0, 5.0)),
        Case("one of them has", (tired, 8.0, 7.0)),
        Case("nobody has: the shortest came last", (tired, 8.0, 50.0)),
        Case("patience of 0: in the order of arrival", (tired, 8.0, 0.0)),
        Case("all arrived just now", (_waiting((2, 5.0, 7), (1, 5.0, 3)), 5.0, 1.0)),
        Case(
            "seconds since 1970",
            (_waiting((2, 1_767_225_600.0, 70), (1, 1_767_225_604.5, 3)), 1_767_225_605.0, 5.0),
        ),
        Case("399 wait", (crowd, 260.0, 4196.0), public=False),
        Case("399 wait, some for long", (crowd, 260.0, 100.0), public=False),
        Case(
            "1,000 wait, the last of the list is the shortest", (queue, 200.0, 500.0), public=False
        ),
        Case(
            "prompts of thousands of tokens",
            (_waiting((1, 1.0, 5000), (2, 2.0, 4999), (3, 3.0, 9000)), 4.0, 60.0),
        ),
        drawn("fresh 1", True),
        drawn("fresh 2", False),
        drawn("fresh 3", False),
    ]


EXERCISE = Exercise(
    id="continuous_batching-starves",
    title="Shortest first, and somebody never",
    kind="fault",
    points=4,
    minutes=14,
    entries=("expose", "harmless", "next_id"),
    cases=cases,
    observe=observe,
    reference={"expose": expose, "harmless": harmless, "next_id": next_id},
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "A request of 9 tokens arrives at 0. Which others must come so that it is never its turn?",
        (
            "Expose: short ones, one a second, for more than 20 s. Hide: a few at once, long ones"
            " first."
        ),
        (
            "Repair: those with now_s − arrival_s ≥ patience_s first, and of these the earliest;"
            " else the smallest pair (tokens, arrival_s)."
        ),
    ),
    recall=(
        "Shortest first lowers the mean wait. Who pays, and what is the usual repair?",
        "Long requests, which may never be served; a bound on the wait, after which arrival"
        " counts.",
    ),
)
