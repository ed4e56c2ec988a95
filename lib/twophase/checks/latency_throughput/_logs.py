"""Engine logs for latency_throughput-step_log: the time of a step, servers, and scenes of which the
label is known."""

from __future__ import annotations

import random
from typing import Any

Events = list[dict[str, Any]]
Server = dict[str, Any]
Step = dict[str, Any]


def memory_s(e: Step, s: Server) -> float:
    return float(
        (s["weight_bytes"] + e["cached_tokens"] * s["kv_bytes_per_token"]) / s["bytes_per_s"]
    )


def compute_s(e: Step, s: Server) -> float:
    return float(2 * s["n_params"] * e["new_tokens"] / s["flops_per_s"])


def free(e: Step, s: Server) -> float:
    return float(1 - e["cached_tokens"] / s["capacity_tokens"])


def fresh_server(rng: random.Random) -> Server:
    """A model of 6 to 15 billion parameters on a large accelerator; the critical batch lies between
    150 and 300."""
    n_params = rng.randrange(6_000, 15_000) * 1_000_000
    bytes_per_s = rng.uniform(1.5e12, 4e12)
    made = {
        "n_params": n_params,
        "weight_bytes": 2 * n_params,
        "kv_bytes_per_token": rng.randrange(100, 400) * 1024,
        "bytes_per_s": bytes_per_s,
        "flops_per_s": bytes_per_s * rng.uniform(150, 300),
    }
    return made | {"capacity_tokens": int(5 * made["weight_bytes"] / made["kv_bytes_per_token"])}


def _step(
    rng: random.Random,
    s: Server,
    number: int,
    *,
    tokens: float = 0.3,
    held: float = 0.2,
    waiting: int = 0,
    slow: float = 1.15,
) -> Step:
    """`tokens` in critical batches, `held` is the filled share of the cache, `slow` times the
    roofline's time."""
    critical = s["flops_per_s"] / s["bytes_per_s"]
    e: Step = {
        "step": number,
        "new_tokens": max(1, round(critical * tokens * rng.uniform(0.96, 1.04))),
        "cached_tokens": round(s["capacity_tokens"] * held * rng.uniform(0.97, 1.03)),
        "waiting": waiting and rng.randrange(waiting, 3 * waiting),
        "preempted": 0,
    }
    e["step_s"] = max(memory_s(e, s), compute_s(e, s)) * slow * rng.uniform(0.96, 1.06)
    return e


def fresh_log(
    rng: random.Random,
    s: Server,
    n: int,
    *,
    phases: tuple[tuple[float, dict[str, Any]], ...] = (),
    preemptions: int = 0,
    preempted_share: float = 0.0,
    evicted: int = 1,
    spikes: int = 0,
    **step: Any,
) -> Events:
    """A log of `n` steps, all alike or in phases, each a share of the steps and what is special
    about them."""
    events: Events = []
    done = 0.0
    for share, special in phases or ((1.0, {}),):
        done += share
        events += [
            _step(rng, s, 100 + i, **step | special) for i in range(len(events), round(n * done))
        ]
    for e in rng.sample(events, preemptions + round(preempted_share * n)):
        e["preempted"] = evicted + rng.randrange(2) * (evicted > 1)
    for e in rng.sample(events, spikes):
        e["step_s"] *= rng.uniform(40, 60)
    return events


FULL, CAPPED = {"held": 0.95, "waiting": 7}, {"held": 0.15, "waiting": 7}
SCENES: dict[str, dict[str, Any]] = {
    "an ordinary evening": {},
    "long contexts": {"held": 0.85},
    "long contexts and a large batch": {"held": 0.9, "tokens": 1.8},
    "a large batch, computing three quarters of reading": {"tokens": 1.5},
    "few users": {"held": 0.05, "tokens": 0.02},
    "a full server, a queue": {"held": 0.95, "waiting": 7},
    "a full server with a queue, then an empty one without": {
        "phases": ((0.4, FULL), (0.2, CAPPED), (0.4, {"held": 0.15}))
    },
    "steps longer than they must be, but not twice as long": {"slow": 1.6, "tokens": 0.1},
    "two hiccups": {"spikes": 2},
    "a third of the steps very slow": {"phases": ((0.35, {"slow": 9.0}), (0.65, {}))},
    "slow steps, and long ones": {
        "phases": ((0.3, {}), (0.25, {"tokens": 12.0}), (0.45, {"slow": 8.0}))
    },
    "one sequence preempted once": {"held": 0.95, "preemptions": 1},
    "many sequences preempted in one step": {"held": 0.95, "preemptions": 1, "evicted": 9},
    "preempting": {"held": 0.96, "waiting": 4, "preemptions": 6},
    "preempting in one step of twelve": {"held": 0.96, "waiting": 4, "preempted_share": 0.085},
    "preempting, slow as well": {"held": 0.96, "waiting": 4, "preemptions": 9, "slow": 3.0},
    "overhead": {"held": 0.05, "tokens": 0.02, "slow": 6.0},
    "overhead of one and a half times": {"held": 0.4, "tokens": 0.1, "slow": 2.6},
    "overhead after a good start": {"phases": ((0.35, {}), (0.65, {"slow": 4.0}))},
    "overhead where reading and computing take equally long": {
        "held": 0.2,
        "tokens": 2.0,
        "slow": 2.7,
    },
    "overhead, and a cap on the batch": {"held": 0.1, "tokens": 0.05, "slow": 4.0, "waiting": 9},
    "a cap on the batch": {"held": 0.15, "tokens": 0.1, "waiting": 12},
    "a cap on the batch, felt in a third of the steps": {"phases": ((0.65, {}), (0.35, CAPPED))},
    "a cap on the batch, felt in two thirds of the steps": {
        "phases": ((0.35, {"held": 0.9}), (0.65, CAPPED))
    },
    "a cap on the batch, long prompts": {"held": 0.2, "tokens": 3.2, "waiting": 5},
    "large chunks of prompts": {"held": 0.2, "tokens": 3.5},
    "large chunks of prompts in a third of the steps": {
        "phases": ((0.65, {"tokens": 0.1}), (0.35, {"tokens": 9.0}))
    },
    "large chunks in two thirds, long contexts in the others": {
        "phases": ((0.35, {"held": 0.9, "tokens": 0.05}), (0.65, {"tokens": 2.7}))
    },
    "short contexts, a large batch": {"held": 0.7, "tokens": 8.0, "waiting": 3},
}
