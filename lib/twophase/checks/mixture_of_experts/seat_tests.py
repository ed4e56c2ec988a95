"""mixture_of_experts-seat_tests: write the cases that find every broken way to fill bins."""

from __future__ import annotations

from typing import Any

from twophase.checks.compare import EXACT
from twophase.checks.exercise import Exercise
from twophase.checks.misconceptions import Misconceptions
from twophase.checks.mixture_of_experts._broken_seats import MUTANTS, Routing, Seating, right
from twophase.checks.written_cases import WrittenCases

wrong = Misconceptions()

Written = dict[str, Any]
KEYS = {"experts", "E", "percent", "seats"}
MOST_TOKENS, MOST_EXPERTS, MOST_PERCENT, MOST_CASES = 20, 12, 1000, 20


def passes(seating: Seating, case: Written) -> bool:
    """Whether a way to seat visits shows what the case expects."""
    experts = [list(row) for row in case["experts"]]
    return seating(experts, case["E"], case["percent"]) == [list(row) for row in case["seats"]]


def problem(written: Any) -> str:
    """What makes the cases no cases, in one sentence; empty if nothing does."""
    if not isinstance(written, list | tuple) or not 1 <= len(written) <= MOST_CASES:
        return "seat_tests() must return a list of 1 to 20 cases"
    for case in written:
        if not isinstance(case, dict) or set(case) != KEYS:
            return 'a case is a dict with the keys "experts", "E", "percent" and "seats"'
        E, percent = case["E"], case["percent"]
        if type(E) is not int or type(percent) is not int:
            return '"E" and "percent" are whole numbers'
        if not 1 <= E <= MOST_EXPERTS or not 1 <= percent <= MOST_PERCENT:
            return "E is from 1 to 12, and percent from 1 to 1,000"
        if not _is_routing(case["experts"], E):
            return '"experts" is a list of 1 to 20 lists of k different experts, from 0 to E − 1'
        if not _is_places(case["seats"], case["experts"]):
            return '"seats" is a list like "experts", of whole numbers and None'
    return ""


def _is_rows(rows: Any) -> bool:
    return (
        isinstance(rows, list | tuple)
        and 1 <= len(rows) <= MOST_TOKENS
        and all(isinstance(row, list | tuple) and row for row in rows)
        and len({len(row) for row in rows}) == 1
    )


def _is_routing(rows: Any, E: int) -> bool:
    return _is_rows(rows) and all(
        all(type(e) is int and 0 <= e < E for e in row) and len(set(row)) == len(row)
        for row in rows
    )


def _is_places(rows: Any, experts: Any) -> bool:
    return (
        _is_rows(rows)
        and (len(rows), len(rows[0])) == (len(experts), len(experts[0]))
        and all(place is None or type(place) is int for row in rows for place in row)
    )


def _expectation(case: Written) -> str:
    """What a case that a right seating fails expects of it; empty if it passes."""
    if passes(right, case):
        return ""
    for name, seating in MUTANTS.items():
        if passes(seating, case):
            return f"expect a seating {name}"
    return f"expect {case['seats']} for {case['experts']}, E={case['E']}, percent={case['percent']}"


WRITTEN = WrittenCases(
    "seat_tests", "a right seating", "a seating", MUTANTS, problem, passes, _expectation
)


def _case(experts: Routing, E: int, percent: int, seating: Seating = right) -> Written:
    return {"experts": experts, "E": E, "percent": percent, "seats": seating(experts, E, percent)}


PAIRS = [[0, 1], [1, 0], [1, 2]]


def _cases(seating: Seating = right) -> list[Written]:
    """Second choices that find no room, a share that does not divide; ample room."""
    return [_case(PAIRS, 3, 50, seating), _case(PAIRS, 4, 100, seating)]


def reference() -> list[Written]:
    """The right answer (one of many)."""
    return _cases()


@wrong(
    "tests with a capacity factor that drops nothing",
    "In all your cases every visit finds room: what happens when an expert is full is what goes"
    " wrong.",
)
def room_for_all() -> list[Written]:
    return [_case(PAIRS, 3, 1000), _case([[0], [1], [0]], 3, 300)]


@wrong(
    "Switch Transformer, whose k is 1",
    "Each of your tokens has one choice: second choices have faults of their own.",
)
def one_choice() -> list[Written]:
    return [_case([[0], [0], [1], [0]], 3, 100), _case([[0], [0], [0]], 2, 50)]


@wrong(
    "plausible",
    "In all your cases the room comes out whole: take one in which it must be rounded.",
)
def divides_evenly() -> list[Written]:
    return [_case(PAIRS, 3, 50), _case([[0, 1], [0, 1], [1, 0], [0, 1]], 2, 75)]


@wrong(
    "a factor of 1 everywhere",
    "percent is 100 in all your cases: whoever leaves it out passes them.",
)
def even_share_only() -> list[Written]:
    return [_case(PAIRS, 3, 100), _case(PAIRS, 4, 100), _case([[0, 1]] * 3, 3, 100)]


@wrong(
    "Switch Transformer's order, whose k is 1",
    "You expect places token by token: all first choices go before any second.",
)
def expects_token_by_token() -> list[Written]:
    return _cases(MUTANTS["that goes token by token"])


@wrong("int(capacity)", "You expect room that was rounded down: it is rounded up.")
def expects_rounded_down() -> list[Written]:
    return _cases(MUTANTS["that rounds the room down"])


@wrong("plausible", "You expect places that count from 1: the first one is 0.")
def expects_from_one() -> list[Written]:
    return _cases(MUTANTS["that counts places from 1"])


EXERCISE = Exercise(
    id="mixture_of_experts-seat_tests",
    title="Find every broken bin",
    kind="test",
    points=4,
    minutes=15,
    entries=("seat_tests",),
    cases=WRITTEN.cases,
    observe=WRITTEN.observe,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Some expert must be full, and tokens need second choices that come into its bin.",
        "Take one case whose room is no whole number before it is rounded, and one whose percent is"
        " not 100.",
        "Two cases do it: [[0, 1], [1, 0], [1, 2]] with E=3, percent=50, and with E=4, percent=100."
        " Seat them by hand: all first choices, then all second ones.",
    ),
    recall=(
        "Which visits must a test of experts' bins contain?",
        "Such that find their expert full, first choices and second ones, in room that was rounded"
        " up.",
    ),
)
