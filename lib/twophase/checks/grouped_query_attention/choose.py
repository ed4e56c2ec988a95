"""grouped_query_attention-choose: which number of KV heads for this budget."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from twophase.checks.answer import Answer
from twophase.checks.compare import EXACT, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.misconceptions import Misconceptions, replaced

wrong = Misconceptions()

Budget = dict[str, Any]
Option = dict[str, Any]


def _weights(b: Budget, K: int) -> float:
    """Bytes of the weights."""
    attention = 2 * b["L"] * b["D"] * (b["N"] + K) * b["H"]
    return float((b["other_params"] + attention) * b["bytes_per_value"])


def _caches(b: Budget, K: int) -> float:
    """Bytes of all caches."""
    return float(b["batch"] * b["n_tokens"] * 2 * b["L"] * K * b["H"] * b["bytes_per_value"])


def _fits(b: Budget, K: int) -> bool:
    return _weights(b, K) + _caches(b, K) <= b["memory_bytes"]


def _in_time(b: Budget, K: int) -> bool:
    return (_weights(b, K) + _caches(b, K)) / b["bytes_per_s"] <= b["step_limit_s"]


def _possible(b: Budget, K: int) -> bool:
    return _fits(b, K) and _in_time(b, K)


def _mean(losses: list[float]) -> float:
    return sum(losses) / len(losses)


def chosen(
    budget: Budget,
    options: list[Option],
    possible: Callable[[Budget, int], bool],
    loss: Callable[[list[float]], float],
    margin: float,
) -> int | None:
    """The smallest K among the possible ones whose loss is at most `margin` above the lowest of
    theirs."""
    left = {o["K"]: loss(o["losses"]) for o in options if possible(budget, o["K"])}
    if not left:
        return None
    lowest = min(left.values())
    return min(K for K, found in left.items() if found <= lowest + margin)


def reference(budget: Budget, options: list[Option]) -> int | None:
    """The right answer."""
    return chosen(budget, options, _possible, _mean, budget["margin"])


wrong.add(
    "memory_left_out",
    replaced(reference, {"_possible": "_in_time"}),
    "plausible",
    "You never look at the memory: weights and the caches of the whole batch must fit.",
)
wrong.add(
    "time_left_out",
    replaced(reference, {"_possible": "_fits"}),
    "plausible",
    "You never look at the step: reading weights and caches must not take longer than allowed.",
)
wrong.add(
    "lowest_loss",
    replaced(reference, {'budget["margin"]': "0.0"}),
    "differences between seeds taken for differences between models",
    "You took the lowest mean loss. Within the margin two means count as equal, and then the"
    " smaller cache decides.",
)
wrong.add(
    "luckiest_seed",
    replaced(reference, {"_mean": "min"}),
    "the best of three runs reported",
    "You compare the luckiest seeds. A seed is chance: compare the means.",
)
wrong.add(
    "first_seed",
    replaced(reference, {"_mean": "lambda losses: losses[0]"}),
    "one run of each",
    "You compare one seed of each. Compare the means over all of them.",
)


@wrong(
    "“fewer heads cost quality”, taken for a law",
    "You took the largest K that is possible. More KV heads need not mean a lower loss: look at the"
    " losses.",
)
def largest(budget: Budget, options: list[Option]) -> int | None:
    return max((o["K"] for o in options if _possible(budget, o["K"])), default=None)


@wrong(
    "MQA for every model that is served",
    "You took the smallest K. It is the cheapest to serve, but its loss may lie more than the"
    " margin above the best.",
)
def smallest(budget: Budget, options: list[Option]) -> int | None:
    return min((o["K"] for o in options if _possible(budget, o["K"])), default=None)


@wrong(
    "plausible",
    "You measured the margin from the best of all options. One that is not possible sets no mark:"
    " leave it out first.",
)
def margin_from_the_impossible(budget: Budget, options: list[Option]) -> int | None:
    lowest = min(_mean(o["losses"]) for o in options)
    good = [o["K"] for o in options if _mean(o["losses"]) <= lowest + budget["margin"]]
    return min((K for K in good if _possible(budget, K)), default=None)


@wrong(
    "a budget for one conversation",
    "You counted one sequence. The memory must hold, and the step must read, the caches of the"
    " whole batch.",
)
def one_sequence(budget: Budget, options: list[Option]) -> int | None:
    return reference({**budget, "batch": 1}, options)


@wrong(
    "caches only",
    "You left the weights out: they lie in the same memory, and every step reads them.",
)
def weights_left_out(budget: Budget, options: list[Option]) -> int | None:
    free = {**budget, "other_params": 0, "D": 0}
    return reference(free, options)


@wrong(
    "lecture tables that change the cache only",
    "Your weights are those of multi-head attention at every K. Key and value projections shrink"
    " with K, and that may decide.",
)
def weights_of_multi_head(budget: Budget, options: list[Option]) -> int | None:
    more = 2 * budget["L"] * budget["D"] * budget["N"] * budget["H"]

    def possible(b: Budget, K: int) -> bool:
        back = 2 * b["L"] * b["D"] * K * b["H"]
        return _possible({**b, "other_params": b["other_params"] + more - back}, K)

    return chosen(budget, options, possible, _mean, budget["margin"])


def observe(answer: Answer, case: Case) -> dict[str, Any]:
    """What is chosen, and whether it is one of the options."""
    budget, options = case.args
    K = plain(answer.call("choose", budget, options))
    known = K is None or (type(K) is int and any(o["K"] == K for o in options))
    return {"the choice": K if known else "none of the options, and not None"}


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


def _used(K: int, **changes: Any) -> int:
    b = _budget(**changes)
    return round(_weights(b, K) + _caches(b, K))


def edges_of_choices() -> list[Case]:
    """The cases that no seed changes."""
    tight = {K: _used(K) for K in (8, 4, 2, 1)}
    chance = _options((8, [1.5, 1.75, 1.75]), (4, [1.625, 1.625, 1.625]), (2, [2.0, 1.25, 2.0]))
    named: list[tuple[str, Budget, list[Option]]] = [
        ("all possible, two of three within the margin", _budget(), ALIKE),
        ("all possible, none within the margin", _budget(), APART),
        ("more heads, and a higher loss", _budget(), ODD),
        ("no margin", _budget(margin=0.0), ALIKE),
        ("no margin, equal means", _budget(margin=0.0), _options((4, [1.5]), (2, [1.5]))),
        ("three seeds, one of them lucky", _budget(margin=0.03125), chance),
        ("K = 4 fills the memory", _budget(memory_bytes=tight[4]), APART),
        ("a byte less than K = 4 takes", _budget(memory_bytes=tight[4] - 1), APART),
        (
            "a step just in time at K = 4",
            _budget(step_limit_s=float(tight[4]), bytes_per_s=1.0),
            APART,
        ),
        ("a step too late at K = 4", _budget(step_limit_s=tight[4] - 1.0, bytes_per_s=1.0), APART),
        (
            "a step a part of a second too late at K = 4",
            _budget(step_limit_s=float(tight[4] // 1000)),
            APART,
        ),
        ("K = 1 alone fits", _budget(memory_bytes=tight[1]), APART),
        ("nothing fits", _budget(memory_bytes=tight[1] - 1), APART),
        ("nothing is in time", _budget(step_limit_s=tight[1] - 1.0, bytes_per_s=1.0), ALIKE),
        ("the weights fit, no cache does", _budget(memory_bytes=_used(1, batch=0)), APART),
        ("one sequence", _budget(batch=1, memory_bytes=_used(4, batch=1)), APART),
        ("a single option", _budget(), _options((8, [1.5]))),
        ("options from the smallest K on", _budget(), ALIKE[::-1]),
        ("twelve heads", _budget(N=12), _options((12, [1.5]), (6, [1.53125]), (3, [1.625]))),
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
    return [Case(name, (budget, options)) for name, budget, options in named]


def _fresh(rng: random.Random) -> Case:
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
    b["memory_bytes"] = round(_weights(b, split) + _caches(b, split)) + rng.randrange(10**6)
    slow = Ks[rng.randrange(1, len(Ks) - 1)]
    b["step_limit_s"] = (_weights(b, slow) + _caches(b, slow) + 10**6) / b["bytes_per_s"]
    losses = [[rng.randrange(80, 128) / 64 for _ in range(4)] for _ in Ks]
    return Case("a model of real size", (b, _options(*zip(Ks, losses, strict=True))), public=False)


def cases(rng: random.Random) -> list[Case]:
    """Edges first: full to the last byte, just in time, means just within the margin; then models
    of real size."""
    return [*edges_of_choices(), *(_fresh(rng) for _ in range(8))]


EXERCISE = Exercise(
    id="grouped_query_attention-choose",
    title="How many KV heads for this budget",
    kind="judgement",
    points=5,
    minutes=25,
    entries=("choose",),
    cases=cases,
    observe=observe,
    reference=reference,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        "First strike out what is not possible: memory, then time. Only then look at losses.",
        (
            "Bytes of a choice: (other_params + 2·L·D·(N + K)·H)·b for the weights, batch·n_tokens·"
            "2·L·K·H·b for the caches. Both must fit, and both are read in a step."
        ),
        (
            "Of what is left take the lowest mean loss; then the smallest K whose mean is at most"
            " margin above it."
        ),
    ),
    recall=(
        "Two models' mean losses differ by less than their seeds do. Which one do you serve?",
        "The one with the smaller cache: the losses do not tell the two apart.",
    ),
    withholds=(),
)
