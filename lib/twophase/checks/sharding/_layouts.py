"""What a layer of a decode step sends, holds and reads in each layout: sharding-sent_bytes and
sharding-choose."""

from __future__ import annotations

from typing import Any

Sizes = dict[str, int]  # B, D, F, N, K, H, bytes
PARTIAL_BYTES = 4  # of a number of a partial output


def layer_params(s: Sizes) -> int:
    """Weights of a layer: a gated MLP, and attention's four projections."""
    return 3 * s["D"] * s["F"] + (2 * s["N"] + 2 * s["K"]) * s["H"] * s["D"]


def parts(layout: str, s: Sizes, n: int) -> list[tuple[str, float]]:
    """The collectives of a layer: kind, and bytes of the whole array (of what one rank holds, in an
    all_to_all)."""
    B, heads, outputs = s["B"], (s["N"] + 2 * s["K"]) * s["H"], s["N"] * s["H"]
    sums: list[tuple[str, float]] = [("all_reduce", B * s["D"] * s["bytes"])] * 2
    if layout == "gathered":
        return [("all_gather", layer_params(s) * s["bytes"])]
    if layout == "batch":
        there, back = B * heads * s["bytes"] / n, B * outputs * s["bytes"] / n
        return [*sums, ("all_to_all", there), ("all_to_all", back)]
    if layout == "length":
        partial = B * s["N"] * (s["H"] + 2) * PARTIAL_BYTES
        return [*sums, ("all_gather", B * heads * s["bytes"]), ("all_to_all", partial)]
    return sums if layout == "tensor" else []


def sent(collectives: list[tuple[str, float]], n: int) -> float:
    """Bytes that each rank sends."""
    return sum(rounds(kind) * size * (n - 1) / n for kind, size in collectives)


def rounds(kind: str) -> int:
    """An all-reduce goes round twice."""
    return 2 if kind == "all_reduce" else 1


def loads(layout: str, p: dict[str, Any]) -> tuple[float, float, float]:
    """Bytes that a chip holds and reads, and its FLOPs, in a decode step."""
    n, B, L = p["n_chips"], p["B"], p["L"]
    params = L * layer_params(p)
    cache = 2 * L * p["S"] * p["K"] * p["H"] * p["bytes"]
    own = -(-B // n)
    kept = {
        "tensor": B * cache * -(-p["K"] // n) / p["K"],
        "length": B * cache / n,
    }.get(layout, own * cache)
    cut = layout in ("tensor", "batch", "length")
    held = params * p["bytes"] / (1 if layout == "replicas" else n) + kept
    read = params * p["bytes"] / (n if cut else 1) + kept
    return held, read, 2 * params * (B / n if cut else own)


def step_s(layout: str, p: dict[str, Any]) -> float:
    """Seconds of a decode step: the longer of reading and computing, then sending."""
    _, read, flops = loads(layout, p)
    work_s = max(read / p["bytes_per_s"], flops / p["flops_per_s"])
    return float(work_s + sending_s(layout, p))


def sending_s(layout: str, p: dict[str, Any]) -> float:
    """Seconds of all collectives of all layers."""
    n = p["n_chips"]
    messages = parts(layout, p, n)
    hops = sum(rounds(kind) * (n - 1) for kind, _ in messages)
    return float(p["L"] * (sent(messages, n) / p["link_bytes_per_s"] + hops * p["hop_s"]))


LAYOUTS = ("tensor", "batch", "length", "gathered", "replicas")


def fits(layout: str, p: dict[str, Any]) -> bool:
    """Whether it has room."""
    return bool(loads(layout, p)[0] <= p["memory_bytes"])
