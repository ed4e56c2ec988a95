"""Logs that no layout writes by itself, for sharding-which_layout: the task's rules alone say what
they are."""

from __future__ import annotations

from twophase.checks.sharding._logs import Event, Events, Model, event

MODEL: Model = {
    "L": 3, "D": 8, "F": 16, "V": 52, "N": 4, "K": 4, "H": 2, "B": 4, "n": 4, "bytes": 2,
}  # fmt: skip
WHOLE = MODEL["B"] * MODEL["D"] * MODEL["bytes"]


def _sum(layer: int | None, n_bytes: int = WHOLE, group: int = MODEL["n"]) -> Event:
    return event("all_reduce", layer, group, n_bytes)


def odd() -> list[tuple[str, Events]]:
    """Each is named by what the rules say of it, or do not ask."""
    scattered = event("reduce_scatter", 0, MODEL["n"], WHOLE)
    exchanged = event("all_to_all", 0, MODEL["n"], WHOLE)
    return [
        ("one sum in a layer", [_sum(0), _sum(1), _sum(1)]),
        ("four sums in a layer", [_sum(0)] * 4),
        ("a sum of more than B·D numbers", [_sum(0, 2 * WHOLE), _sum(0)]),
        ("a sum of one sequence outside the layers", [_sum(None, WHOLE // 4), _sum(0), _sum(0)]),
        ("three sums outside the layers", [*[_sum(None)] * 3, _sum(0), _sum(0)]),
        ("three sums in a layer, one among 2 ranks", [_sum(0), _sum(0), _sum(0, group=2)]),
        ("three sums in a layer, all among 2 ranks", [_sum(0, group=2)] * 3),
        ("a short sum among 2 ranks", [_sum(0, WHOLE - 16, group=2), _sum(0)]),
        ("three sums in each layer, the layers by turns", [_sum(i) for i in (0, 1, 2)] * 3),
        ("two sums in each layer, the layers by turns", [_sum(i) for i in (0, 1, 2)] * 2),
        ("a reduce-scatter and an all-to-all", [scattered, exchanged]),
    ]
