"""Logs of loads for mixture_of_experts-load_log: what the rules are, scenes of which the label is
known, and the edges of every rule."""

from __future__ import annotations

import random
from typing import Any

Log = list[dict[str, Any]]


def sums(log: Log) -> dict[int, list[int]]:
    """Visits of each layer's experts over the whole log."""
    found: dict[int, list[int]] = {}
    for e in log:
        so_far = found.get(e["layer"], [0] * len(e["visits"]))
        found[e["layer"]] = [a + b for a, b in zip(so_far, e["visits"], strict=True)]
    return found


def dead(visits: list[int]) -> bool:
    """Whether an expert has no visit."""
    return min(visits) == 0


def skewed(visits: list[int]) -> bool:
    """Whether the fullest has more than twice the mean."""
    return max(visits) * len(visits) > 2 * sum(visits)


SCENES: dict[str, dict[str, Any]] = {
    "even loads": {},
    "an expert that nobody visits": {"idle": (1, 2)},
    "an expert that nobody visits beside one that all do": {"idle": (2, 3), "hot": (2, 5)},
    "one expert too popular": {"hot": (0, 4)},
    "the same in the last layer": {"hot": (2, 0)},
    "bursts that even out": {"burst": 0.8},
    "some bursts": {"burst": 0.25},
    "bursts, and an expert too popular": {"burst": 0.8, "hot": (1, 3)},
}


def fresh_log(
    rng: random.Random,
    n_steps: int,
    *,
    L: int = 3,
    E: int = 6,
    idle: tuple[int, int] | None = None,
    hot: tuple[int, int] | None = None,
    burst: float = 0.0,
) -> Log:
    """`idle` and `hot` are (layer, expert); a share `burst` of the steps has one expert full, a
    different one each time, so that the sums stay even."""
    log: Log = []
    for step in range(n_steps):
        full = step % E if step % 20 < 20 * burst else None
        for layer in range(L):
            visits = [rng.randrange(18, 23) for _ in range(E)]
            if full is not None:
                visits[(full + layer) % E] += 90
            if hot and hot[0] == layer:
                visits[hot[1]] += 130
            if idle and idle[0] == layer:
                visits[idle[1]] = 0
            log.append({"step": step, "layer": layer, "visits": visits})
    return log


def _log(*entries: tuple[int, list[int]]) -> Log:
    return [{"step": i, "layer": layer, "visits": v} for i, (layer, v) in enumerate(entries)]


def _steps(*steps: list[list[int]]) -> Log:
    """One entry for each step and layer."""
    return [
        {"step": i, "layer": layer, "visits": v}
        for i, step in enumerate(steps)
        for layer, v in enumerate(step)
    ]


_EVEN, _UNEVEN, _OTHER = [4, 4, 4], [9, 1, 2], [1, 9, 2]
_LONG = [(0, [0, 5, 5])] * 3


def _about_half(v: int, n: int, total: int) -> list[int]:
    """v visits of one of n experts, all other numbers next to each other, `total` in all."""
    each, more = divmod(total - v, n - 1)
    return [v, *[each + 1] * more, *[each] * (n - 1 - more)]


_JUST: dict[str, list[int]] = {  # means that are no whole number
    "5, more than twice 32/13": _about_half(5, 13, 32),
    "6, more than twice 38/13": _about_half(6, 13, 38),
    "3, more than twice 1501/1001": _about_half(3, 1001, 1501),
    "5, less than twice 33/13": _about_half(5, 13, 33),
    "3, less than twice 1502/1001": _about_half(3, 1001, 1502),
    # by less than a millionth, and than float32 tells apart
    "20,000,001, more than twice 30,000,001/3": _about_half(20_000_001, 3, 30_000_001),
    "20,000,001, less than twice 30,000,002/3": _about_half(20_000_001, 3, 30_000_002),
}

