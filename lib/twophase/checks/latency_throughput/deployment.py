"""latency_throughput-deployment: choose chip, number of chips, format and batch: the cheapest that fits and is fast enough."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from twophase.checks.answer import Answer, LocalAnswer
from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise, Misconception
from twophase.checks.latency_throughput._serving import (
    USABLE,
    Machine,
    Workload,
    fits,
    fresh_machines,
    fresh_workload,
    price,
    step_s,
    used_bytes,
)

Choice = dict[str, Any]
NEAR = 1.05
SLACK = 1 + 1e-6  # sums in another order, perhaps in float32

Fits = Callable[[Workload, Machine, int, str, int], bool]
Value = Callable[[Workload, Machine, int, str, int], float]


def _largest(good: Callable[[int], bool], limit: int) -> int:
    """The largest batch up to `limit` that is good, if all below it are; 0 if there is none."""
    low, high = 0, limit + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if good(middle) else (low, middle)
    return low


def _candidates(
    w: Workload, machines: list[Machine], room: Fits, time: Value
) -> Iterator[tuple[Machine, int, str, int]]:
    """For every machine, number and format the largest batch allowed, beside which no smaller one is cheaper."""
    for m in machines:
        for n in range(1, m["max_chips"] + 1):
            for fmt in w["formats"]:
                batch = _largest(
                    lambda b, m=m, n=n, fmt=fmt: room(w, m, n, fmt, b) and time(w, m, n, fmt, b) <= w["tpot_limit_s"],  # type: ignore[misc]
                    w["max_batch"],
                )
                if batch:
                    yield m, n, fmt, batch


def _chooser(room: Fits = fits, time: Value = step_s, value: Value = price) -> Callable[..., Choice]:
    """The least `value` among what has `room` and `time`; with nothing replaced it is the cheapest choice."""

    def choose(workload: Workload, machines: list[Machine]) -> Choice:
        found = list(_candidates(workload, machines, room, time))
        m, n, fmt, batch = min(found, key=lambda c: value(workload, *c))
        return {"machine": m["name"], "n_chips": n, "format": fmt, "batch": batch}

    return choose


best = _chooser()


def _always(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> bool:
    return True


def _instant(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> float:
    return 0.0


def _all_of_memory(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> bool:
    return bool(used_bytes(w, fmt, batch) <= n * m["memory_bytes"])


def _weights_only(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> float:
    return step_s({**w, "context": 0}, m, n, fmt, batch)


def _no_sync(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> float:
    return step_s(w, {**m, "sync_s": 0.0}, n, fmt, batch)


def _no_sync_price(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> float:
    return price(w, {**m, "sync_s": 0.0}, n, fmt, batch)


def _no_compute(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> float:
    return step_s(w, {**m, "flops_per_s": 1e30}, n, fmt, batch)


def _negative_throughput(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> float:
    return -batch / step_s(w, m, n, fmt, batch)


def _per_hour(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> float:
    return float(m["price_per_hour"] * n)


def one_chip(workload: Workload, machines: list[Machine]) -> Choice:
    return best(workload, [{**m, "max_chips": 1} for m in machines])


def smallest_batch(workload: Workload, machines: list[Machine]) -> Choice:
    return best({**workload, "max_batch": 1}, machines)


def forbidden_format(workload: Workload, machines: list[Machine]) -> Choice:
    return best({**workload, "formats": ["bf16", "int8"]}, machines)


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


def _plain(choice: Any) -> Any:
    """Numpy's numbers as Python's."""
    if not isinstance(choice, dict):
        return choice
    return {k: v.item() if getattr(v, "shape", None) == () else v for k, v in choice.items()}


def observe(answer: Answer, case: Case) -> dict[str, str]:
    """Whether the choice is one, fits, is fast enough, and is within 5 % of the best."""
    w, machines = case.args
    choice = _plain(answer.call("choose", w, machines))
    found = _problem(choice, w, machines)
    if found:
        return {"the choice": found, "memory": "", "step": "", "price": ""}

    def sizes(c: Choice) -> tuple[Machine, int, str, int]:
        return next(m for m in machines if m["name"] == c["machine"]), c["n_chips"], c["format"], c["batch"]

    m, n, fmt, batch = sizes(choice)
    need, room = used_bytes(w, fmt, batch), USABLE * n * m["memory_bytes"]
    took, ratio = step_s(w, m, n, fmt, batch), price(w, m, n, fmt, batch) / price(w, *sizes(best(w, machines)))
    limit = w["tpot_limit_s"]
    return {
        "the choice": "valid",
        "memory": "fits" if need <= room * SLACK else f"needs {need / 1e9:.1f} GB, {room / 1e9:.1f} GB are usable",
        "step": "in time" if took <= limit * SLACK else f"takes {took * 1e3:.2f} ms, allowed are {limit * 1e3:.2f} ms",
        "price": "within 5 % of the best" if ratio <= NEAR * SLACK else f"{ratio:.2f} times the best",
    }


def _trap(rng: random.Random, name: str, wrong: Callable[..., Choice], public: bool = True, **fixed: Any) -> Case:
    """A fresh workload on which this wrong answer fails, and some choice is possible."""
    while True:
        case = Case(name, (fresh_workload(rng, **fixed), fresh_machines(rng)), public=public)
        try:
            best(*case.args)
        except ValueError:  # nothing meets the limit
            continue
        if _fails(wrong, case):
            return case


def _fails(wrong: Callable[..., Choice], case: Case) -> bool:
    try:
        seen = observe(LocalAnswer({"choose": wrong}), case)
    except Exception:  # it finds nothing to choose
        return True
    return seen != observe(LocalAnswer({"choose": best}), case)


WRONG: dict[str, tuple[Callable[..., Choice], dict[str, Any]]] = {
    "any_step_time": (_chooser(time=_instant), {}),
    "any_memory": (_chooser(room=_always), {"context": 6000}),
    "no_reserve": (_chooser(room=_all_of_memory), {"context": 6000, "tpot_limit_s": 0.1}),
    "fastest_step": (_chooser(value=step_s), {}),
    "most_tokens": (_chooser(value=_negative_throughput), {}),
    "cheapest_hour": (_chooser(value=_per_hour), {}),
    "one_chip": (one_chip, {"tpot_limit_s": 0.02}),
    "smallest_batch": (smallest_batch, {}),
    "sync_left_out": (_chooser(time=_no_sync, value=_no_sync_price), {"tpot_limit_s": 0.012}),
    "cache_left_out": (_chooser(time=_weights_only), {}),
    "compute_left_out": (_chooser(time=_no_compute), {"context": 300, "max_batch": 4000, "tpot_limit_s": 0.02}),
    "forbidden_format": (forbidden_format, {"formats": ["bf16"]}),
}


def cases(rng: random.Random) -> list[Case]:
    """A workload for every trap, then others."""
    traps = [_trap(rng, f"workload {i + 1}", wrong, **fixed) for i, (wrong, fixed) in enumerate(WRONG.values())]
    more = [_trap(rng, f"workload {len(traps) + i + 1}", smallest_batch, public=False) for i in range(4)]
    return traps + more


def _misconception(slug: str, seen: str, says: str) -> Misconception:
    return Misconception(slug, WRONG[slug][0], seen, says)


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
    misconceptions=(
        _misconception(
            "any_step_time", "plausible", "The batch is too large: its steps take longer than the limit allows."
        ),
        _misconception("any_memory", "plausible", "You never look at the memory: weights and caches must fit into it."),
        _misconception(
            "no_reserve",
            "sizing by the data sheet",
            "You fill all of the memory. A tenth of it is not for weights and caches.",
        ),
        _misconception(
            "fastest_step",
            "plausible",
            "This is the fastest step. Within the limit faster is worth nothing here: the price decides.",
        ),
        _misconception(
            "most_tokens",
            "plausible",
            "This is the highest throughput. It may cost more chips than it is worth: divide by their price.",
        ),
        _misconception(
            "cheapest_hour",
            "plausible",
            "This has the lowest price per hour. What counts is the price per token: a dearer chip may make far more of them.",
        ),
        _misconception(
            "one_chip",
            "plausible",
            "You never take more than one chip: sharding holds a larger batch, and meets limits that one chip cannot.",
        ),
        _misconception(
            "smallest_batch",
            "plausible",
            "A batch of one has the lowest latency and the highest price: every read of the weights serves one token.",
        ),
        _misconception(
            "sync_left_out",
            "linear scaling assumed",
            "You left out what the chips wait for each other: sync_s for each chip beyond the first, in every step.",
        ),
        _misconception(
            "cache_left_out",
            "the pop quiz of a public set of notes, first attempt",
            "You left the cache out of the step's time: it is read in every step.",
        ),
        _misconception(
            "compute_left_out",
            "plausible",
            "You left out computing: above the critical batch it takes longer than reading.",
        ),
        _misconception("forbidden_format", "plausible", "The workload does not allow this format: read `formats`."),
    ),
    hints=(
        "Write three functions of (machine, n, format, batch): bytes used, step time, price of a million tokens.",
        "With machine, n and format fixed, a larger batch is never dearer per token: take the largest that fits and is in time.",
        "Try every machine, every n from 1 to max_chips and every allowed format; keep the cheapest. Two loops over a few dozen "
        "combinations and a search for the batch.",
    ),
    recall=(
        "Machine and number of chips are fixed. Which batch gives the cheapest tokens?",
        "The largest that fits in memory and keeps the step within its limit.",
    ),
    withholds=(),
)
