"""One decode step of attention over a long cache: what share of the memory's read bandwidth does
each way of writing it reach?

Bytes are the theory's: everything read or written once. Every way alternates with reads of a large
buffer, in the same run; the fastest of these is the limit that shares are of. Keys and values lie
in large pages for all ways.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from reading import at_least_1, reads, rested, seconds
from torch.nn import functional

from twophase.kernels.attention import causal_attention
from twophase.kernels.compiled.attention import (
    attend_rows,
    compiled_attention,
    compiled_paged_attention,
    paged_work,
    rows_of,
)
from twophase.kernels.compiled.pages import use_large_pages
from twophase.kernels.compiled.threads import threading_layer, workers
from twophase.measure import Table, race, si
from twophase.measure.yardsticks import buffer_bytes
from twophase.theory.arithmetic_intensity import attention_bytes

N, K, H = 32, 8, 128  # Llama-3 8B
G = N // K
PAGES = {f"our compiled_paged_attention, blocks of {size}": size for size in (64, 16)}
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def paged(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor, size: int
) -> Callable[[], torch.Tensor]:
    """Our way over pages of a cache that is as large, in any order."""
    numbers = torch.randperm(-(-k.shape[1] // size))[None]  # [1, blocks]
    if extra := numbers.numel() * size - k.shape[1]:  # the last block is not full
        k, v = (functional.pad(x, (0, 0, 0, 0, 0, extra)) for x in (k, v))
        use_large_pages(k, v)
    pages = [x.view(-1, size, K, H) for x in (k, v)]  # [blocks, size, K, H]
    return lambda: compiled_paged_attention(q, *pages, numbers, lengths).view(N, H)


def in_a_step(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor, size: int
) -> Callable[[], torch.Tensor]:
    """Our way as a step of a model has it: what is to be read is known for all layers, in blocks
    that follow each other."""
    numbers = torch.arange(-(-k.shape[1] // size))[None]  # [1, blocks]
    work = paged_work(numbers, lengths, numbers.numel(), size, None)
    stores = rows_of(k), rows_of(v)  # [S, K, H], bits of bf16
    return lambda: attend_rows(q, *stores, work, None, None).view(N, H)


def ways(S: int, dtype: torch.dtype) -> dict[str, Callable[[], torch.Tensor]]:
    """Ways to attend with one query over S keys, each returning [N, H]; ours takes a cache [1, S,
    K, H], torch [1, K, S, H]."""
    q = torch.randn(1, 1, N, H, dtype=dtype)
    k, v = torch.randn(1, S, K, H, dtype=dtype), torch.randn(1, S, K, H, dtype=dtype)
    use_large_pages(k, v)  # as compiled models have their caches
    by_head_k, by_head_v = (
        k.transpose(1, 2).contiguous(),
        v.transpose(1, 2).contiguous(),
    )  # [1, K, S, H]
    use_large_pages(by_head_k, by_head_v)
    queries, folded = q.transpose(1, 2), q.view(1, K, G, H)  # [1, N, 1, H] and [1, K, G, H]
    lengths = torch.tensor([S])
    attend = functional.scaled_dot_product_attention
    return {size: paged(q, k, v, lengths, blocks) for size, blocks in PAGES.items()} | {
        "SDPA, enable_gqa": (
            lambda: attend(queries, by_head_k, by_head_v, enable_gqa=True).view(N, H)
        ),
        "SDPA, keys repeated": (
            lambda: attend(
                queries, by_head_k.repeat_interleave(G, 1), by_head_v.repeat_interleave(G, 1)
            ).view(N, H)
        ),
        "SDPA, group folded into T": lambda: attend(folded, by_head_k, by_head_v).view(N, H),
        "matmul, softmax, matmul, folded": (
            lambda: (
                ((folded * H**-0.5) @ by_head_k.transpose(2, 3)).float().softmax(-1).to(dtype)
                @ by_head_v
            ).view(N, H)
        ),
        "our causal_attention, [B, S, K, H]": lambda: causal_attention(q, k, v).view(N, H),
        "our compiled_attention, [B, S, K, H]": (
            lambda: compiled_attention(q, k, v, lengths).view(N, H)
        ),
        "our compiled attention, in a step": in_a_step(q, k, v, lengths, 64),
    }


def repeated(way: Callable[[], object], times: int) -> Callable[[], object]:
    """So many calls of it."""
    return lambda: [way() for _ in range(times)]


def run(S: int, dtype: torch.dtype, budget_s: float, only: str = "") -> Table:
    """Race the ways for one cache length against a read of memory, after checking that they
    agree."""
    found = ways(S, dtype)
    expected = found["SDPA, enable_gqa"]().float()
    for name, way in found.items():
        if "paged" not in name:  # pages in any order are another sequence: a timing only
            torch.testing.assert_close(
                way().float(), expected, atol=2e-2, rtol=2e-2, msg=f"{name} computes something else"
            )
    found = {name: way for name, way in found.items() if only in name}
    n_bytes = buffer_bytes()
    moved = attention_bytes(1, 1, S, N, K, H, dtype.itemsize, dtype.itemsize)
    calls = max(1, n_bytes // moved)  # as many layers as take about as long as a read
    limits = reads(n_bytes)
    layers = {name: repeated(way, calls) for name, way in found.items()}
    result = race(rested(limits | layers), budget_s=budget_s, warmup=1)
    fastest = min(limits, key=lambda name: result[name].median_s)
    rows: list[list[object]] = []
    for name in [*found, *limits]:
        n, size = (calls, calls * moved) if name in found else (1, n_bytes)
        median_s, share = result[name].median_s, result.ratio(fastest, name) * size / n_bytes
        rows.append([name, si(median_s / n, "s"), si(size / median_s, "B/s"), share])
    caption = (
        f"one query over {S:,} keys, {N}/{K} heads of {H}, {dtype}, {si(moved, 'B')} to read,"
        f" {result[fastest].count} rounds"
    )
    return Table(rows, ["way", "median", "rate", "share of the fastest read"], caption, digits=3)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--lengths",
        type=at_least_1,
        nargs="+",
        default=[8192, 65536],
        help="keys in the cache (default 8192 65536)",
    )
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--threads", type=at_least_1, default=torch.get_num_threads())
    parser.add_argument("--only", default="", help="ways whose name has this in it (default all)")
    parser.add_argument(
        "--seconds", type=seconds, default=15.0, help="budget per length and format (default 15)"
    )
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    print(f"Numba on {threading_layer()}, {workers()} threads; torch {torch.get_num_threads()}")
    with torch.inference_mode():
        for S in options.lengths:
            for dtype in options.dtypes:
                print(run(S, DTYPES[dtype], options.seconds, options.only), end="\n\n")


if __name__ == "__main__":
    main()