EDGES: dict[str, Log] = {
    "one entry, even": _log((0, _EVEN)),
    "one entry, one visit each": _log((0, [1, 1])),
    "exactly twice the mean": _log((0, [8, 2, 2])),
    "one more than twice the mean": _log((0, [9, 1, 2]), (0, [9, 2, 1])),
    "a visit in the last entry only": _log(*_LONG, (0, [1, 5, 5]), (0, _EVEN)),
    "no visit in the last layer's last expert": _log((0, _EVEN), (7, [4, 4, 0])),
    "the last expert too popular": _log((0, [1, 2, 9]), (0, [1, 1, 7])),
    "two layers that even each other out": _log((0, [9, 1, 2]), (1, [1, 9, 8])),
    "two layers without the same expert": _log((0, [0, 4, 4]), (1, [4, 4, 4])),
    "layer 0 skewed, an idle expert in layer 1": _log((0, [9, 1, 1]), (1, [2, 2, 0])),
    "an idle expert in layer 0, layer 1 skewed": _log((0, [2, 2, 0]), (1, [9, 1, 1])),
    "exactly half uneven": _log((0, _UNEVEN), (0, _OTHER), (0, _EVEN), (0, _EVEN)),
    "more than half uneven": _log(
        (0, _UNEVEN), (0, _OTHER), (0, [2, 1, 9]), (0, _EVEN), (0, _EVEN)
    ),
    "uneven in one layer, even in the other": _log(
        (0, _UNEVEN), (1, _EVEN), (0, _OTHER), (1, _EVEN), (0, [2, 1, 9]), (1, _EVEN)
    ),
    "crowded among idle ones": _log((0, [5, 3, 0, 0]), (0, [0, 0, 3, 5])),
    "less than twice a mean that is no whole number": _log((0, [3, 2, 1, 1]), (0, [3, 2, 1, 1])),
    "half of the steps or more, half of the entries or fewer": _steps(
        [_UNEVEN, _EVEN], [_OTHER, _EVEN], [[2, 1, 9], _EVEN], [_EVEN, _EVEN]
    ),
    "layer 1000": _log((0, _EVEN), (1000, [9, 1, 2]), (0, _EVEN), (1000, [9, 2, 1])),
    "layer −3": _log((0, _EVEN), (-3, [9, 1, 2]), (0, _EVEN), (-3, [9, 2, 1])),
    "one expert": _log((0, [5]), (0, [5])),
    "layers with experts of different numbers": _log((0, [3, 3]), (1, [2, 2, 2, 2])),
    "fewer experts in the first layer": _log((0, [3, 3]), (1, [5, 2, 1, 1]), (1, [5, 1, 2, 1])),
    "twice as full as the emptiest": _log((0, [5, 2, 4]), (0, [5, 2, 4])),
    "300 experts, the last one crowded": _log(*[(0, [2] * 299 + [9])] * 3),
    "301 experts, the last one idle": _log(*[(4, [2] * 300 + [0])] * 3),
    "a thousand entries": _log(
        *[(0, _EVEN)] * 499, *[(0, v) for v in (_UNEVEN, _OTHER, [2, 1, 9])] * 167
    ),
    "a visit in the last of a thousand entries only": _log(
        *[(0, [0, 5, 5])] * 999, (0, [1, 5, 5])
    ),
    "sums that 32 bits do not hold": _log(*[(0, [15 * 10**8, 15 * 10**8, 12 * 10**8])] * 2),
    "33,554,433, more than twice 67,108,865/4": _log((0, [2**25 + 1, 2**25 - 2, 1, 1])),
    **{name: _log((0, v)) for name, v in _JUST.items()},
    **{f"{name}, and turned round": _log((0, v), (0, v[::-1])) for name, v in _JUST.items()},
    "skewed long ago": _log(
        *[(0, [60, 1, 2])] * 20, *[(0, _EVEN)] * 64
    ),
    "bursty long ago": _log(
        *[(0, v) for v in (_UNEVEN, _OTHER, [2, 1, 9])] * 40, *[(0, _EVEN)] * 70
    ),
}  # fmt: skip
