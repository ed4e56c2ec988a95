"""Attention of one query token for each sequence over its block table: in parts, which are merged.

Each task is some blocks of one sequence and has a softmax of its own (`merge`).
"""

from typing import Any

import numba
import numpy as np

from twophase.kernels.compiled.block import BEHIND, soften
from twophase.kernels.compiled.block_forms import (
    add_by,
    as_pairs,
    as_tiles,
    done_with,
    fill_registers,
    in_pairs,
    in_tiles,
    round_to,
    score_by,
)
from twophase.kernels.compiled.lanes import has_quick_pairs
from twophase.kernels.compiled.loops import inner, loop
from twophase.kernels.compiled.merge import LOWEST_SCORE, merge, room_for_parts
from twophase.kernels.compiled.rope import turn_append
from twophase.kernels.compiled.widened import arranged, restore

_f32 = np.float32
Array = np.ndarray
SOFTMAX_TOKENS = 64  # tokens of small blocks that share a step of the softmax
# Up to so many heads that share a key do without tiles: they wait for memory either way, and a Xeon
# slows tiles down by up to four times while others heat it.
TILED_ABOVE = 4
QUICK_PAIRS = has_quick_pairs()
# Columns behind those of a block that tiles of scores may write to; as pairs a whole line of
# weights, so that their rows begin where lines do, as tiles want them.
BEHIND_PAIRS = 32


@loop
def attend(
    q: Array,
    keys: Array,
    values: Array,
    table: Array,
    tasks: Array,
    first_task: Array,
    scale: np.float32,
    softcap: float,
    out: Array,
) -> None:
    """What the queries q, fp32 [B, N, H], find: into out, fp32 [B, N, Hv].

    keys [tokens, K, H], values [tokens, K, Hv]: fp32, or the bits of bf16. `table`, `tasks` and
    `first_task` as in `tables`; scores are multiplied by `scale`; softcap 0: none. A sequence
    without blocks gets zeros.
    """
    n, N, Hv = len(tasks), out.shape[1], out.shape[2]
    outs, tops, totals = room_for_parts(n, N, Hv)
    for task in numba.prange(n):
        attend_task(
            tasks[task], q, keys, values, table, scale, softcap, outs[task], tops[task],
            totals[task],
        )  # fmt: skip
    merge(first_task, outs, tops, totals, out)


@loop
def turn_append_attend(
    qkv: Array,
    N: int,
    q_scale: Array,
    k_scale: Array,
    eps: np.float32,
    interleaved: bool,
    scale: np.float32,
    cos: Array,
    sin: Array,
    keys: Array,
    values: Array,
    slot: int,
    table: Array,
    tasks: Array,
    first_task: Array,
    softcap: float,
    out: Array,
) -> None:
    """What a token's own query finds, once its key and value lie in the cache: `rope.turn_append`
    of qkv, then `attend` with its queries; out [1, N, Hv]."""
    turn_append(qkv, N, q_scale, k_scale, eps, interleaved, cos, sin, keys, values, slot)
    q = qkv[: N * keys.shape[2]].reshape(1, N, keys.shape[2])  # [1, N, H]
    attend(q, keys, values, table, tasks, first_task, scale, softcap, out)


@loop
def attend_latents(
    q: Array,
    q_rope: Array,
    latents: Array,
    rope_keys: Array,
    table: Array,
    tasks: Array,
    first_task: Array,
    scale: np.float32,
    softcap: float,
    out: Array,
) -> None:
    """The same in the absorbed form: q [B, N, R] and q_rope [B, N, rope_dim], fp32; latents
    [tokens, 1, R], rope_keys [tokens, 1, rope_dim]; into out, fp32 [B, N, R]."""
    n, N, Hv = len(tasks), out.shape[1], out.shape[2]
    outs, tops, totals = room_for_parts(n, N, Hv)
    for task in numba.prange(n):
        _latent_task(
            tasks[task], q, q_rope, latents, rope_keys, table, scale, softcap, outs[task],
            tops[task], totals[task],
        )  # fmt: skip
    merge(first_task, outs, tops, totals, out)


@inner
def attend_task(
    task: Array,
    q: Array,
    keys: Array,
    values: Array,
    table: Array,
    scale: np.float32,
    softcap: float,
    out: Array,
    top: Array,
    total: Array,
) -> None:
    """Some blocks of one sequence: a part, not yet divided.

    Into out [N, Hv], top and total [N]: `out / total` is the attention over these blocks, `top +
    log(total)` its log-sum-exp.
    """
    _clear(out, top, total)
    b, begin, end = task
    blocks = table[begin:end]
    width = max(SOFTMAX_TOKENS, _width(blocks))
    paired = in_pairs(keys) and fill_registers(keys.shape[2], values.shape[2])
    tiled = paired and len(out) > TILED_ABOVE * keys.shape[1] and in_tiles(keys)
    if tiled or (paired and QUICK_PAIRS):
        p = np.empty((len(out), width + BEHIND_PAIRS), _f32)
        asked, weights = as_pairs(q[b], keys), as_pairs(p, keys)  # room: nothing is in p yet
        if tiled:
            tiles = as_tiles(asked, keys, p.shape[1], values.shape[2])
            _attend_blocks(tiles, keys, values, blocks, scale, softcap, p, weights, out, top, total)
            done_with(tiles)
        else:
            _attend_blocks(asked, keys, values, blocks, scale, softcap, p, weights, out, top, total)
    else:
        p, asked = np.empty((len(out), width + BEHIND), _f32), arranged(q[b], keys)
        _attend_blocks(asked, keys, values, blocks, scale, softcap, p, p, out, top, total)
        restore(out, values)


