"""Attention of one token over the slots of a cache: scores, softmax, sum, head by head.

For short caches, on one core or on all.
"""

import numba
import numpy as np

from twophase.kernels.compiled.loops import inner, loop, value_of

_f32 = np.float32


@inner
def score(q: np.ndarray, i: int, keys: np.ndarray, slot: int, k: int) -> np.float32:
    """Query head i times the key of KV head k in a slot."""
    total = _f32(0)
    for h in range(q.shape[1]):
        total += value_of(keys[slot, k, h]) * q[i, h]
    return total


@loop
def attend(
    q: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    first: int,
    n: int,
    scale: np.float32,
    cap: np.float32,
    p: np.ndarray,
    out: np.ndarray,
) -> None:
    """out [N, H]: what queries q [N, H] find in n slots from the `first` on, going round behind the
    last one.

    keys, values: [slots, K, H], float32 or bf16 bits. Scores are multiplied by `scale`, and become
    cap·tanh(score/cap) if `cap` is not 0. p [N, n or more] is scratch.
    """
    N, H = q.shape
    slots, K = keys.shape[:2]
    for i in numba.prange(N):
        k = i // (N // K)
        top, total = _f32(-np.inf), _f32(0)
        for s in range(n):
            p[i, s] = score(q, i, keys, (first + s) % slots, k) * scale
            if cap > _f32(0):
                p[i, s] = cap * np.tanh(p[i, s] / cap)
            top = max(top, p[i, s])
        for s in range(n):
            p[i, s] = np.exp(p[i, s] - top)
            total += p[i, s]
        for h in range(H):
            out[i, h] = _f32(0)
        for s in range(n):
            slot, weight = (first + s) % slots, p[i, s] / total
            for h in range(H):
                out[i, h] += weight * value_of(values[slot, k, h])
