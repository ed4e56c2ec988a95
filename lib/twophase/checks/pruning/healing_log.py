"""pruning-healing_log: what a healing run's log says."""

from __future__ import annotations

import random

from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Log = list[dict[str, float]]  # tokens, train, held_out


def reference(before: float, log: Log) -> str:
    """The right answer."""
    first, last = log[0], log[-1]
    if first["held_out"] >= 8:
        return "broken"
    if last["held_out"] <= 1.02 * before:
        return "healed"
    best = min(log, key=lambda entry: entry["held_out"])
    if last["held_out"] > 1.01 * best["held_out"] and last["train"] < best["train"]:
        return "overfit"
    earlier = log[len(log) - 1 - len(log) // 4]
    if last["held_out"] < 0.99 * earlier["held_out"]:
        return "unfinished"
    return "stuck"


def _add(slug: str, parts: dict[str, str], seen: str, says: str) -> None:
    wrong.add(slug, replaced(reference, parts), seen, says)


_add(
    "healed_in_training",
    {'last["held_out"] <= 1.02': 'last["train"] <= 1.02'},
    "losses on the calibration set",
    (
        "You compare the training loss. Whether it is healed shows on text"
        " that it was not healed with."
    ),
)
_add(
    "best_for_last",
    {'if last["held_out"] <= 1.02': 'if min(e["held_out"] for e in log) <= 1.02'},
    "plausible",
    "You take the best entry. The model that you have is the last one.",
)
_add(
    "healed_exactly",
    {"1.02 * before": "before"},
    "plausible",
    "2 % above the whole model still counts as healed.",
)
_add(
    "broken_later",
    {'first["held_out"] >= 8': 'max(e["held_out"] for e in log) >= 8'},
    "plausible",
    "A run may have a bad moment. Broken is what says less than nothing right after the cut.",
)
_add(
    "broken_by_training_loss",
    {'first["held_out"] >= 8': 'first["train"] >= 8'},
    "plausible",
    "You look at the training loss right after the cut: look at the held-out one.",
)
_add(
    "rising_is_overfit",
    {' and last["train"] < best["train"]': ""},
    "plausible",
    "A rising held-out loss is overfitting only if the training loss went on falling.",
)
_add(
    "last_two_entries",
    {"log[len(log) - 1 - len(log) // 4]": "log[-2]"},
    "plausible",
    "You compare the last two entries: look back over a quarter of them.",
)
_add(
    "from_the_beginning",
    {"log[len(log) - 1 - len(log) // 4]": "log[0]"},
    "plausible",
    "You compare with the first entry. Every healing falls at first: look at the last quarter.",
)
_add(
    "falling_in_training",
    {'last["held_out"] < 0.99 * earlier["held_out"]': 'last["train"] < 0.99 * earlier["train"]'},
    "plausible",
    "You ask whether the training loss still falls: ask it of the held-out one.",
)
_add(
    "unfinished_first",
    {
        'if last["held_out"] <= 1.02 * before': (
            'if last["held_out"] < 0.99 * log[len(log) - 1 - len(log) //'
            ' 4]["held_out"]:\n        return "unfinished"\n    if'
            ' last["held_out"] <= 1.02 * before'
        )
    },
    "plausible",
    "A run that still falls may be healed already: the labels go in the task's order.",
)


def _log(held_out: list[float], train: list[float] | None = None) -> Log:
    train = [x - 0.25 for x in held_out] if train is None else train
    return [
        {"tokens": 1000 * i, "train": t, "held_out": h}
        for i, (t, h) in enumerate(zip(train, held_out, strict=True))
    ]


def _toward(first: float, last: float, n: int, pace: float = 0.8) -> list[float]:
    """Falling from the first towards the last, each time by a share of what is left."""
    return [last + (first - last) * pace**i for i in range(n)]


def _by_little() -> dict[str, tuple[float, Log]]:
    """Each limit from both sides, off by a hundred-millionth of what is compared or half of it:
    that is much beside the rounding of float64, and float32 does not see it."""
    falling, rising = [6.0, 5.0, 2.6], [6.0, 2.6, 2.6]
    trained, less = [6.0, 3.0, 2.5, 2.0], 1 - 1e-8
    return {
        "a hundred-millionth less than 8 bits": (2.0, _log([8 * less, 2.0, 2.0, 2.0])),
        "1.999999 % above": (2.1, _log([3.0] + [1.01999999 * 2.1] * 3)),
        "2.000001 % above": (2.1, _log([3.0] + [1.02000001 * 2.1] * 3)),
        "0.9999995 % above its best": (2.0, _log([*rising, 1.009999995 * 2.6], trained)),
        "1.0000005 % above its best": (2.0, _log([*rising, 1.010000005 * 2.6], trained)),
        "falls 0.9999995 %": (2.0, _log([*falling, 0.990000005 * 2.6])),
        "falls 1.0000005 %": (2.0, _log([*falling, 0.989999995 * 2.6])),
        "lower in training by a hundred-millionth": (
            2.0,
            _log([4.0, 2.5, 3.0, 3.0], [4.0, 2.0, 2.0, 2.0 * less]),
        ),
        "the second of two bests is lower by a hundred-millionth": (
            2.0,
            _log([4.0, 2.5, 2.5 * less, 3.0], [4.0, 1.0, 2.5, 2.0]),
        ),
        "the first of two bests is lower by a hundred-millionth": (
            2.0,
            _log([4.0, 2.5 * less, 2.5, 3.0], [4.0, 2.5, 1.0, 2.0]),
        ),
    }


FLAT = _toward(3.0, 2.5, 40, 0.6)
EDGES: dict[str, tuple[float, Log]] = {
    "healed": (2.0, _log(_toward(3.5, 2.0, 40))),
    "the same log, but the whole model was better": (1.5, _log(_toward(3.5, 2.0, 40))),
    "healed, and still falling": (3.0, _log(_toward(6.0, 1.5, 20, 0.9))),
    "healed, and more than 1 % above its best": (2.0, _log([3.0, 1.95, 2.0], [3.0, 2.0, 1.9])),
    "stuck above": (2.0, _log(FLAT)),
    "unfinished": (1.0, _log(_toward(5.0, 1.0, 12, 0.9))),
    "broken": (2.0, _log(_toward(8.75, 2.0, 40))),
    "exactly 8 bits": (2.0, _log([8.0, 2.0, 2.0, 2.0])),
    "a little less than 8 bits": (2.0, _log([7.9999, 2.0, 2.0, 2.0])),
    "8 bits on the training text only": (2.0, _log([6.0, 2.0, 2.0, 2.0], [8.5, 2.0, 2.0, 2.0])),
    "a bad moment in between": (2.0, _log([4.0, 9.0, 2.0, 2.0, 2.0])),
    "overfit": (2.0, _log([4.0, 3.0, 2.5, 2.625, 2.75], [4.0, 3.0, 2.25, 2.0, 1.5])),
    "overfit, training hardly lower": (
        2.0,
        _log([4.0, 3.0, 2.5, 2.625, 2.75], [4.0, 3.0, 2.25, 2.25, 2.249]),
    ),
    "rising on both": (2.0, _log([4.0, 3.0, 2.5, 2.625, 2.75])),
    "rising, and overfit though it falls again": (
        2.0,
        _log([4.0, 2.5, 3.5, 3.5, 3.5, 3.5, 3.5, 3.0], [4.0, 2.5, 2.0, 2.0, 2.0, 2.0, 2.0, 1.0]),
    ),
    "once healed, then overfit": (2.0, _log([4.0, 2.0, 2.25, 2.5], [4.0, 2.0, 1.5, 1.25])),
    "1.995 % above": (2.0, _log([3.0, 2.0399, 2.0399, 2.0399])),
    "2.005 % above": (2.0, _log([3.0, 2.0401, 2.0401, 2.0401])),
    "1.25 % above 4 bits": (4.0, _log([6.0, 4.05, 4.05, 4.05])),
    "3 % above half a bit": (0.5, _log([3.0, 0.515, 0.515, 0.515])),
    "more than 2 % above": (2.0, _log([3.0, 2.0625, 2.0625, 2.0625, 2.0625])),
    "less than 1 % above its best": (
        2.0,
        _log([4.0, 2.5, 2.5078125, 2.515625], [4.0, 2.5, 2.0, 1.5]),
    ),
    "1.005 % above its best": (2.0, _log([6.0, 4.0, 4.02, 4.0402], [6.0, 4.0, 3.0, 2.0])),
    "at its best right after the cut": (2.0, _log([2.5, 3.0, 3.0, 3.0], [2.5, 2.0, 2.0, 1.5])),
    "as good in training as at its best": (2.0, _log([4.0, 2.5, 3.0, 3.0], [4.0, 2.0, 2.0, 2.0])),
    "falls less than 1 % in the last quarter": (2.0, _log([4.0, 3.0, 2.515625, 2.5, 2.5])),
    "falls 0.5 % from 4 bits": (2.0, _log([6.0, 5.0, 4.0, 3.98])),
    "falls 0.995 %": (2.0, _log([6.0, 5.0, 4.0, 3.9602])),
    "falls 1.07 % from less than a bit": (0.5, _log([4.0, 1.0, 0.75, 0.742])),
    "falls in training only": (
        2.0,
        _log([4.0, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5, 2.5], [4.0, 2.0, 1.9, 1.8, 1.7, 1.6, 1.5, 1.4]),
    ),
    "falls on held-out text only": (
        1.0,
        _log([4.0, 3.5, 3.0, 2.75, 2.5, 2.25, 2.0, 1.75], [2.0] * 8),
    ),
    "fell long ago": (2.0, _log([6.0, 5.0, 4.0, 3.0] + [3.0] * 12)),
    "fell just within the last quarter": (2.0, _log([6.0] * 3 + [4.0] * 9 + [3.5] * 4)),
    "fell just before the last quarter": (2.0, _log([6.0] * 3 + [4.0] * 8 + [3.5] * 5)),
    "seven entries": (2.0, _log([6.0, 5.0, 4.0, 3.5, 3.5, 3.5, 3.0])),
    "seven entries, a fall two entries ago": (2.0, _log([6.0, 5.0, 4.0, 3.5, 3.5, 3.0, 3.0])),
    "three entries, falling": (2.0, _log([4.0, 3.5, 3.0])),
    "nine entries": (2.0, _log([6.0, 5.0, 4.0, 3.5, 3.5, 3.5, 3.25, 3.25, 3.25])),
    "a fall two entries ago": (2.0, _log([6.0, 5.0, 4.0, 3.5, 3.5, 3.5, 3.0, 3.0])),
    "healed in training only": (2.0, _log([4.0, 3.0, 3.0, 3.0, 3.0], [4.0, 2.5, 2.0, 2.0, 2.0])),
    "two entries": (2.0, _log([4.0, 3.0])),
    "two entries, healed": (2.0, _log([4.0, 2.0])),
    "three entries, the last rises": (2.0, _log([4.0, 3.0, 3.5], [4.0, 3.0, 2.5])),
    "two equal bests, training lower at the second": (
        1.0,
        _log([4.0, 2.5, 2.5, 3.0], [4.0, 2.5, 1.0, 2.0]),
    ),
    "a thousand entries, unfinished": (0.5, _log(_toward(6.0, 0.75, 1000, 0.999))),
    "a thousand entries, fell 200 ago": (0.5, _log([4.0] * 800 + [3.0] * 200)),
    "a thousand entries, stuck": (0.5, _log([4.0] * 600 + [3.0] * 400)),
    "a thousand entries, overfit": (
        0.5,
        _log([4.0] * 300 + [2.0] + [3.0] * 699, [4.0] * 300 + [3.5] + [1.0] * 699),
    ),
    **_by_little(),
}


def _fresh(rng: random.Random) -> tuple[float, Log]:
    n, before = rng.randrange(6, 60), rng.uniform(1.2, 2.5)
    held = _toward(rng.uniform(3, 9), before * rng.choice((0.98, 1.2)), n, rng.uniform(0.5, 0.97))
    worse = rng.choice((0.0, 0.0, 0.04))
    return before, _log(
        [h + worse * max(0, i - n // 2) for i, h in enumerate(held)],
        [h - 0.01 * i for i, h in enumerate(held)],
    )


def cases(rng: random.Random) -> list[Case]:
    """Every label alone and beside others that would fit, each limit from both sides, two entries
    and a thousand."""
    fresh = [Case(f"log {i + 1}", _fresh(rng), public=False) for i in range(8)]
    return [*(Case(name, args) for name, args in EDGES.items()), *fresh]


EXERCISE = Exercise(
    id="pruning-healing_log",
    title="Did it heal?",
    kind="trace",
    points=4,
    minutes=18,
    entries=("read_log",),
    cases=cases,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "Four questions in the task's order; only the third looks at the training loss.",
        "The best entry is the first with the lowest held-out loss: compare the last one with it.",
        "The entry a quarter back is log[n − 1 − n // 4] of n entries.",
    ),
    recall=(
        "A pruned model's loss on its calibration text falls, on other text it rises. What now?",
        "It overfits: stop at the best held-out loss, and heal with more text.",
    ),
)