@inner
def _attend_blocks(
    q: Any,
    keys: Array,
    values: Array,
    table: Array,
    scale: np.float32,
    softcap: float,
    p: Array,
    weights: Array,
    out: Array,
    top: Array,
    total: Array,
) -> None:
    """All blocks of a table. q [N, H] and the room for weights [N, width] are both fp32, weights
    then p itself, or both bits of bf16 (`block_forms`)."""
    t = 0
    while t < len(table):
        behind = _behind_group(table, t, len(table))
        p[:] = _f32(0)
        n = 0
        for block in range(t, behind):
            score_by(q, keys, values, table[block, 0], table[block, 1], p, n)
            n += table[block, 1]
        soften(p, n, _f32(scale), _f32(softcap), out, top, total)
        round_to(p, n, weights)
        n = 0
        for block in range(t, behind):
            first, following = table[block, 0], table[min(block + behind - t, len(table) - 1), 0]
            add_by(q, weights, n, values, first, table[block, 1], out, keys, following)
            n += table[block, 1]
        t = behind


@inner
def _latent_task(
    task: Array, q: Array, q_rope: Array, latents: Array, rope_keys: Array, table: Array,
    scale: np.float32, softcap: float, out: Array, top: Array, total: Array,
) -> None:  # fmt: skip
    """`attend_task` in the absorbed form: a latent is key and value of all heads, and what a
    rotated key adds to a score comes on top."""
    _clear(out, top, total)
    b, begin, end = task
    blocks = table[begin:end]
    width, tiled = _width(blocks), in_tiles(latents)
    R, rope_dim = latents.shape[2], rope_keys.shape[2]
    if in_pairs(latents) and fill_registers(R, R) and fill_registers(rope_dim, R):
        p = np.empty((len(out), width + BEHIND_PAIRS), _f32)
        asked, turned = as_pairs(q[b], latents), as_pairs(q_rope[b], latents)
        weights = as_pairs(p, latents)  # room: nothing is in p yet
        if tiled:
            tiles = as_tiles(asked, latents, p.shape[1], latents.shape[2])
            turned_tiles = as_tiles(turned, latents, p.shape[1], 0)  # as many heads: same shapes
            _latent_blocks(
                tiles, turned_tiles, latents, rope_keys, blocks, scale, softcap, p, weights,
                out, top, total,
            )  # fmt: skip
            done_with(tiles)
        else:
            _latent_blocks(
                asked, turned, latents, rope_keys, blocks, scale, softcap, p, weights,
                out, top, total,
            )  # fmt: skip
    else:
        p = np.empty((len(out), width + BEHIND), _f32)
        asked, turned = arranged(q[b], latents), arranged(q_rope[b], rope_keys)
        _latent_blocks(
            asked, turned, latents, rope_keys, blocks, scale, softcap, p, p, out, top, total
        )
        restore(out, latents)


@inner
def _latent_blocks(
    q: Any,
    q_rope: Any,
    latents: Array,
    rope_keys: Array,
    table: Array,
    scale: np.float32,
    softcap: float,
    p: Array,
    weights: Array,
    out: Array,
    top: Array,
    total: Array,
) -> None:
    """All blocks of a table; dtypes as in `_attend_blocks`."""
    for t in range(len(table)):
        first, n = table[t]
        following = table[min(t + 1, len(table) - 1), 0]
        p[:] = _f32(0)
        score_by(q, latents, rope_keys, first, n, p, 0)
        score_by(q_rope, rope_keys, rope_keys, first, n, p, 0)
        soften(p, n, _f32(scale), _f32(softcap), out, top, total)
        round_to(p, n, weights)
        add_by(q, weights, 0, latents, first, n, out, latents, following)


@inner
def _clear(out: Array, top: Array, total: Array) -> None:
    """What a part is before its first block."""
    out[:] = _f32(0)
    top[:] = LOWEST_SCORE
    total[:] = _f32(0)


@inner
def _behind_group(table: Array, t: int, end: int) -> int:
    """The block behind those that share a step of the softmax with block t: SOFTMAX_TOKENS together
    at most. One of an odd number of tokens is the last, since weights go in pairs."""
    n = table[t, 1]
    behind = t + 1
    while behind < end and n % 2 == 0 and n + table[behind, 1] <= SOFTMAX_TOKENS:
        n += table[behind, 1]
        behind += 1
    return behind


@inner
def _width(blocks: Array) -> int:
    """Tokens of the largest block [n, 2], made even for pairs of weights."""
    largest = 0
    for t in range(len(blocks)):
        largest = max(largest, blocks[t, 1])
    return largest + largest % 2
