"""Ways to fill experts' bins, and what goes wrong in them: mixture_of_experts-seat_tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

Routing = list[list[int]]
Places = list[list[int | None]]
Seating = Callable[[Routing, int, int], Places]


def _seats(
    experts: Routing,
    E: int,
    percent: int,
    *,
    fault: str = "",
) -> Places:
    """As the exercise mixture_of_experts-seats has it, but for one fault."""
    n, k = len(experts), len(experts[0])
    capacity = _capacity(n, k, E, percent, fault)
    taken = [0] * E
    places: Places = [[None] * k for _ in experts]
    before = -1
    for t, j in _order(n, k, fault):
        if fault == "bins" and j != before:
            taken = [0] * E
        before, e = j, experts[t][j]
        if taken[e] < capacity or (fault == "more" and taken[e] == capacity):
            places[t][j] = taken[e] + (fault == "from one")
            taken[e] += 1
    if fault == "whole":
        return [[None] * k if None in row else row for row in places]
    return places


def _capacity(n: int, k: int, E: int, percent: int, fault: str) -> int:
    visits = n if fault == "k" else n * k
    share = 100 if fault == "percent" else percent
    return visits * share // (100 * E) if fault == "down" else -(-visits * share // (100 * E))


def _order(n: int, k: int, fault: str) -> Iterator[tuple[int, int]]:
    tokens = range(n - 1, -1, -1) if fault == "last" else range(n)
    if fault == "token":
        yield from ((t, j) for t in tokens for j in range(k))
    else:
        yield from ((t, j) for j in range(k) for t in tokens)


right: Seating = _seats

MUTANTS: dict[str, Seating] = {
    f"that {name}": partial(_seats, fault=fault)
    for name, fault in {
        "goes token by token": "token",
        "rounds the room down": "down",
        "has room for one visit a token, whatever k is": "k",
        "seats one visit too many": "more",
        "counts places from 1": "from one",
        "empties the bins before the second choices": "bins",
        "seats the last token first": "last",
        "leaves the percentage out": "percent",
        "takes all places from a token that lost one": "whole",
    }.items()
}
