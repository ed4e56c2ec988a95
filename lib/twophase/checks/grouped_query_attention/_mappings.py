"""The mappings of grouped_query_attention-head_tests: two right ones, and one wrong in each way
that the reader's cases must catch. Each says which KV head query head n reads."""

from __future__ import annotations

from collections.abc import Callable

Mapping = Callable[[int, int, int], int]  # n, N, K


def by_group(n: int, N: int, K: int) -> int:
    return n // (N // K)


def by_share(n: int, N: int, K: int) -> int:
    return n * K // N


def in_turn(n: int, N: int, K: int) -> int:
    return n % K


def by_number_of_kv_heads(n: int, N: int, K: int) -> int:
    return min(n // K, K - 1)


def backwards(n: int, N: int, K: int) -> int:
    return K - 1 - n // (N // K)


def groups_begin_one_late(n: int, N: int, K: int) -> int:
    return max(0, n - 1) // (N // K)


def groups_of_four(n: int, N: int, K: int) -> int:
    return min(n // min(4, N // K), K - 1)


def groups_of_a_power_of_two(n: int, N: int, K: int) -> int:
    return min(n >> ((N // K).bit_length() - 1), K - 1)


def halves(n: int, N: int, K: int) -> int:
    return min(2 * n // N, K - 1) if 1 < K < N else by_group(n, N, K)


def groups_of_two_at_least(n: int, N: int, K: int) -> int:
    return n // max(2, N // K)


def one_head_taken_for_all(n: int, N: int, K: int) -> int:
    return n if K == 1 else by_group(n, N, K)


def last_head_alone(n: int, N: int, K: int) -> int:
    return 0 if n == N - 1 else by_group(n, N, K)


def rounded(n: int, N: int, K: int) -> int:
    return min(round(n * K / N), K - 1)


RIGHT: tuple[Mapping, ...] = (by_group, by_share)
MUTANTS: dict[str, Mapping] = {
    "deals KV heads out in turn": in_turn,
    "divides by K": by_number_of_kv_heads,
    "counts KV heads backwards": backwards,
    "begins every group one head late": groups_begin_one_late,
    "knows groups of up to four heads only": groups_of_four,
    "knows groups of a power of two only": groups_of_a_power_of_two,
    "cuts the heads into two halves": halves,
    "knows no group of one head": groups_of_two_at_least,
    "takes K = 1 for K = N": one_head_taken_for_all,
    "sends the last query head to KV head 0": last_head_alone,
    "rounds to the nearest group": rounded,
}
