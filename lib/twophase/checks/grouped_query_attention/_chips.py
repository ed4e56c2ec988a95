"""The assignments of grouped_query_attention-chip_heads: the printed one, and the right one."""

from __future__ import annotations

Heads = tuple[list[int], list[int]]  # query heads, KV heads


def right(rank: int, n_chips: int, N: int, K: int) -> Heads:
    queries, held = N // n_chips, max(1, K // n_chips)
    first = rank * K // n_chips
    return list(range(rank * queries, (rank + 1) * queries)), list(range(first, first + held))


def printed(rank: int, n_chips: int, N: int, K: int) -> Heads:
    queries, held = N // n_chips, max(1, K // n_chips)
    first = rank * held % K
    return list(range(rank * queries, (rank + 1) * queries)), list(range(first, first + held))


def problem(inputs: object) -> str:
    """Why these are no valid inputs, in one sentence; empty if they are."""
    if not isinstance(inputs, list | tuple) or not 1 <= len(inputs) <= 10:
        return "expose() must return a list of 1 to 10 inputs"
    for one in inputs:
        if (
            not isinstance(one, list | tuple)
            or len(one) != 4
            or any(type(x) is not int for x in one)
        ):
            return "an input is four whole numbers, (rank, n_chips, N, K)"
        rank, n_chips, N, K = one
        if not 1 <= K <= N <= 1024 or N % K or not 1 <= n_chips <= N or N % n_chips:
            return "N is at most 1,024, and K and n_chips must divide it"
        if K % n_chips and n_chips % K:
            return "one of K and n_chips must divide the other"
        if not 0 <= rank < n_chips:
            return "rank must be from 0 to n_chips − 1"
    return ""
