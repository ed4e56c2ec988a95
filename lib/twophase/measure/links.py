"""What the links between ranks can do, fitted to a trace, and what a trace would take on others.

Both are the theory's model (`theory.links`): a collective is so many hops and so many bytes, one
after the other, in a ring. Gloo may use another algorithm, and its processes share the cores of
this machine with whatever else runs: the fit says how far it misses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from twophase.theory.links import Link

from .collectives import meetings, met_s
from .events import Event
from .fit import fit_seconds

# How the theory prices what it has no word for: a broadcast sends what a gathering sends, and a
# barrier is a sum of next to nothing.
PRICED_AS = {"broadcast": "all_gather", "barrier": "all_reduce"}


@dataclass(frozen=True)
class Point:
    """One size of a collective: the median of its calls, and the middle half of them."""

    op: str
    n_ranks: int
    n_bytes: int
    seconds: float
    quartiles_s: tuple[float, float]


@dataclass(frozen=True)
class FittedLink:
    """A link, how far it misses the points it was fitted to at worst, and how far a fit to every
    other point misses those between, at worst (both relative)."""

    link: Link
    points: tuple[Point, ...]
    worst: float
    worst_held_out: float


def points(events: Iterable[Event]) -> list[Point]:
    """The medians of a trace, by collective, ranks and bytes, smallest first."""
    times: defaultdict[tuple[str, int, int], list[float]] = defaultdict(list)
    for calls in meetings(events):
        kind, n_bytes = _kind_and_bytes(calls)
        times[kind, len(calls[0]["group"]), n_bytes].append(met_s(calls))
    return [
        Point(
            *key, median(found), (sorted(found)[len(found) // 4], sorted(found)[-len(found) // 4])
        )
        for key, found in sorted(times.items())
    ]


def fit_link(events: Iterable[Event], name: str = "this machine") -> FittedLink:
    """Rate and hop that explain a trace best, misses taken relatively.

    Raises ValueError if the trace cannot tell hops from bytes: it needs collectives of several
    sizes, at least four, of two or more ranks.
    """
    found = [p for p in points(events) if p.n_ranks > 1 and p.n_bytes]
    if len(found) < 4:
        raise ValueError(
            f"a link is fitted to collectives of at least 4 sizes; this trace has {len(found)}."
        )
    link, worst = _fit(found, name)
    other, _ = _fit(found[::2], name)
    missed = [abs(_price(p, other) / p.seconds - 1) for p in found[1::2]]
    return FittedLink(link, tuple(found), worst, max(missed))


def price_s(events: Iterable[Event], link: Link) -> float:
    """Seconds of all meetings of a trace on a link, none at the same time as another, for the rank
    that has the most of them. Every group is one axis of the mesh."""
    return _of_busiest(
        events, lambda calls: _price_of(*_kind_and_bytes(calls), len(calls[0]["group"]), link)
    )


def sending_s(events: Iterable[Event]) -> float:
    """Seconds that the same meetings really took, from when the last rank came to each."""
    return _of_busiest(events, met_s)


def _of_busiest(events: Iterable[Event], seconds: Callable[[Sequence[Event]], float]) -> float:
    total: defaultdict[int, float] = defaultdict(float)
    for calls in meetings(events):
        took = seconds(calls)
        for event in calls:
            total[event["rank"]] += took
    return max(total.values(), default=0.0)


def _kind_and_bytes(calls: Sequence[Event]) -> tuple[str, int]:
    """What the theory calls a meeting, and the bytes that it prices: of the whole array, of what
    the fullest rank holds, of the message."""
    op = "send" if calls[0]["peer"] is not None else str(calls[0]["op"])
    return PRICED_AS.get(op, op), max(event["n_bytes"] for event in calls)


def _price_of(kind: str, n_bytes: int, n_ranks: int, link: Link) -> float:
    return link.time_s(kind, max(n_bytes, 1), (n_ranks,))


def _price(point: Point, link: Link) -> float:
    return _price_of(point.op, point.n_bytes, point.n_ranks, link)


def _fit(found: Sequence[Point], name: str) -> tuple[Link, float]:
    """The theory's model is linear in the time of a hop and the time of a byte: its own function,
    with one of them 1 and the other next to nothing, says how much of each a point has."""
    never = 1e30
    hops = [_price(p, Link(name, never, 1.0)) for p in found]
    n_bytes = [_price(p, Link(name, 1.0, 0.0)) for p in found]
    fit = fit_seconds({"hop": hops, "byte": n_bytes}, [p.seconds for p in found])
    byte_s = fit.cost["byte"]
    if not byte_s:
        raise ValueError("the times of this trace do not grow with its bytes: send larger tensors.")
    return Link(name, 1 / byte_s, fit.cost["hop"]), fit.worst
