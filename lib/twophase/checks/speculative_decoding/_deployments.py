"""Targets, drafts and machines for speculative_decoding-choose, and what each choice brings."""

from __future__ import annotations

import random
from typing import Any

from twophase.checks.edges import one_changed

Sizes = dict[str, float]  # weight_bytes, cache_bytes (of one sequence), token_flops
Draft = dict[str, Any]  # the same, a name, and its acceptances by place
Choice = tuple[str | None, int]
Situation = tuple[Sizes, Sizes, list[Draft], int]  # target, machine, drafts, B


def pass_s(model: Sizes, machine: Sizes, B: int, tokens: int) -> float:
    """Seconds of a pass over so many tokens of each of B sequences."""
    read = (model["weight_bytes"] + B * model["cache_bytes"]) / machine["bytes_per_s"]
    return max(read, B * tokens * model["token_flops"] / machine["flops_per_s"])


def fits(target: Sizes, machine: Sizes, draft: Sizes, B: int) -> bool:
    weights = target["weight_bytes"] + draft["weight_bytes"]
    caches = B * (target["cache_bytes"] + draft["cache_bytes"])
    return weights + caches <= machine["memory_bytes"]


def tokens_per_call(acceptances: list[float], gamma: int) -> float:
    tokens, reached = 1.0, 1.0
    for a in acceptances[:gamma]:
        reached *= a
        tokens += reached
    return tokens


def rate(target: Sizes, machine: Sizes, draft: Draft, B: int, gamma: int) -> float:
    """Tokens a second of all sequences together."""
    seconds = gamma * pass_s(draft, machine, B, 1) + pass_s(target, machine, B, gamma + 1)
    return B * tokens_per_call(draft["acceptances"], gamma) / seconds


def options(drafts: list[Draft]) -> list[tuple[Draft | None, int]]:
    """Every draft at every length, and none."""
    found: list[tuple[Draft | None, int]] = [(None, 0)]
    for draft in drafts:
        found += [(draft, gamma) for gamma in range(1, len(draft["acceptances"]) + 1)]
    return found


NOTHING: Draft = {
    "name": "",
    "weight_bytes": 0.0,
    "cache_bytes": 0.0,
    "token_flops": 0.0,
    "acceptances": [],
}


def made(
    rng: random.Random,
    B: int,
    sizes: tuple[float, ...] = (0.005, 0.03, 0.12, 0.4),
    room: float = 2.0,
    cache: float = 2e6,
    eager: float = 0.0,
) -> Situation:
    """A target of some billion parameters in two bytes each, and drafts of these shares of its
    size; the larger, the more is accepted."""
    weights = rng.uniform(5e9, 4e10)
    target = {"weight_bytes": weights, "cache_bytes": cache, "token_flops": weights}
    drafts = []
    for i, share in enumerate(sizes):
        first = min(0.97, 0.45 + 0.12 * i + eager + rng.uniform(0, 0.08))
        slope = rng.choice((-0.06, 0.0, 0.02))
        places = [min(0.99, max(0.05, first + slope * j)) for j in range(rng.randrange(3, 9))]
        drafts.append(
            {
                "name": f"draft {i + 1}",
                "weight_bytes": weights * share,
                "cache_bytes": cache * share,
                "token_flops": weights * share,
                "acceptances": places,
            }
        )
    rng.shuffle(drafts)
    machine = {
        "memory_bytes": room * weights + 2 * B * cache,
        "bytes_per_s": 3.35e12,
        "flops_per_s": 9.9e14,
    }
    return target, machine, drafts, B


def tight(rng: random.Random, B: int, over: float) -> Situation:
    """One good draft that just fits, or by `over` bytes does not, and a poor small one."""
    target, machine, drafts, _ = made(rng, B, sizes=(0.01, 0.05), cache=3e8)
    drafts.sort(key=lambda d: float(d["weight_bytes"]))
    target["weight_bytes"], target["cache_bytes"] = 2.0**33, 2.0**28
    drafts[0] |= {"weight_bytes": 2.0**25, "cache_bytes": 2.0**20, "acceptances": [0.4, 0.3]}
    drafts[1] |= {"weight_bytes": 2.0**28, "cache_bytes": 2.0**25, "acceptances": [0.95] * 5}
    needed = 2.0**33 + 2.0**28 + B * (2.0**28 + 2.0**25)
    return target, machine | {"memory_bytes": needed - over}, drafts, B


