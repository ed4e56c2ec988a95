"""Logs at the thresholds of latency_throughput-step_log: exactly on each, one step beyond, with
what matters at the first place, at the last, or far inside a long log."""

from __future__ import annotations

from typing import Any

from twophase.checks.edges import one_changed, one_less_and_just_full
from twophase.checks.exercise import Case
from twophase.checks.latency_throughput._logs import Events, Server, Step, compute_s, memory_s

# powers of two, so that every time is exact: with CACHED tokens in the cache a step reads as much
# of it as weights, and BALANCE new tokens take as long to compute as all this to read
SERVER: Server = {
    "n_params": 2**33,
    "weight_bytes": 2**34,
    "kv_bytes_per_token": 2**17,
    "capacity_tokens": 2**20,
    "bytes_per_s": 2.0**41,
    "flops_per_s": 2.0**49,
}
CACHED, BALANCE, HALF_FULL = 2**17, 512, 2**19
INT8: Server = SERVER | {"weight_bytes": SERVER["n_params"]}  # a byte each, where bf16 takes two
LONG = 1000  # steps, the most that the task names

Special = dict[int, dict[str, Any]]  # place in the log -> what is different


def log(n: int, special: Special | None = None, server: Server = SERVER, **usual: Any) -> Events:
    """A log of `n` steps that are alike but for the special ones. `ratio` is how many times the
    larger of reading and computing a step takes on the server."""
    ordinary = {"new_tokens": 8, "cached_tokens": CACHED, "waiting": 0, "preempted": 0}
    events = []
    for i in range(n):
        step: Step = {"step": i, "ratio": 1.0} | ordinary | usual | (special or {}).get(i, {})
        ratio = step.pop("ratio")
        step["step_s"] = ratio * max(memory_s(step, server), compute_s(step, server))
        events.append(step)
    return events


def at(places: Any, **values: Any) -> Special:
    """These values at these places."""
    return dict.fromkeys(places, values)


Values = dict[str, Any]
THREW: Values = {"preempted": 1}
CAPPED: Values = {"waiting": 1, "cached_tokens": HALF_FULL - 1}
COMPUTES: Values = {"new_tokens": BALANCE + 1}


def _orders() -> dict[str, tuple[str, Events]]:
    """Two labels apply, and the first one counts: all pairs of which no scene has both."""
    return {
        "preempting beside a half-empty cache, and requests wait": (
            "preempting",
            log(5, **THREW, **CAPPED),
        ),
        "preempting, computing longer than reading": ("preempting", log(5, **THREW, **COMPUTES)),
        "overhead, computing longer than reading": (
            "overhead-bound",
            log(5, ratio=3.0, **COMPUTES),
        ),
    }


def _halves() -> dict[str, tuple[str, Events]]:
    """Half of the steps are far beyond a threshold and the others hardly below: a median of what is
    to be counted is beyond it, and more than half of the steps are not."""
    return {
        "computing three times as long in 2 of 4 steps, hardly less in the others": (
            "healthy",
            log(4, at([0, 2], new_tokens=3 * BALANCE), new_tokens=BALANCE - 1),
        ),
        "requests wait, the cache is almost empty in 2 of 4 steps, half full in the others": (
            "healthy",
            log(4, at([0, 2], cached_tokens=1), waiting=1, cached_tokens=HALF_FULL),
        ),
    }


