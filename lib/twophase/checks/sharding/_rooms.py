"""Memories of sharding-choose that a layout fills to the last byte, and that lack one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twophase.checks.sharding._layouts import LAYOUTS, loads
from twophase.checks.sharding._machines import ETHERNET, H100, SMALL

BATCH, POSITIONS, CHIPS = 16, 1024, 4

# so that replicas hold a number of bytes that float32 does not have
ODD = {"L": 25, "D": 1025, "F": 4097, "N": 16, "K": 8, "H": 65, "bytes": 1}


def rooms() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """A name, a model, a machine; each for 16 sequences of 1,024 positions on four chips."""
    leanest, whole = _held(SMALL, LAYOUTS), _held(SMALL, ["replicas"])
    odd = _held(ODD, ["replicas"])
    assert odd > 2**28
    assert odd % 32, "float32 has multiples of 32 there"
    made = [
        ("just full", SMALL, H100, leanest),
        ("a byte less: nothing fits", SMALL, H100, leanest - 1),
        ("just room for replicas", SMALL, ETHERNET, whole),
        ("a byte less: no replicas", SMALL, ETHERNET, whole - 1),
        ("odd sizes, just room for replicas", ODD, ETHERNET, odd),
        ("odd sizes, a byte less: no replicas", ODD, ETHERNET, odd - 1),
    ]
    return [(name, m, {**chip, "memory_bytes": room}) for name, m, chip, room in made]


def _held(model: dict[str, Any], among: Iterable[str]) -> float:
    """Bytes that a chip holds in the leanest of these layouts."""
    p = {**model, "B": BATCH, "S": POSITIONS, "n_chips": CHIPS, **H100}
    return min(loads(layout, p)[0] for layout in among)
