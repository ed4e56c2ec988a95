"""One token through latent attention in its absorbed form: what stands before and after the
attention over latents.

What it computes is in `kernels.latent_attention` and `models.latent_attention`.
"""

import numba
import numpy as np

from twophase.kernels.compiled.dot import dots
from twophase.kernels.compiled.linear import normalize
from twophase.kernels.compiled.loops import as_stored, inner, loop
from twophase.kernels.compiled.numbers import value_of
from twophase.kernels.compiled.rope import turn

_f32 = np.float32


@inner
def append_latent(
    latent: np.ndarray,
    scale: np.ndarray,
    eps: np.float32,
    cos: np.ndarray,
    sin: np.ndarray,
    interleaved: bool,
    latents: np.ndarray,
    rope_keys: np.ndarray,
    slot: int,
) -> None:
    """Normalize the latent of a token, turn its key, and put both into their slot.

    latent: [R + rope_dim]; latents [slots, R], rope_keys [slots, rope_dim], fp32 or bf16 bits.
    """
    R = scale.shape[0]
    first = latent[:R]
    normalize(first, scale, scale[:0], eps, first)
    turn(latent, R, cos, sin, interleaved)
    for i in range(R):
        latents[slot, i] = as_stored(latent[i], latents)
    for i in range(rope_keys.shape[1]):
        rope_keys[slot, i] = as_stored(latent[R + i], rope_keys)


@loop
def absorb(
    q: np.ndarray,
    w: np.ndarray,
    cos: np.ndarray,
    sin: np.ndarray,
    interleaved: bool,
    q_latent: np.ndarray,
    q_rope: np.ndarray,
) -> None:
    """The queries as they meet latents, q_latent [1, N, R], and their turned parts, q_rope [1, N,
    rope_dim].

    q: [N·(nope_dim + rope_dim)]; w: [N, nope_dim + v_dim, R], keys' rows first.
    """
    N, rope_dim = q_rope.shape[1:]
    width = q.shape[0] // N
    nope = width - rope_dim
    for n in numba.prange(N):
        turn(q, n * width + nope, cos, sin, interleaved)
        for r in range(w.shape[2]):
            q_latent[0, n, r] = _f32(0)
        for d in range(nope):
            x = q[n * width + d]
            for r in range(w.shape[2]):
                q_latent[0, n, r] += x * value_of(w[n, d, r])
        for i in range(rope_dim):
            q_rope[0, n, i] = q[n * width + nope + i]


@loop
def unfold(summed: np.ndarray, w: np.ndarray, out: np.ndarray) -> None:
    """The values in weighted sums of latents: summed [1, N, R] → out [N, v_dim]."""
    nope = w.shape[1] - out.shape[1]
    for n in numba.prange(out.shape[0]):
        dots(w[n], nope, w.shape[1], summed[0, n], out[n], 0)