def _shares() -> dict[str, tuple[str, Events]]:
    """Shares of the steps: exactly the threshold, and one step more."""
    _, twentieth, more = one_less_and_just_full(200 // 20)
    _, half, most = one_less_and_just_full(200 // 2)
    last = range(200 - most, 200)
    return {
        "preempted in 1 of 20 steps": ("healthy", log(20, at([0], **THREW))),
        "preempted in 2 of 20 steps, nobody waits": ("preempting", log(20, at([0, 19], **THREW))),
        "preempted in 2 of 30 steps": ("preempting", log(30, at([3, 29], **THREW))),
        "preempted in 10 of 200 steps": ("healthy", log(200, at(range(twentieth), **THREW))),
        "preempted in 11 of 200 steps": ("preempting", log(200, at(range(more), **THREW))),
        "computing longer in 100 of 200 steps": ("healthy", log(200, at(range(half), **COMPUTES))),
        "computing longer in 101 of 200 steps": ("compute-bound", log(200, at(last, **COMPUTES))),
        "computing longer in 2 of 3 steps": ("compute-bound", log(3, at([0, 2], **COMPUTES))),
        "one waits beside a half-empty cache in 2 of 3 steps": (
            "underfilled",
            log(3, at([0, 2], **CAPPED)),
        ),
        "one waits beside a half-empty cache in 50 of 100 steps": (
            "healthy",
            log(100, at(range(0, 100, 2), **CAPPED)),
        ),
        "one waits beside a half-empty cache in 51 of 100 steps": (
            "underfilled",
            log(100, at([*range(0, 100, 2), 99], **CAPPED)),
        ),
    }


def _values() -> dict[str, tuple[str, Events]]:
    """Values of a step, and the median of several: exactly the threshold, and just beyond."""
    return {
        "one step, healthy": ("healthy", log(1)),
        "one step, in which a sequence was thrown out": ("preempting", log(1, **THREW)),
        "one step, three times as long as reading": ("overhead-bound", log(1, ratio=3.0)),
        "one step, one waits beside a half-empty cache": ("underfilled", log(1, **CAPPED)),
        "one step, computing longer than reading": ("compute-bound", log(1, **COMPUTES)),
        "every step exactly twice as long as reading": ("healthy", log(7, ratio=2.0)),
        "every step hardly more than twice as long": ("overhead-bound", log(7, ratio=2 + 2**-9)),
        "every step longer than twice as long, by half a millionth": (
            "overhead-bound",
            log(7, ratio=2 + 2**-20),
        ),
        "every step hardly less than twice as long": ("healthy", log(7, ratio=2 - 2**-9)),
        "three steps, 2.5, 1 and 2.75 times as long as reading": (
            "overhead-bound",
            log(3, {i: {"ratio": r} for i, r in enumerate((2.5, 1.0, 2.75))}),
        ),
        "six steps, three of them hardly longer than reading": (
            "overhead-bound",
            log(6, {i: {"ratio": r} for i, r in enumerate((3.0, 1.0, 1.5, 4.0, 1.0, 5.0))}),
        ),
        "four steps, 1.5, 3, 1 and 4 times as long as reading": (
            "overhead-bound",
            log(4, {i: {"ratio": r} for i, r in enumerate((1.5, 3.0, 1.0, 4.0))}),
        ),
        "four steps, 2.5, 1, 3 and 1.25 times as long as reading": (
            "healthy",
            log(4, {i: {"ratio": r} for i, r in enumerate((2.5, 1.0, 3.0, 1.25))}),
        ),
        "requests wait, exactly half of the cache is free": (
            "healthy",
            log(5, waiting=3, cached_tokens=HALF_FULL),
        ),
        "requests wait, hardly more than half of the cache is free": (
            "underfilled",
            log(5, waiting=1, cached_tokens=HALF_FULL - 1),
        ),
        "computing exactly as long as reading": ("healthy", log(5, new_tokens=BALANCE)),
        "computing hardly longer than reading": ("compute-bound", log(5, **COMPUTES)),
        "three of five steps alike: slow, and without a new token": (
            "overhead-bound",
            log(5, at([0, 2, 3], ratio=3.0, new_tokens=0) | {1: {"ratio": 1.5}}),
        ),
        "steps without a new token": ("healthy", log(5, new_tokens=0)),
    }


def _long() -> dict[str, tuple[str, Events]]:
    """What counts lies where somebody who looks at the first or the last steps, however many, does
    not see it."""
    return {
        f"{LONG:,} steps, preempted in the last 51": (
            "preempting",
            log(LONG, at(range(LONG - 51, LONG), **THREW)),
        ),
        f"{LONG:,} steps, preempted in the first 51": (
            "preempting",
            log(LONG, at(range(51), **THREW)),
        ),
    }


HARDLY_SLOWER: Server = SERVER | {"flops_per_s": 2.0**49 - 2.0**28}  # by half a millionth
ODD: Server = SERVER | {"capacity_tokens": 2 * HALF_FULL - 1}  # half of it is no whole number

ALL = _values() | _orders() | _halves() | _shares() | _long()
EDGES = {name: (*edge, SERVER) for name, edge in ALL.items()} | {
    "one waits beside an odd room, half a token less than half of it full": (
        "underfilled",
        log(5, **CAPPED),
        ODD,
    ),
    "computing longer than reading, by half a millionth": (
        "compute-bound",
        log(5, server=HARDLY_SLOWER, new_tokens=BALANCE),
        HARDLY_SLOWER,
    ),
    "weights of one byte: computing longer than reading them, not than reading two bytes": (
        "compute-bound",
        log(5, server=INT8, new_tokens=450),
        INT8,
    ),
    # the same steps on two servers: whoever keeps results by the steps is wrong here
    "weights of two bytes: computing almost as long as reading them": (
        "healthy",
        log(5, new_tokens=450),
        SERVER,
    ),
    "weights of one byte, the same steps: computing longer than reading": (
        "compute-bound",
        log(5, new_tokens=450),
        INT8,
    ),
    "weights of one byte, the same steps on the first server, twice the parameters": (
        "compute-bound",
        log(5, new_tokens=450),
        SERVER | {"n_params": 2**34},
    ),
    **{
        f"the same steps on the first server {but}": (
            "compute-bound",
            log(5, new_tokens=450),
            server,
        )
        for but, server in one_changed(
            SERVER,
            kv_bytes_per_token=2**16,
            bytes_per_s=2.0**42,
            flops_per_s=2.0**48,
        )
    },
    "one waits, hardly any of a smaller cache is free": (
        "healthy",
        log(5, **CAPPED),
        SERVER | {"capacity_tokens": HALF_FULL},
    ),
    "weights of one byte, every step 2.25 times as long as reading": (
        "overhead-bound",
        log(5, server=INT8, ratio=2.25),
        INT8,
    ),
}


def edges() -> list[Case]:
    """A case for every edge; the long ones are not shown."""
    return [
        Case(name, (events, server), public=len(events) <= 100)
        for name, (_, events, server) in EDGES.items()
    ]
