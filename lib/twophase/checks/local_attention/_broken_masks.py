"""The masks of local_attention-mask_tests: a right one, and one broken in each way that its cases
must catch. A mask says for each of the last T of S tokens which keys it sees."""

from __future__ import annotations

from collections.abc import Callable

Sees = list[list[int]]
Mask = Callable[[int, int, int], Sees]


def right(T: int, S: int, window: int) -> Sees:
    """The last `window` keys, the query's own included."""
    return [list(range(max(0, p - window + 1), p + 1)) for p in range(S - T, S)]


def one_too_many(T: int, S: int, window: int) -> Sees:
    return right(T, S, window + 1)


def one_too_few(T: int, S: int, window: int) -> Sees:
    return right(T, S, window - 1)


def top_left(T: int, S: int, window: int) -> Sees:
    return right(T, T, window)


def top_left_of_blocks(T: int, S: int, window: int) -> Sees:
    return right(T, S if T == 1 else T, window)


def no_window_in_a_step(T: int, S: int, window: int) -> Sees:
    return right(T, S, S if T == 1 else window)


def no_window_in_a_prompt(T: int, S: int, window: int) -> Sees:
    return right(T, S, S if T == S else window)


def no_window_behind_a_cache(T: int, S: int, window: int) -> Sees:
    return right(T, S, S if 1 < T < S else window)


def one_ahead(T: int, S: int, window: int) -> Sees:
    return [[*sees, p + 1][: S + 1] for p, sees in enumerate(right(T, S, window), S - T)]


def in_blocks(T: int, S: int, window: int) -> Sees:
    return [list(range(p // window * window, p + 1)) for p in range(S - T, S)]


def window_of_the_last(T: int, S: int, window: int) -> Sees:
    return [list(range(max(0, S - window), p + 1)) for p in range(S - T, S)]


def negative_start(T: int, S: int, window: int) -> Sees:
    """`keys[p − window + 1 : p + 1]`, which counts from the end where the start is below 0."""
    keys = list(range(S))
    return [keys[p - window + 1 : p + 1] for p in range(S - T, S)]


def everything_in_a_short_text(T: int, S: int, window: int) -> Sees:
    return [list(range(S))] * T if window >= S else right(T, S, window)


def window_of_old_keys(T: int, S: int, window: int) -> Sees:
    return [list(range(max(0, p - window), p)) for p in range(S - T, S)]


MUTANTS: dict[str, Mask] = {
    "sees one key too many": one_too_many,
    "sees one key too few": one_too_few,
    "starts at the top left": top_left,
    "starts at the top left for more than one query": top_left_of_blocks,
    "forgets the window in a decode step": no_window_in_a_step,
    "forgets the window in a prompt": no_window_in_a_prompt,
    "forgets the window in a block behind a cache": no_window_behind_a_cache,
    "sees one key of the future": one_ahead,
    "cuts the text into blocks": in_blocks,
    "gives all queries the last one's window": window_of_the_last,
    "counts from the end where the window begins before the text": negative_start,
    "hides nothing where the window is as long as the text": everything_in_a_short_text,
    "leaves out the query's own key": window_of_old_keys,
}