def odd(situation: Situation) -> Situation:
    """The good draft of `tight` larger by a byte: what is needed is then no number of float32."""
    target, machine, (poor, good), B = situation
    return target, machine, [poor, {**good, "weight_bytes": good["weight_bytes"] + 1}], B


def turned(situation: Situation) -> Situation:
    """The drafts in the reverse order."""
    target, machine, drafts, B = situation
    return target, machine, drafts[::-1], B


def slow_chip(situation: Situation, flops_per_s: float) -> Situation:
    target, machine, drafts, B = situation
    return target, machine | {"flops_per_s": flops_per_s}, drafts, B


def pays_no_longer(situation: Situation) -> list[tuple[str, Situation]]:
    """One thing changed, so that a draft that pays a little does not."""
    target, machine, drafts, B = situation
    smaller = {name: size / 2 for name, size in target.items()}
    targets = one_changed(target, weight_bytes=2.0**33, token_flops=2.0**42)
    machines = one_changed(machine, memory_bytes=2e10, bytes_per_s=2.0**49)
    return [
        ("the same draft for half the target", (smaller, machine, drafts, B)),
        ("the same draft, little arithmetic", slow_chip(situation, machine["bytes_per_s"])),
        ("the same draft, batch 300", (target, machine, drafts, 300)),
        *((f"the same draft {but}", (other, machine, drafts, B)) for but, other in targets),
        *((f"the same draft {but}", (target, other, drafts, B)) for but, other in machines),
    ]


def placeless() -> list[tuple[str, Situation]]:
    """Drafts of which no token may be drafted."""
    target, machine, (draft,), B = one(1, 0.05, [0.9] * 5)
    none = {**draft, "name": "no places", "acceptances": []}
    return [
        ("one draft, without places", (target, machine, [none], B)),
        ("a draft without places before a good one", (target, machine, [none, draft], B)),
        ("a draft without places behind a good one", (target, machine, [draft, none], B)),
    ]


def to_the_last_place() -> list[tuple[str, Situation]]:
    """A draft that takes next to no time, best at its full length alone."""
    share = 2.0**-20
    certain = [(f"all of {n} places certain", one(1, share, [1.0] * n)) for n in (9, 13, 17)]
    return [
        *certain,
        ("a poor place before many certain ones", one(1, share, [0.9, 0.01] + [1.0] * 98)),
    ]


def last_of_many(n: int) -> Situation:
    """So many drafts of one size, of which only the last is accepted."""
    target, machine, (draft,), B = one(1, 0.05, [0.9] * 5)
    poor = [{**draft, "name": f"draft {i}", "acceptances": [0.3]} for i in range(1, n)]
    return target, machine, [*poor, draft], B


def one(
    B: int,
    share: float,
    acceptances: list[float],
    cache_shares: tuple[float, float] = (0.0, 0.0),
    flops_per_byte: float = 1.0,
    bytes_per_s: float = 2.0**41,
) -> Situation:
    """A target of 2^34 bytes and one draft of a share of it; the caches of each sequence are shares
    of it, too; `flops_per_byte`: what the draft computes for a byte of its weights."""
    weights = 2.0**34
    target = {
        "weight_bytes": weights,
        "cache_bytes": cache_shares[0] * weights,
        "token_flops": weights,
    }
    draft = {
        "name": "the draft",
        "weight_bytes": share * weights,
        "cache_bytes": cache_shares[1] * weights,
        "token_flops": flops_per_byte * share * weights,
        "acceptances": acceptances,
    }
    machine = {
        "memory_bytes": 1e13,
        "bytes_per_s": bytes_per_s,
        "flops_per_s": 256 * bytes_per_s,
    }
    return target, machine, [draft], B
