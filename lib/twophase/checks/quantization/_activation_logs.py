"""The logs of quantization-activation_log: its rules, scenes that are long, and edges of each
rule."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

from twophase.checks import edges

Entry = dict[str, Any]
Log = list[Entry]


def outliers(x: list[int]) -> list[int]:
    """The channels of an entry whose size is more than six times its mean size."""
    return [c for c, v in enumerate(x) if abs(v) * len(x) > 6 * sum(map(abs, x))]


def by_layer(log: Log) -> dict[int, list[list[int]]]:
    """The entries of each layer."""
    layers: dict[int, list[list[int]]] = {}
    for entry in log:
        layers.setdefault(entry["layer"], []).append(entry["x"])
    return layers


def stands_out(rows: list[list[int]]) -> bool:
    """Whether one channel of a layer is an outlier in more than half of its entries."""
    found = [c for x in rows for c in outliers(x)]
    return any(2 * found.count(c) > len(rows) for c in set(found))


def massive(rows: list[list[int]]) -> bool:
    """Whether the largest size of some entry is more than four times their mean in the layer."""
    sizes = [max(map(abs, x)) for x in rows]
    return max(sizes) > 4 * Fraction(sum(sizes), len(sizes))


def scene(rng: random.Random, n: int, kind: str, layers: int = 3, C: int = 12) -> Log:
    """A log of n entries of each of the layers, as `kind` says."""
    log = []
    for step in range(n):
        for layer in range(layers):
            x = [rng.choice((-1, 1)) * rng.randrange(60, 140) for _ in range(C)]
            odd = layer == 1
            if kind == "channels" and odd and step % 4 != 3:
                x[5] = 4000
            if kind == "rare channel" and odd and step % 4 == 0:
                x[5] = 4000
            if kind == "moving":
                x[(step + layer) % C] = -4000
            if kind == "both" and odd:
                x[5], x[2] = (-4000, x[2]) if step % 3 else (x[5], 4000)
            if kind == "tokens" and odd and step == n // 2:
                x = [30 * v for v in x]
            log.append({"layer": layer, "x": x})
    rng.shuffle(log)
    return log


SCENES = ("healthy", "channels", "rare channel", "moving", "both", "tokens")


def _row(at: dict[int, int], C: int = 8) -> list[int]:
    return [at.get(c, 1) for c in range(C)]


def _log(rows: list[list[int]], layer: int = 0) -> Log:
    return [{"layer": layer, "x": x} for x in rows]


FLAT = _row({})
# of 8 channels, one of v and seven of 1: 8·v > 6·(v + 7) from v = 22 on
JUST, LESS = _row({3: 22}), _row({3: 21})
FAR = _row({3: 22}, 9)  # of 9: 9·22 > 6·30


def _rest(n: int, total: int) -> list[int]:
    """n numbers next to each other, `total` in all."""
    each, more = divmod(total, n)
    return [each + 1] * more + [each] * (n - more)


def _flat(tops: list[int]) -> Log:
    return _log([[top] * 2 for top in tops])


NEAR_SIX: dict[str, list[int]] = {  # times a mean that is no whole number
    "13, more than six times 54/25": [13, *_rest(24, 54 - 13)],
    "9, more than six times 1501/1001": [9, *_rest(1000, 1501 - 9)],
    "9, less than six times 1502/1001": [9, *_rest(1000, 1502 - 9)],
    # by a hundred-millionth, as the last of NEAR_FOUR are: too little for float32
    "105,000,004, more than six times 140,000,004/8": [105_000_004, *_rest(7, 35_000_000)],
    "104,999,996, less than six times 139,999,996/8": [104_999_996, *_rest(7, 35_000_000)],
}
NEAR_FOUR: dict[str, list[int]] = {  # of the largest sizes
    "6, more than four times 16/11": [6, *_rest(10, 16 - 6)],
    "7, more than four times 19/11": [7, *_rest(10, 19 - 7)],
    "7, more than four times 1748/999": [7, *_rest(998, 1748 - 7)],
    "9, less than four times 25/11": [9, *_rest(10, 25 - 9)],
    "5, less than four times 1249/999": [5, *_rest(998, 1249 - 5)],
    "100,000,089, more than four times 275,000,243/11": [100_000_089, *_rest(10, 175_000_154)],
    "100,000,007, less than four times 275,000,021/11": [100_000_007, *_rest(10, 175_000_014)],
}

EDGES: dict[str, Log] = {
    "one entry": _log([FLAT]),
    "one entry, an outlier": _log([JUST]),
    "six times the mean, exactly": _log([LESS] * 3),
    "six times a whole mean, exactly": _log([[2, 2, 2, 42, 2, 2, 2, 2]] * 3),
    "large beside the others only": _log([_row({3: 15})] * 3),
    "an outlier below zero": _log([_row({3: -22})] * 3),
    "half of the entries": _log([JUST, JUST, FLAT, FLAT]),
    "more than half": _log([JUST, JUST, JUST, FLAT, FLAT]),
    "two channels in turn": _log([_row({3: 22}), _row({6: 22})] * 3),
    "two channels, one of them half": _log([_row({3: 22}), _row({6: 22}), FLAT, _row({3: 22})]),
    "the first channel": _log([_row({0: 50})] * 3),
    "the last channel": _log([_row({7: 50})] * 3),
    "one channel of two layers": _log([JUST, FLAT, FLAT]) + _log([JUST, FLAT, FLAT], 1),
    "three entries of one layer, three of another": _log([JUST] * 2 + [FLAT]) + _log([FLAT] * 3, 7),
    "half of all entries": _log([_row({1: 22}), _row({2: 22}), FLAT, FLAT]),
    "more than half of all": _log([_row({c: 22}) for c in range(3)] + [FLAT, FLAT]),
    "more than half of one layer only": _log([_row({c: 22}) for c in range(3)] + [FLAT])
    + _log([FLAT] * 3, 1),
    "four times the mean, exactly": _log([[8] * 8, *[[1] * 8] * 4, [0] * 7 + [0]])
    + _log([FLAT], 1),
    "a massive token": _log([[v * 9 for v in FLAT], *[FLAT] * 9]),
    "a massive token of negative numbers": _log([[-v * 9 for v in FLAT], *[FLAT] * 19]),
    "a massive token in the second layer": _log([FLAT] * 9)
    + _log([[9] * 8, *[FLAT] * 9], 1)
    + _log([FLAT] * 9, 2),
    "a massive token in layer 0, one channel in layer 1": _log([[9] * 8, *[FLAT] * 9])
    + _log([JUST] * 3, 1),
    "one channel in layer 0, a massive token in layer 1": _log([JUST] * 3)
    + _log([[9] * 8, *[FLAT] * 9], 1),
    "two outliers in an entry": _log([_row({c: 100, 9: 100}, 16) for c in range(3)]),
    "two outliers in one entry of three": _log([_row({0: 100, 9: 100}, 16)] + [_row({}, 16)] * 2),
    "scattered, and a massive token": _log([_row({c: 22 * (1 + 9 * (c == 0))}) for c in range(8)]),
    "a layer numbered 12": _log([JUST] * 3, 12),
    "large in one layer, small in the other": _log([[9] * 8] * 2) + _log([FLAT] * 12, 1),
    "a massive token with an outlier": _log([_row({3: 200}), *[FLAT] * 9]),
    "zeros": _log([[0] * 8] * 3),
    "zeros and a flat entry": _log([[0] * 8] * 9 + [FLAT]),
    "layers of other widths": _log([FAR] * 3) + _log([FLAT] * 3, 1),
    "a narrower layer first": _log([FLAT] * 3) + _log([_row({3: 20}, 9)] * 3, 1),
    "a layer numbered −1": _log([JUST] * 3, -1) + _log([FLAT] * 4),
    "the same channel behind 300 entries": _log([FLAT] * 300 + [JUST] * 301),
    "a massive token, the last of a thousand": _log([FLAT] * 999 + [[9] * 8]),
    "many channels": _log([_row({edges.past(256) - 1: 4000}, edges.past(256))] * 3),
    **{name: _log([x]) for name, x in NEAR_SIX.items()},
    **{f"{name}, and turned round": _log([x, x[::-1]]) for name, x in NEAR_SIX.items()},
    **{name: _flat(tops) for name, tops in NEAR_FOUR.items()},
    "numbers past 2048": _log([_row({3: 4096 * 22})] * 2 + [_row({3: 2048})]),
}
