"""The small world of latency_throughput-deployment: what a choice uses, takes and costs; fresh
workloads and machines, and plain ones."""

from __future__ import annotations

import random
from typing import Any

Workload = dict[str, Any]
Machine = dict[str, Any]
BYTES = {"bf16": 2, "int8": 1}
USABLE = 0.9


def weight_bytes(w: Workload, fmt: str) -> int:
    return int(w["n_params"] * BYTES[fmt])


def cache_bytes(w: Workload, batch: int) -> int:
    return int(batch * w["context"] * w["kv_values_per_token"] * 2)


def used_bytes(w: Workload, fmt: str, batch: int) -> int:
    return weight_bytes(w, fmt) + cache_bytes(w, batch)


def step_s(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> float:
    read_s = used_bytes(w, fmt, batch) / (n * m["bytes_per_s"])
    compute_s = 2 * w["n_params"] * batch / (n * m["flops_per_s"])
    return float(max(read_s, compute_s) + (n - 1) * m["sync_s"])


def fits(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> bool:
    return bool(used_bytes(w, fmt, batch) <= USABLE * n * m["memory_bytes"])


def price(w: Workload, m: Machine, n: int, fmt: str, batch: int) -> float:
    """Of a million tokens."""
    return float(m["price_per_hour"] * n / 3600 * 1e6 * step_s(w, m, n, fmt, batch) / batch)


def fresh_machines(rng: random.Random) -> list[Machine]:
    """Three chips with round but fresh numbers; the newest is dear per hour, the oldest cheap."""
    kinds = [
        ("old", 40, 1.5, 300, 1.2),
        ("middle", 80, 3.3, 900, 3.2),
        ("new", 180, 7.5, 2200, 7.5),
    ]
    return [
        {
            "name": name,
            "memory_bytes": round(memory * rng.uniform(0.8, 1.2)) * 10**9,
            "bytes_per_s": round(rate * rng.uniform(0.9, 1.1), 2) * 1e12,
            "flops_per_s": round(flops * rng.uniform(0.9, 1.1)) * 1e12,
            "price_per_hour": round(dollars * rng.uniform(0.85, 1.15), 2),
            "max_chips": rng.randrange(3, 9),
            "sync_s": round(rng.uniform(0.1, 1.0), 2) * 1e-3,
        }
        for name, memory, rate, flops, dollars in kinds
    ]


def fresh_workload(rng: random.Random, **fixed: Any) -> Workload:
    n_params = rng.randrange(7, 40) * 10**9
    w = {
        "n_params": n_params,
        "kv_values_per_token": rng.randrange(60, 400) * 1024,
        "context": rng.randrange(1_000, 9_000),
        "max_batch": rng.randrange(300, 2000),
        "tpot_limit_s": round(rng.uniform(0.012, 0.060), 4),
        "formats": ["bf16"] if rng.random() < 0.4 else ["bf16", "int8"],
    }
    return w | fixed


def work(n_params: int, bytes_per_sequence: int, **given: Any) -> Workload:
    """A workload of one cached token for each sequence, which takes so many bytes, without a limit
    that matters."""
    return {
        "n_params": n_params,
        "kv_values_per_token": bytes_per_sequence // 2,
        "context": 1,
        "max_batch": 8,
        "tpot_limit_s": 1e6,
        "formats": ["bf16"],
    } | given


def machine(name: str = "plain", **given: Any) -> Machine:
    """One chip of 1,000,000 bytes that reads 2^20 bytes a second and computes in no time."""
    return {
        "name": name,
        "memory_bytes": 1_000_000,
        "bytes_per_s": 2.0**20,
        "flops_per_s": 2.0**60,
        "price_per_hour": 1.0,
        "max_chips": 1,
        "sync_s": 0.0,
    } | given


SMALL: Machine = {"memory_bytes": 1000}
# weights of 2^20 bytes, 2^9 for each sequence: one sequence more or fewer moves the step by 0.05%
BIG = 2**19
ROOMY: Machine = {"memory_bytes": 2**22}
