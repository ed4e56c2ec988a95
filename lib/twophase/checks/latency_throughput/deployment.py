"""latency_throughput-deployment: choose chip, number of chips, format and batch: the cheapest that
fits and is fast enough."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from twophase.checks.answer import Answer, LocalAnswer
from twophase.checks.compare import EXACT, plain
from twophase.checks.exercise import Case, Exercise
from twophase.checks.latency_throughput._deploying import TRAPS, WRONG, Choice, best, smallest_batch
from twophase.checks.latency_throughput._edges_of_choices import edges
from twophase.checks.latency_throughput._serving import (
    USABLE,
    Machine,
    Workload,
    fresh_machines,
    fresh_workload,
    price,
    step_s,
    used_bytes,
)
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

Items = tuple[tuple[str, Any], ...]  # of a dict, to be told from others

NEAR = 1.05
SLACK = 1 + 3e-7  # sums in another order, perhaps in float32: half a millionth is too much
RIGHT = {
    "the choice": "valid",
    "memory": "fits",
    "step": "in time",
    "price": "within 5% of the best",
}


def _problem(choice: Any, w: Workload, machines: list[Machine]) -> str:
    """Why this is no choice at all, in one sentence; empty if it is one."""
    if not isinstance(choice, dict) or set(choice) != {"machine", "n_chips", "format", "batch"}:
        return 'choose must return a dict with the keys "machine", "n_chips", "format", "batch"'
    machine = next((m for m in machines if m["name"] == choice["machine"]), None)
    if machine is None:
        return f"there is no machine {choice['machine']!r}"
    if choice["format"] not in w["formats"]:
        return f"the workload does not allow the format {choice['format']!r}"
    for key, most in (("n_chips", machine["max_chips"]), ("batch", w["max_batch"])):
        if type(choice[key]) is not int or not 1 <= choice[key] <= most:
            return f"{key} must be a whole number from 1 to {most}, and is {choice[key]!r}"
    return ""


def _cheapest(w: Workload, machines: list[Machine]) -> float:
    """The price per token of the best choice. Raises ValueError if there is none."""
    return _price_of_the_best(_items(w), tuple(map(_items, machines)))


@lru_cache(256)  # every answer to a case is held against it
def _price_of_the_best(workload: Items, machines: tuple[Items, ...]) -> float:
    w, ms = dict(workload), [dict(m) for m in machines]
    return price(w, *_sizes(best(w, ms), ms))


def _items(given: Mapping[str, Any]) -> Items:
    return tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in given.items())


def _sizes(choice: Choice, machines: list[Machine]) -> tuple[Machine, int, str, int]:
    machine = next(m for m in machines if m["name"] == choice["machine"])
    return machine, choice["n_chips"], choice["format"], choice["batch"]


def observe(answer: Answer, case: Case) -> dict[str, str]:
    """Whether the choice is one, fits, is fast enough, and is within 5% of the best."""
    w, machines = case.args
    choice = plain(answer.call("choose", w, machines))
    found = _problem(choice, w, machines)
    if found:
        return {"the choice": found, "memory": "", "step": "", "price": ""}

    m, n, fmt, batch = _sizes(choice, machines)
    need, room = used_bytes(w, fmt, batch), USABLE * n * m["memory_bytes"]
    took = step_s(w, m, n, fmt, batch)
    ratio = price(w, m, n, fmt, batch) / _cheapest(w, machines)
    limit = w["tpot_limit_s"]
    seen = dict(RIGHT)
    if need > room * SLACK:
        seen["memory"] = f"needs {need:,.0f} bytes, {room:,.0f} are usable"
    if took > limit * SLACK:
        seen["step"] = f"takes {took * 1e3:.6g} ms, allowed are {limit * 1e3:.6g} ms"
    if ratio > NEAR * SLACK:
        seen["price"] = f"{ratio:.3f} times the best"
    return seen


def _trap(
    rng: random.Random, name: str, wrong: Callable[..., Choice], public: bool = True, **fixed: Any
) -> Case:
    """A fresh workload on which this wrong answer fails, and some choice is possible."""
    while True:
        case = Case(name, (fresh_workload(rng, **fixed), fresh_machines(rng)), public=public)
        try:
            _cheapest(*case.args)
        except ValueError:  # nothing meets the limit
            continue
        if _fails(wrong, case):
            return case


def _fails(wrong: Callable[..., Choice], case: Case) -> bool:
    try:
        seen = observe(LocalAnswer({"choose": wrong}), case)
    except Exception:  # it finds nothing to choose
        return True
    return seen != RIGHT


def cases(rng: random.Random) -> list[Case]:
    """The edges, which are the same at every seed; a workload for every trap, then others."""
    every = [*WRONG.values(), *TRAPS.values()]
    traps = [
        _trap(rng, f"workload {i + 1}", wrong, **fixed) for i, (wrong, fixed) in enumerate(every)
    ]
    more = [
        _trap(rng, f"workload {len(traps) + i + 1}", smallest_batch, public=False) for i in range(4)
    ]
    return [*edges(), *traps, *more]


wrong.add(
    "any_step_time",
    WRONG["any_step_time"][0],
    "plausible",
    "The batch is too large: its steps take longer than the limit allows.",
)
wrong.add(
    "any_memory",
    WRONG["any_memory"][0],
    "plausible",
    "You never look at the memory: weights and caches must fit into it.",
)
wrong.add(
    "no_reserve",
    WRONG["no_reserve"][0],
    "sizing by the data sheet",
    "You fill all of the memory. A tenth of it is not for weights and caches.",
)
wrong.add(
    "fastest_step",
    WRONG["fastest_step"][0],
    "plausible",
    "This is the fastest step. Within the limit faster is worth nothing here: the price decides.",
)
wrong.add(
    "most_tokens",
    WRONG["most_tokens"][0],
    "plausible",
    "This is the highest throughput. It may cost more chips than it is worth: divide by their"
    " price.",
)
wrong.add(
    "cheapest_hour",
    WRONG["cheapest_hour"][0],
    "plausible",
    "This has the lowest price per hour. What counts is the price per token: a dearer chip may"
    " make far more of them.",
)
wrong.add(
    "one_chip",
    WRONG["one_chip"][0],
    "plausible",
    "You never take more than one chip: sharding holds a larger batch, and meets limits that one"
    " chip cannot.",
)
wrong.add(
    "smallest_batch",
    WRONG["smallest_batch"][0],
    "plausible",
    "A batch of one has the lowest latency and the highest price: every read of the weights serves"
    " one token.",
)
wrong.add(
    "sync_left_out",
    WRONG["sync_left_out"][0],
    "linear scaling assumed",
    "You left out what the chips wait for each other: sync_s for each chip beyond the first, in"
    " every step.",
)
wrong.add(
    "cache_left_out",
    WRONG["cache_left_out"][0],
    "the pop quiz of a public set of notes, first attempt",
    "You left the cache out of the step's time: it is read in every step.",
)
wrong.add(
    "compute_left_out",
    WRONG["compute_left_out"][0],
    "plausible",
    "You left out computing: above the critical batch it takes longer than reading.",
)
wrong.add(
    "per_hour_and_sequence",
    WRONG["per_hour_and_sequence"][0],
    "plausible",
    "You divide the price of an hour by the batch. A token costs the price of a step, and steps"
    " differ in length.",
)
wrong.add(
    "fewest_chips",
    WRONG["fewest_chips"][0],
    "“as few chips as fit”",
    "You stop at the fewest chips that will do: more of them may hold so large a batch that a"
    " token is cheaper.",
)
wrong.add(
    "chips_in_powers_of_two",
    WRONG["chips_in_powers_of_two"][0],
    "tensor parallel sizes of serving engines",
    "You try 1, 2, 4 and 8 chips. Here any number up to max_chips is allowed.",
)
wrong.add(
    "last_number_left_out",
    WRONG["last_number_left_out"][0],
    "range without its end",
    "You never try max_chips itself: range(1, n) ends at n − 1.",
)
wrong.add(
    "max_batch_left_out",
    WRONG["max_batch_left_out"][0],
    "plausible",
    "There are no more than max_batch requests to put in a batch.",
)
wrong.add(
    "last_batch_left_out",
    WRONG["last_batch_left_out"][0],
    "range without its end",
    "You never try max_batch itself: range(1, n) ends at n − 1.",
)
wrong.add(
    "forbidden_format",
    WRONG["forbidden_format"][0],
    "plausible",
    "The workload does not allow this format: read `formats`.",
)


EXERCISE = Exercise(
    id="latency_throughput-deployment",
    title="Choose a deployment",
    kind="judgement",
    points=6,
    minutes=30,
    entries=("choose",),
    cases=cases,
    observe=observe,
    reference=best,
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        (
            "Write three functions of (machine, n, format, batch): bytes used, step time, price of"
            " a million tokens."
        ),
        (
            "With machine, n and format fixed, a larger batch is never dearer per token: take the"
            " largest that fits and is in time."
        ),
        (
            "Try every machine, every n from 1 to max_chips and every allowed format; keep the"
            " cheapest. Two loops over a few dozen combinations and a search for the batch."
        ),
    ),
    ranges={"workload['max_batch']": (1, 4000), "machines[]['max_chips']": (1, 67)},
    recall=(
        "Machine and number of chips are fixed. Which batch gives the cheapest tokens?",
        "The largest that fits in memory and keeps the step within its limit.",
    ),
)
