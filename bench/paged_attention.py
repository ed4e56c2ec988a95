"""One decode step of attention over pages: what share of the memory's read bandwidth does it reach
in blocks of 16 and of 64 tokens, and what does a gather cost?

The peer gathers a sequence's blocks into one piece and calls SDPA, as whoever has no paged kernel
does; the heads that share a key are folded into its queries. The same kernel over a cache in one
piece is there, too. Blocks lie in the pool in any order. Every way alternates with reads of a large
buffer; the fastest of these is the limit that shares are of. Bytes are the theory's: keys and
values once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from decode_attention import DTYPES, H, K, N, repeated
from reading import at_least_1, reads, rested, seconds
from torch.nn import functional

from twophase.kernels.compiled.attention import compiled_attention, compiled_paged_attention
from twophase.kernels.compiled.pages import use_large_pages
from twophase.kernels.compiled.threads import threading_layer, workers
from twophase.measure import Table, race, si
from twophase.measure.yardsticks import buffer_bytes
from twophase.theory.arithmetic_intensity import attention_bytes

SIZES = (16, 64)
Way = Callable[[], torch.Tensor]


def ways(S: int, dtype: torch.dtype, sizes: list[int]) -> dict[str, Way]:
    """Ways to attend with one query over S keys, each returning [N, H]: the same keys in one piece,
    and in pools of blocks in another order."""
    q = torch.randn(1, 1, N, H, dtype=dtype)
    k, v = torch.randn(1, S, K, H, dtype=dtype), torch.randn(1, S, K, H, dtype=dtype)
    use_large_pages(k, v)
    lengths = torch.tensor([S])
    found: dict[str, Way] = {
        "ours, one piece": lambda: compiled_attention(q, k, v, lengths).view(N, H)
    }
    for size in sizes:
        table = torch.randperm(-(-S // size))[None]  # [1, blocks]
        pools = [_pool(x, table[0], size) for x in (k, v)]
        found |= _over_pages(q, pools, table, S, size)
    return found


def _pool(x: torch.Tensor, table: torch.Tensor, size: int) -> torch.Tensor:
    """The keys or values [1, S, K, H] in blocks: [blocks, size, K, H]."""
    pool = torch.zeros(len(table), size, K, H, dtype=x.dtype)
    padded = torch.zeros(len(table) * size, K, H, dtype=x.dtype)
    padded[: x.shape[1]] = x[0]
    pool[table] = padded.view(-1, size, K, H)  # [blocks, size, K, H]
    use_large_pages(pool)
    return pool


def _over_pages(
    q: torch.Tensor, pools: list[torch.Tensor], table: torch.Tensor, S: int, size: int
) -> dict[str, Way]:
    keys, values = pools
    lengths, queries = torch.tensor([S]), q.view(1, K, N // K, H)  # heads that share a key as T

    def gathered() -> torch.Tensor:
        one_piece = (pool[table[0]].flatten(0, 1)[None, :S].transpose(1, 2) for pool in pools)
        attend = functional.scaled_dot_product_attention  # over [1, K, S, H]
        return attend(queries, *one_piece).view(N, H)

    return {
        f"ours, blocks of {size}": (
            lambda: compiled_paged_attention(q, keys, values, table, lengths).view(N, H)
        ),
        f"gather, then SDPA, blocks of {size}": gathered,
    }


def run(S: int, dtype: torch.dtype, sizes: list[int], budget_s: float) -> Table:
    """Race the ways for one length against a read of memory, after checking that they agree."""
    found = ways(S, dtype, sizes)
    expected = found["ours, one piece"]().float()
    for name, way in found.items():
        torch.testing.assert_close(
            way().float(), expected, atol=2e-2, rtol=2e-2, msg=f"{name} computes something else"
        )
    n_bytes = buffer_bytes()
    moved = attention_bytes(1, 1, S, N, K, H, dtype.itemsize, dtype.itemsize)
    calls = max(1, n_bytes // moved)  # as many layers as take about as long as a read
    limits = reads(n_bytes)
    result = race(
        rested(limits | {name: repeated(way, calls) for name, way in found.items()}),
        budget_s=budget_s,
        warmup=1,
    )
    fastest = min(limits, key=lambda name: result[name].median_s)
    rows: list[list[object]] = []
    for name in [*found, *limits]:
        n, size = (calls, calls * moved) if name in found else (1, n_bytes)
        median_s, share = result[name].median_s, result.ratio(fastest, name) * size / n_bytes
        rows.append([name, si(median_s / n, "s"), si(size / median_s, "B/s"), share])
    caption = (
        f"one query over {S:,} keys in pages, {N}/{K} heads of {H}, {dtype}, {si(moved, 'B')} to"
        f" read, {result[fastest].count} rounds"
    )
    return Table(rows, ["way", "median", "rate", "share of the fastest read"], caption, digits=3)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--lengths",
        type=at_least_1,
        nargs="+",
        default=[8192, 16384, 32768],
        help="keys of the sequence (default 8192 16384 32768)",
    )
    parser.add_argument(
        "--blocks", type=at_least_1, nargs="+", default=list(SIZES), help="sizes (default 16 64)"
    )
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=["bf16"])
    parser.add_argument("--threads", type=at_least_1, default=torch.get_num_threads())
    parser.add_argument(
        "--seconds", type=seconds, default=8.0, help="budget per length and format (default 8)"
    )
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    print(f"Numba on {threading_layer()}, {workers()} threads; torch {torch.get_num_threads()}")
    with torch.inference_mode():
        for S in options.lengths:
            for dtype in options.dtypes:
                table = run(S, DTYPES[dtype], options.blocks, options.seconds)
                print(table, end="\n\n")


if __name__ == "__main__":
    main()
