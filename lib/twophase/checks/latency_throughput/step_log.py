"""latency_throughput-step_log: read an engine's log of decode steps and say what limits it."""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import mean, median, median_high

from twophase.checks.compare import EXACT
from twophase.checks.exercise import Case, Exercise
from twophase.checks.latency_throughput._edges_of_logs import LONG, edges
from twophase.checks.latency_throughput._logs import (
    SCENES,
    Events,
    Server,
    Step,
    compute_s,
    free,
    fresh_log,
    fresh_server,
    memory_s,
)
from twophase.checks.misconceptions import Misconceptions

wrong = Misconceptions()

Signs = dict[str, Callable[[Events, Server], bool]]


def most(events: Events, holds: Callable[[Step], bool]) -> bool:
    return sum(map(holds, events)) * 2 > len(events)


def _ratios(events: Events, s: Server) -> list[float]:
    return [e["step_s"] / max(memory_s(e, s), compute_s(e, s)) for e in events]


SIGNS: Signs = {
    "preempting": lambda es, s: sum(e["preempted"] > 0 for e in es) > 0.05 * len(es),
    "overhead-bound": lambda es, s: median(_ratios(es, s)) > 2,
    "underfilled": lambda es, s: most(es, lambda e: e["waiting"] > 0 and free(e, s) > 0.5),
    "compute-bound": lambda es, s: most(es, lambda e: compute_s(e, s) > memory_s(e, s)),
}


def _diagnosis(
    otherwise: str = "healthy", **replaced: Callable[[Events, Server], bool]
) -> Callable[..., str]:
    """The first sign that applies, with signs replaced (`overhead_bound=...`); with none replaced
    it is right."""
    signs = SIGNS | {label.replace("_bound", "-bound"): sign for label, sign in replaced.items()}

    def diagnose(events: Events, server: Server) -> str:
        return next((label for label, sign in signs.items() if sign(events, server)), otherwise)

    return diagnose


@wrong(
    "plausible",
    "You ask the four questions in another order. The first that applies in the order of the task"
    " decides.",
)
def least_specific_first(events: Events, server: Server) -> str:
    return next((label for label in reversed(SIGNS) if SIGNS[label](events, server)), "healthy")


def _weights_only(es: Events, s: Server) -> bool:
    floor = s["weight_bytes"] / s["bytes_per_s"]
    return bool(median(e["step_s"] / max(floor, compute_s(e, s)) for e in es) > 2)


@wrong(
    "plausible",
    "At exactly 5%, exactly 2 or exactly half a label does not apply yet: the rules say “more"
    " than” and “above”.",
)
def thresholds_included(events: Events, server: Server) -> str:
    def half(holds: Callable[[Step], bool]) -> bool:
        return 2 * sum(map(holds, events)) >= len(events)

    signs = {
        "preempting": 20 * sum(e["preempted"] > 0 for e in events) >= len(events),
        "overhead-bound": median(_ratios(events, server)) >= 2,
        "underfilled": half(lambda e: e["waiting"] > 0 and free(e, server) >= 0.5),
        "compute-bound": half(lambda e: compute_s(e, server) >= memory_s(e, server)),
    }
    return next((label for label, applies in signs.items() if applies), "healthy")


@wrong(
    "sorted(x)[len(x) // 2]",
    "With an even number of steps the median is the mean of the two in the middle; you took the"
    " upper one.",
)
def upper_median(events: Events, server: Server) -> str:
    return _diagnosis(overhead_bound=lambda es, s: median_high(_ratios(es, s)) > 2)(events, server)


@wrong(
    "dashboards that show the last hour",
    "You looked at the last steps only. A log is long and may change on the way: every share is one"
    " of all its steps.",
)
def last_steps_only(events: Events, server: Server) -> str:
    return _diagnosis()(events[-256:], server)


def _above_the_critical_batch(es: Events, s: Server) -> bool:
    critical = s["flops_per_s"] / s["bytes_per_s"] * s["weight_bytes"] / (2 * s["n_params"])
    return most(es, lambda e: e["new_tokens"] > critical)


def cases(rng: random.Random) -> list[Case]:
    """Every scene once, named; the edges of every rule; then some scenes again, longer and
    unnamed."""
    shown = [
        Case(name, (fresh_log(rng, s := fresh_server(rng), 24, **scene), s))
        for name, scene in SCENES.items()
    ]
    hidden = [
        Case(
            f"log {i + 1}",
            (fresh_log(rng, s := fresh_server(rng), rng.randrange(40, 70), **scene), s),
            public=False,
        )
        for i, scene in enumerate(rng.sample(list(SCENES.values()), 4))
    ]
    return [*shown, *edges(), *hidden]


