"""What lies between the projections of a new token and its attention: norms of heads, RoPE, and the
place in the cache."""

import numpy as np

from twophase.kernels.compiled.linear import normalize
from twophase.kernels.compiled.loops import as_stored, inner

_f32 = np.float32


@inner
def turn(x: np.ndarray, first: int, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> None:
    """RoPE of the numbers x[first:first + 2·len(cos)], a head or its beginning, in place."""
    half = cos.shape[0]
    if interleaved:
        for i in range(half):
            u, v = x[first + 2 * i], x[first + 2 * i + 1]
            x[first + 2 * i] = u * cos[i] - v * sin[i]
            x[first + 2 * i + 1] = v * cos[i] + u * sin[i]
    else:  # halves as arrays of their own: their indices need no check, and run on vectors
        left, right = x[first : first + half], x[first + half : first + 2 * half]
        for i in range(half):
            u, v = left[i], right[i]
            left[i] = u * cos[i] - v * sin[i]
            right[i] = v * cos[i] + u * sin[i]


@inner
def turn_append(
    qkv: np.ndarray,
    N: int,
    q_scale: np.ndarray,
    k_scale: np.ndarray,
    eps: np.float32,
    interleaved: bool,
    cos: np.ndarray,
    sin: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    slot: int,
) -> None:
    """Turn the queries and keys of a token, in place, and put key and value into their slot.

    qkv: [(N + 2K)·H], or [N·H] where the layer has no keys of its own, and then nothing is put
    anywhere. `q_scale`, `k_scale`: weights [H] of the norms of heads, or none. cos, sin: [H/2] at
    most, none without RoPE. keys, values: [slots, K, H], float32 or bf16 bits, to which the new
    ones are rounded.
    """
    H = keys.shape[2]
    K = (qkv.shape[0] // H - N) // 2
    for head in range(N + K):
        first = head * H
        scale = q_scale if head < N else k_scale
        if scale.shape[0]:
            part = qkv[first : first + H]
            normalize(part, scale, scale[:0], eps, part)
        turn(qkv, first, cos, sin, interleaved)
    for head in range(K):
        k, v = (N + head) * H, (N + K + head) * H
        new_key, new_value = qkv[k : k + H], qkv[v : v + H]
        for i in range(H):
            keys[slot, head, i] = as_stored(new_key[i], keys)
            values[slot, head, i] = as_stored(new_value[i], values)
