"""The budgets of grouped_query_attention-choose: what an option uses, and cases at whose edges
choices change."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks.exercise import Case

Budget = dict[str, Any]
Option = dict[str, Any]


def weights(b: Budget, K: int) -> float:
    """Bytes of the weights."""
    attention = 2 * b["L"] * b["D"] * (b["N"] + K) * b["H"]
    return float((b["other_params"] + attention) * b["bytes_per_value"])


def caches(b: Budget, K: int) -> float:
    """Bytes of all caches."""
    return float(b["batch"] * b["n_tokens"] * 2 * b["L"] * K * b["H"] * b["bytes_per_value"])


def fits(b: Budget, K: int) -> bool:
    return bool(weights(b, K) + caches(b, K) <= b["memory_bytes"])


def in_time(b: Budget, K: int) -> bool:
    return bool((weights(b, K) + caches(b, K)) / b["bytes_per_s"] <= b["step_limit_s"])


def possible(b: Budget, K: int) -> bool:
    return fits(b, K) and in_time(b, K)


def _budget(**changes: Any) -> Budget:
    """Eight heads; weights of 10,000 to 17,000 bytes, caches of 960 bytes for each K."""
    usual: Budget = {
        "L": 2,
        "D": 25,
        "N": 8,
        "H": 4,
        "other_params": 3800,
        "batch": 3,
        "n_tokens": 10,
        "bytes_per_value": 2,
        "memory_bytes": 10**6,
        "bytes_per_s": 1000.0,
        "step_limit_s": 10**6 / 1000,
        "margin": 0.0625,
    }
    return {**usual, **changes}


def _options(*pairs: tuple[int, list[float]]) -> list[Option]:
    return [{"K": K, "losses": losses} for K, losses in pairs]


# multiples of 1/64, so that means and margins are exact, at an edge as well
ALIKE = _options((8, [1.5, 1.5]), (4, [1.5625, 1.5]), (2, [1.5, 1.625]), (1, [1.75, 1.75]))
APART = _options((8, [1.5, 1.5]), (4, [1.625, 1.625]), (2, [1.75, 1.75]), (1, [2.0, 2.0]))
ODD = _options((8, [1.75, 1.75]), (4, [1.5, 1.5]), (2, [1.875, 1.875]), (1, [2.0, 2.0]))
EVEN = _options((8, [1.75, 1.75]), (4, [1.5, 1.5]), (2, [1.75, 1.75]))  # K = 8 is no better than 2

BETWEEN = _options((8, [1.5]), (4, [1.75]), (2, [1.53125]))  # the smallest K that is good, not next
STEPS = _options((8, [1.5]), (4, [1.5625]), (2, [1.625]))
SHARE = _options((8, [1.5]), (4, [1.578125]))  # 1.5 · (1 + 0.0625) is more
BEYOND = _options((8, [1.5]), (4, [1.5625 + 2.0**-20]))
# beyond the margin by a hundred-millionth of the mean; in float32 it is within
BARELY = _options((8, [1.5]), (4, [1.5625 + 2.0**-26]))
FINE = _options((8, [1.5 + 2.0**-26]), (4, [1.5625 + 2.0**-26]))  # at the margin, in float64
MIDDLE = _options((8, [1.5625, 1.5625, 1.5625]), (4, [1.5, 1.5, 2.0]))  # the middle loss is lower
NEARLY = _options((8, [1.5]), (4, [1.5 + 2.0**-20]))
HARDLY = _options((8, [1.5]), (4, [1.5 + 1e-9]))
MANY_LATE = _options((8, [1.5, 1.5]), (4, [1.5] * 64 + [2.0] * 64))
MANY_ALIKE = _options((8, [1.5, 1.5]), (4, [1.5] * 8))


def _used(K: int, **changes: Any) -> int:
    b = _budget(**changes)
    return round(weights(b, K) + caches(b, K))


def _widths() -> list[tuple[str, Budget, list[Option]]]:
    """K = 4 fits, with a little room, at each width of a number: with nearly all of it weights, and
    with nearly all of it caches. Whoever takes one of the two at 2 bytes decides otherwise."""
    options = _options((4, [1.0]), (1, [2.0]))
    made = []
    for width in (1, 4):
        one = {"L": 1, "D": 1, "N": 4, "H": 1, "batch": 1, "bytes_per_value": width}
        parts = {
            "weights": {**one, "other_params": 10**6, "n_tokens": 1},
            "caches": {**one, "other_params": 0, "n_tokens": 10**6},
        }
        for part, sizes in parts.items():
            for short in (0, 1):
                name = f"hardly anything but {part}, of {width} bytes a number"
                b = _budget(**sizes, memory_bytes=_used(4, **sizes) - short, bytes_per_s=1e9)
                made.append((f"{name}{', a byte less' * short}", b, options))
    return made


def _large_weights() -> list[tuple[str, Budget, list[Option]]]:
    """A byte is a part of 2 · 10¹² there: no tolerance is as small."""
    sizes = {"L": 1, "D": 1, "N": 4, "H": 1, "batch": 1, "n_tokens": 1, "other_params": 10**12}
    full = _used(4, **sizes)
    options = _options((4, [1.0]), (1, [2.0]))
    return [
        (name, _budget(**sizes, memory_bytes=room, bytes_per_s=1e12), options)
        for name, room in (
            ("10¹² parameters fill the memory at K = 4", full),
            ("10¹² parameters, a byte less of memory", full - 1),
        )
    ]


def edges_of_choices() -> list[Case]:
    """The cases that no seed changes."""
    tight = {K: _used(K) for K in (8, 4, 2, 1)}
    light = _budget(D=1, other_params=1, bytes_per_s=1.0)
    light["step_limit_s"] = caches(light, 8) - 1
    assert possible(light, 4)
    # more bytes than float32 tells apart
    crowd = {"batch": 300_000, "bytes_per_s": 1e9}
    crowded = _used(4, **crowd)
    hardly_late = _budget(step_limit_s=tight[4] / 1000 * (1 - 1e-8))
    chance = _options((8, [1.5, 1.75, 1.75]), (4, [1.625, 1.625, 1.625]), (2, [2.0, 1.25, 2.0]))
    named: list[tuple[str, Budget, list[Option]]] = [
        ("all possible, two of three within the margin", _budget(), ALIKE),
        ("all possible, none within the margin", _budget(), APART),
        ("more heads, and a higher loss", _budget(), ODD),
        ("more heads, and as high a loss as with few", _budget(), EVEN),
        ("a mean a little beyond the margin", _budget(), BEYOND),
        ("a mean beyond the margin by a hundred-millionth", _budget(), BARELY),
        ("both means more by a hundred-millionth", _budget(), FINE),
        ("no margin", _budget(margin=0.0), ALIKE),
        ("no margin, equal means", _budget(margin=0.0), _options((4, [1.5]), (2, [1.5]))),
        ("no margin, a mean a little higher", _budget(margin=0.0), NEARLY),
        ("134 heads", _budget(N=134), _options((134, [1.5]), (67, [1.625]), (1, [1.75]))),
        ("three seeds, one of them lucky", _budget(margin=0.03125), chance),
        ("three seeds, one of them unlucky", _budget(margin=0.03125), MIDDLE),
        ("a third within the margin of the second only", _budget(), STEPS),
        ("within the margin, a worse one between", _budget(), BETWEEN),
        (
            "the lowest mean is not possible, two of the others are within the margin",
            _budget(memory_bytes=tight[4]),
            _options((8, [1.5]), (4, [1.625]), (2, [1.65625]), (1, [1.75])),
        ),
        (
            "the lowest mean is not possible, one of the others is within its margin",
            _budget(memory_bytes=tight[4]),
            _options((8, [1.5]), (4, [1.53125]), (2, [1.578125]), (1, [1.75])),
        ),
        ("a loss within a share of the best, not within the margin", _budget(), SHARE),
        ("128 seeds of one, two of the other", _budget(), MANY_LATE),
        ("two seeds of one, eight of the other", _budget(), MANY_ALIKE),
        ("K = 4 fills the memory", _budget(memory_bytes=tight[4]), APART),
        ("a byte less than K = 4 takes", _budget(memory_bytes=tight[4] - 1), APART),
        (
            "a step just in time at K = 4",
            _budget(step_limit_s=float(tight[4]), bytes_per_s=1.0),
            APART,
        ),
        (
            "the same step, read twice as quickly",
            _budget(step_limit_s=float(tight[4]), bytes_per_s=2.0),
            APART,
        ),
        ("a step too late at K = 4", _budget(step_limit_s=tight[4] - 1.0, bytes_per_s=1.0), APART),
        (
            "a step a part of a second too late at K = 4",
            _budget(step_limit_s=float(tight[4] // 1000)),
            APART,
        ),
        (
            "a step 40 µs too late at K = 4",
            _budget(step_limit_s=0.01, bytes_per_s=tight[4] / 0.01004),
            APART,
        ),
        ("a step too late by a hundred-millionth at K = 4", hardly_late, APART),
        ("K = 4 fills a large memory", _budget(**crowd, memory_bytes=crowded), APART),
        ("a byte less of the large memory", _budget(**crowd, memory_bytes=crowded - 1), APART),
        ("no margin, a mean higher by 10⁻⁹", _budget(margin=0.0), HARDLY),
        ("K = 1 alone fits", _budget(memory_bytes=tight[1]), APART),
        ("nothing fits", _budget(memory_bytes=tight[1] - 1), APART),
        ("nothing is in time", _budget(step_limit_s=tight[1] - 1.0, bytes_per_s=1.0), ALIKE),
        ("the weights fit, no cache does", _budget(memory_bytes=_used(1, batch=0)), APART),
        ("caches alone take too long at K = 8", light, APART),
        ("one sequence", _budget(batch=1, memory_bytes=_used(4, batch=1)), APART),
        ("a single option", _budget(), _options((8, [1.5]))),
        ("options from the smallest K on", _budget(), ALIKE[::-1]),
        ("twelve heads", _budget(N=12), _options((12, [1.5]), (6, [1.53125]), (3, [1.625]))),
        *_widths(),
        *_large_weights(),
    ]
    for name, value in (
        ("L", 3),
        ("D", 26),
        ("N", 16),
        ("H", 5),
        ("other_params", 4000),
        ("batch", 4),
        ("n_tokens", 11),
        ("bytes_per_value", 4),
    ):
        grown = _budget(memory_bytes=tight[4])
        named.append((f"{name} = {value} in the memory of K = 4", {**grown, name: value}, APART))
    assert tight[4] % 1000, "the step is no whole number of seconds"
    assert 10**8 < crowded < 10**12, "in time"
    return [Case(name, (budget, options)) for name, budget, options in named]


def fresh(rng: random.Random) -> Case:
    """A model of real size: some options do not fit, or are too slow, and others are."""
    N, H, L = rng.choice((24, 32, 40, 48)), rng.choice((64, 128)), rng.randrange(20, 60)
    Ks = [K for K in range(N, 0, -1) if N % K == 0]
    b = _budget(
        L=L,
        D=N * H,
        N=N,
        H=H,
        other_params=10 * L * (N * H) ** 2,
        batch=rng.randrange(8, 64),
        n_tokens=rng.randrange(1000, 8000),
        bytes_per_s=2.0**41,
        margin=rng.randrange(1, 8) / 64,
    )
    split = Ks[rng.randrange(1, len(Ks) - 1)]
    b["memory_bytes"] = round(weights(b, split) + caches(b, split)) + rng.randrange(10**6)
    slow = Ks[rng.randrange(1, len(Ks) - 1)]
    b["step_limit_s"] = (weights(b, slow) + caches(b, slow) + 10**6) / b["bytes_per_s"]
    losses = [[rng.randrange(80, 128) / 64 for _ in range(4)] for _ in Ks]
    return Case("a model of real size", (b, _options(*zip(Ks, losses, strict=True))), public=False)