wrong.add(
    "any_preemption",
    _diagnosis(preempting=lambda es, s: any(e["preempted"] for e in es)),
    "plausible",
    "One preempted step is nothing to act on: it must happen in more than 5% of the steps.",
)
wrong.add(
    "sequences_counted",
    _diagnosis(preempting=lambda es, s: sum(e["preempted"] for e in es) > 0.05 * len(es)),
    "plausible",
    "You added up preempted sequences. The rule counts the steps in which there were any.",
)
wrong.add(
    "mean_ratio",
    _diagnosis(overhead_bound=lambda es, s: mean(_ratios(es, s)) > 2),
    "dashboards that average",
    "A few very slow steps lift the mean of a whole log, as they lift its maximum. Take the"
    " median.",
)
wrong.add(
    "cache_left_out",
    _diagnosis(overhead_bound=_weights_only),
    "the pop quiz of a public set of notes, first attempt",
    "You compare with the weights' floor. Long caches are read, too: that time is not overhead.",
)
wrong.add(
    "two_bytes_for_each_parameter",
    lambda events, server: _diagnosis()(events, server | {"weight_bytes": 2 * server["n_params"]}),
    "plausible",
    "You took two bytes for each parameter. How many a step reads is weight_bytes: in int8, for"
    " example, half as many.",
)
wrong.add(
    "bytes_for_flops",
    lambda events, server: _diagnosis()(events, server | {"n_params": server["weight_bytes"] / 2}),
    "rules that hold in bf16 alone",
    "You took weight_bytes for the FLOPs of a token. They are 2 × n_params, whatever a parameter"
    " takes in memory.",
)
wrong.add(
    "sum_for_max",
    _diagnosis(
        overhead_bound=lambda es, s: (
            median(e["step_s"] / (memory_s(e, s) + compute_s(e, s)) for e in es) > 2
        )
    ),
    "plausible",
    "You compare with the sum of reading and computing. They overlap: the rule compares with the"
    " larger.",
)
wrong.add(
    "free_is_underfilled",
    _diagnosis(underfilled=lambda es, s: most(es, lambda e: free(e, s) > 0.5)),
    "alerts on memory alone",
    "A half-empty cache is no fault when nobody waits: there is just little to do.",
)
wrong.add(
    "waiting_is_underfilled",
    _diagnosis(underfilled=lambda es, s: most(es, lambda e: e["waiting"] > 0)),
    "alerts on the queue alone",
    "A queue before a full server is load, not a fault. Underfilled means: they wait although"
    " there is room.",
)
wrong.add(
    "critical_batch_alone",
    _diagnosis(compute_bound=_above_the_critical_batch),
    "the rule “above the critical batch, compute-bound”",
    "Above the critical batch the weights' products take longer than reading the weights; with"
    " long caches reading all of it still takes longer.",
)
wrong.add(
    "never_healthy",
    _diagnosis(otherwise="memory-bound"),
    "plausible",
    "Decode bound by memory is its healthy state, and memory-bound is not one of the labels.",
)


EXERCISE = Exercise(
    id="latency_throughput-step_log",
    title="What limits this server?",
    kind="trace",
    points=4,
    minutes=20,
    entries=("diagnose",),
    cases=cases,
    reference=_diagnosis(),
    compare=EXACT,
    misconceptions=tuple(wrong),
    hints=(
        (
            "For every step compute two times: reading (weights + cached tokens × bytes per token)"
            " and computing (2 FLOPs per parameter and new token)."
        ),
        (
            "Then four questions in the task's order; the first yes gives the label. Shares are"
            " counted over steps, the ratio is a median."
        ),
        (
            "sum(e['preempted'] > 0 for e in events) > 0.05·n; median(step_s / max(read, compute))"
            " > 2; waiting and 1 − cached/capacity > 0.5 in more than half; compute > read in more"
            " than half."
        ),
    ),
    ranges={"len(events)": (1, LONG)},
    recall=(
        "Requests wait, and half of the KV cache is free. What do you look at first?",
        (
            "The scheduler's cap on the batch (max_num_seqs and the like): there is room, and it is"
            " not used."
        ),
    ),
)
