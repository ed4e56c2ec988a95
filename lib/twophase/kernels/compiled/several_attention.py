"""Attention of a few new tokens of one sequence over its cache, which is read once.

All of them see most of the cache: the tokens before them; with a window, those that are still in
that of the last. So there the queries of T tokens that share a KV head are that many more heads of
one token, [N·T, H], and attention is that of a decode step. What is left is a query's own: the
tokens that only earlier windows still see, and the new ones up to its own. These are parts, each
with a softmax of its own, and the whole is merged of them (`merge`).

New keys and values are not in the cache yet: a ring would lose what early queries see.
"""

import numba
import numpy as np

from twophase.kernels.compiled.compiling import compiled
from twophase.kernels.compiled.loops import inner, loop
from twophase.kernels.compiled.merge import merge, room_for_parts
from twophase.kernels.compiled.parts import attend_task
from twophase.kernels.compiled.rope import turn_append
from twophase.kernels.compiled.tables import block_tokens, even_block_tokens, share_out, slot_table

_f32 = np.float32
Array = np.ndarray


@compiled(error_model="numpy", nogil=True)
def shared_work(
    start: int, T: int, slots: int, window: int, token_bytes: int, workers: int
) -> tuple[Array, Array, Array, Array]:
    """Which of the `start` tokens before T new ones are seen by whom, in a store of so many slots
    (`tables.slot_table`): the blocks that all see, and the tasks of these, [n, 3]; then the blocks
    that a query alone sees, and where those of each begin, [T + 1]. `window` 0: none."""
    begins = np.zeros(T, np.int64)  # the first token that each sees
    if window > 0:
        for t in range(T):
            begins[t] = min(start, max(0, start + t + 1 - window))
    begin = begins[T - 1]
    size = even_block_tokens(start - begin, token_bytes, workers)
    shared, starts = _blocks(start, start - begin, slots, size)
    tasks, _ = share_out(starts, workers)
    own, firsts = np.empty((0, 2), np.int64), np.zeros(T + 1, np.int64)
    for t in range(T):
        blocks, _ = _blocks(begin, begin - begins[t], slots, block_tokens(token_bytes))
        own = np.concatenate((own, blocks))
        firsts[t + 1] = len(own)
    return shared, tasks, own, firsts


@compiled(error_model="numpy", nogil=True)
def _blocks(length: int, seen: int, slots: int, size: int) -> tuple[Array, Array]:
    """The table of the last `seen` of so many tokens, none of them being none."""
    if seen <= 0:
        return np.empty((0, 2), np.int64), np.zeros(2, np.int64)
    return slot_table(np.array([length]), slots, seen, size)


@loop
def turn_attend_several(
    qkv: Array, N: int, q_scale: Array, k_scale: Array, eps: np.float32, interleaved: bool,
    scale: np.float32, cos: Array, sin: Array, new_keys: Array, new_values: Array, keys: Array,
    values: Array, shared: Array, tasks: Array, own: Array, firsts: Array, window: int,
    softcap: float, out: Array,
) -> None:  # fmt: skip
    """What T tokens find: `rope.turn_append` of their qkv [T, (N + 2K)·H] into new_keys and
    new_values [T, K, H], then attention over these and the store, keys and values [slots, K, H],
    into out [T, N, H]. cos, sin: of their positions, [T, H/2]; the four tables as `shared_work`
    makes them. Without keys of its own (qkv [T, N·H]) a layer reads new ones that are there."""
    T, H, n = len(qkv), keys.shape[2], len(tasks)
    for t in range(T):
        turn_append(
            qkv[t], N, q_scale, k_scale, eps, interleaved, cos[t], sin[t], new_keys, new_values, t
        )
    q = qkv[:, : N * H].copy().reshape(T, N, H)  # [T, N, H]
    heads = as_heads(q, keys.shape[1])  # [1, N·T, H]
    of_all, tops_of_all, totals_of_all = room_for_parts(n, N * T, H)
    parts = n + 2  # of each query
    outs, tops, totals = room_for_parts(T * parts, N, H)
    for task in numba.prange(n + T):
        if task < n:
            attend_task(
                tasks[task], heads, keys, values, shared, scale, softcap, of_all[task],
                tops_of_all[task], totals_of_all[task],
            )  # fmt: skip
        else:
            t = task - n
            mine = slice(t * parts + n, (t + 1) * parts)
            attend_alone(
                t, q, new_keys, new_values, keys, values, own[firsts[t] : firsts[t + 1]], window,
                scale, softcap, outs[mine], tops[mine], totals[mine],
            )  # fmt: skip
    for task in range(n):
        hand_out(
            of_all[task], tops_of_all[task], totals_of_all[task], task, parts, keys.shape[1],
            outs, tops, totals,
        )  # fmt: skip
    merge(np.arange(T + 1) * parts, outs, tops, totals, out)


@inner
def attend_alone(
    t: int, q: Array, new_keys: Array, new_values: Array, keys: Array, values: Array, own: Array,
    window: int, scale: np.float32, softcap: float, outs: Array, tops: Array, totals: Array,
) -> None:  # fmt: skip
    """Query t's own two parts [2, N, H]: the blocks `own` of the store, and the new tokens up to
    itself."""
    attend_task(
        np.array([t, 0, len(own)]), q, keys, values, own, scale, softcap, outs[0], tops[0],
        totals[0],
    )  # fmt: skip
    first = max(0, t + 1 - window) if window > 0 else 0
    new = np.array([[first, t + 1 - first]])
    attend_task(
        np.array([t, 0, 1]), q, new_keys, new_values, new, scale, softcap, outs[1], tops[1],
        totals[1],
    )  # fmt: skip


@inner
def as_heads(q: Array, K: int) -> Array:
    """Queries [T, N, H] as so many heads of one token, [1, N·T, H]: those of one KV head side by
    side."""
    T, N, H = q.shape
    G, heads = N // K, np.empty((1, N * T, H), _f32)
    for t in range(T):
        for i in range(N):
            heads[0, (i // G * T + t) * G + i % G] = q[t, i]
    return heads


@inner
def hand_out(
    found: Array, top: Array, total: Array, part: int, parts: int, K: int, outs: Array,
    tops: Array, totals: Array,
) -> None:  # fmt: skip
    """The other way round: what the heads [N·T, H] of a shared part found, to the parts of each
    query, outs [T·parts, N, H]."""
    N = outs.shape[1]
    T, G = len(outs) // parts, N // K
    for t in range(T):
        for i in range(N):
            head = (i // G * T + t) * G + i % G
            outs[t * parts + part, i] = found[head]
            tops[t * parts + part, i], totals[t * parts + part, i] = top[head], total[head]
