"""Logs of what one rank noted of a decode step, for sharding-which_layout."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Event = dict[str, Any]  # op, layer (None outside the layers), group, n_bytes, sent_bytes
Events = list[Event]
Model = dict[str, int]  # L, D, V, N, K, H, F, B, n, bytes
LABELS = ("tensor", "batch", "length", "gathered", "stationary", "pipeline", "replicas")


def event(op: str, layer: int | None, n: int, n_bytes: int) -> Event:
    factor = 2 if op == "all_reduce" else 1
    sent = n_bytes if op == "send" else 0 if op == "receive" else factor * n_bytes * (n - 1) // n
    return {"op": op, "layer": layer, "group": n, "n_bytes": n_bytes, "sent_bytes": sent}


def _sums(m: Model) -> list[tuple[str, int, int]]:
    return [("all_reduce", m["n"], m["B"] * m["D"] * m["bytes"])]


def _layer(layout: str, m: Model) -> list[tuple[str, int, int]]:
    """The events of one layer: op, ranks, bytes."""
    n, B, b = m["n"], m["B"], m["bytes"]
    heads, outputs = (m["N"] + 2 * m["K"]) * m["H"], m["N"] * m["H"]
    if layout == "gathered":
        weights = [heads * m["D"], outputs * m["D"], 3 * m["D"] * m["F"]]
        return [("all_gather", n, w * b) for w in weights]
    if layout == "stationary":
        x, yz = 2, n // 2
        wide = [(heads, outputs), (2 * m["F"], m["F"])]
        return [
            step
            for many, one in wide
            for step in (
                ("all_gather", yz, B * m["D"] * b // x),
                ("reduce_scatter", x, B * many * b // yz),
                ("all_gather", x, B * one * b // yz),
                ("reduce_scatter", yz, B * m["D"] * b // x),
            )
        ]
    if layout == "batch":
        exchange = [("all_to_all", n, B * w * b // n) for w in (heads, outputs)]
        return [*exchange, *_sums(m), *_sums(m)]
    if layout == "length":
        partial = B * m["N"] * (m["H"] + 2) * 4
        asked = [("all_gather", n, B * heads * b), ("all_to_all", n, partial)]
        return [*asked, *_sums(m), *_sums(m)]
    return [*_sums(m), *_sums(m)] if layout == "tensor" else []


def log(layout: str, m: Model, vocabulary: bool = True) -> Events:
    """A step in this layout; `vocabulary`: with rows of embedding and head cut as well, where the
    layout has all ranks work on all tokens."""
    n, B = m["n"], m["B"]
    if layout == "pipeline":
        row = B * m["D"] * m["bytes"]
        return [event("receive", 0, 2, row), event("send", m["L"] - 1, 2, row)]
    steps = _layer(layout, m)
    middle = [event(op, i, ranks, size) for i in range(m["L"]) for op, ranks, size in steps]
    if not vocabulary or layout in ("gathered", "replicas"):
        return middle
    first = event("all_reduce", None, n, B * m["D"] * m["bytes"])
    return [first, *middle, event("all_gather", None, n, B * m["V"] * 4)]


def model(rng: random.Random, **fixed: int) -> Model:
    """Widths that n divides."""
    n = fixed.get("n", 4)
    drawn = {
        "L": rng.randrange(2, 6),
        "D": n * rng.randrange(4, 40),
        "F": n * rng.randrange(8, 80),
        "N": 2 * n * rng.randrange(1, 3),
        "K": n,
        "H": 2 * rng.randrange(2, 9),
        "V": n * rng.randrange(50, 200),
        "B": n * rng.randrange(1, 5),
        "n": n,
        "bytes": rng.choice((2, 4)),
    }
    return {**drawn, **fixed}


def reduced_in_part(events: Events, m: Model, at: int, n_rows: int = 1) -> Events:
    """The all-reduce number `at` has the first sequences only."""

    def part(e: Event) -> Events:
        return [event("all_reduce", e["layer"], e["group"], e["n_bytes"] // m["B"] * n_rows)]

    return _changed(events, at, part)


def reduced_twice(events: Events, at: int) -> Events:
    """The all-reduce number `at` is made twice."""
    return _changed(events, at, lambda e: [e, dict(e)])


def _changed(events: Events, at: int, change: Callable[[Event], Events]) -> Events:
    """Number `at` of the all-reduces inside layers, changed."""
    places = [i for i, e in enumerate(events) if e["op"] == "all_reduce" and e["layer"] is not None]
    place = places[at]
    return [*events[:place], *change(events[place]), *events[place + 1 :]]
