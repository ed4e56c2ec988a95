"""The models and machines of sharding-choose."""

from __future__ import annotations

from typing import Any

from twophase.checks.edges import one_changed

LLAMA = {"L": 80, "D": 8192, "F": 28672, "N": 64, "K": 8, "H": 128, "bytes": 2}
SMALL = {"L": 24, "D": 1024, "F": 4096, "N": 16, "K": 8, "H": 64, "bytes": 2}
WORKED = {"L": 64, "D": 4096, "F": 16384, "N": 32, "K": 8, "H": 256, "bytes": 2}
H100 = {
    "memory_bytes": 8e10,
    "flops_per_s": 9.89e14,
    "bytes_per_s": 3.35e12,
    "link_bytes_per_s": 4.5e11,
    "hop_s": 6e-7,
}
V5E = {
    "memory_bytes": 1.6e10,
    "flops_per_s": 1.97e14,
    "bytes_per_s": 8.1e11,
    "link_bytes_per_s": 9e10,
    "hop_s": 1e-6,
}
ETHERNET = {**H100, "link_bytes_per_s": 1.25e10, "hop_s": 2.5e-5}


Given = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]  # model, workload, machine


def one_other() -> dict[str, Given]:
    """A small model, and the same but for one number: whoever keeps results by the others is wrong
    there."""
    work, chips = {"B": 8, "S": 1024}, {**H100, "n_chips": 8}
    busy, three = {"B": 4097, "S": 18}, {**H100, "n_chips": 3}  # computing takes longer
    sizes = one_changed(SMALL, L=25, D=1040, F=4097, N=24, K=4, H=65, bytes=4)
    machines = one_changed(chips, bytes_per_s=3e12, link_bytes_per_s=4e11, hop_s=1e-6)
    return {
        "a small model": (SMALL, work, chips),
        **{f"the same {but}": (model, work, chips) for but, model in sizes},
        "the same but for S=1025": (SMALL, {**work, "S": 1025}, chips),
        **{f"the same {but}": (SMALL, work, machine) for but, machine in machines},
        "a small model, computing": (SMALL, busy, three),
        "computing at half the rate": (SMALL, busy, {**three, "flops_per_s": 5e14}),
    }


def uncommon() -> dict[str, Given]:
    """Fewer sequences than chips where computing takes longer; heads that no chip has as many of;
    and a second layout, listed before the quickest, 6.5% slower."""
    one = {"L": 1, "D": 64, "F": 2048, "N": 4, "K": 1, "H": 16, "bytes": 2}
    large = {"L": 16, "D": 4096, "F": 14336, "N": 32, "K": 8, "H": 128, "bytes": 2}
    slow = {"memory_bytes": 1e9, "bytes_per_s": 1e12, "flops_per_s": 1e9}
    wired = {**slow, "n_chips": 4, "link_bytes_per_s": 1e11, "hop_s": 1e-9}
    thin = {**slow, "flops_per_s": 1e15, "n_chips": 5, "link_bytes_per_s": 1e3, "hop_s": 0.0}
    two = {"memory_bytes": 8e10, "bytes_per_s": 3e12, "flops_per_s": 1e15}
    pair = {**two, "n_chips": 2, "link_bytes_per_s": 5e10, "hop_s": 1e-6}
    return {
        "one sequence on four chips, computing": (one, {"B": 1, "S": 4}, wired),
        "heads in fractions, nearly all of it sending": (one, {"B": 1, "S": 4}, thin),
        "the second one 6.5% slower, on two chips": (large, {"B": 256, "S": 512}, pair),
    }
