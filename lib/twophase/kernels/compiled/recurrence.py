"""One token through layers with a state: a selective state space, and linear attention.

What these are is in `kernels.state_space` and `kernels.linear_attention`. States are fp32; the
state before the token is read, the one after it written elsewhere, so that a pass that breaks off
has changed nothing.
"""

import math

import numba
import numpy as np

from twophase.kernels.compiled.dot import dots
from twophase.kernels.compiled.linear import ACTIVATIONS, activate_all, silu
from twophase.kernels.compiled.loops import inner, loop
from twophase.kernels.compiled.numbers import exp, softplus
from twophase.kernels.compiled.rope import turn

_f32 = np.float32
SILU = ACTIVATIONS["silu"]


@inner
def convolve(
    u: np.ndarray, weight: np.ndarray, bias: np.ndarray, before: np.ndarray, after: np.ndarray
) -> None:
    """Each channel's silu of the weighted sum of its last W inputs, u [d_inner] the newest, in
    place. The last W inputs before it and with it: before, after [d_inner, W]."""
    d_inner, W = weight.shape
    for d in range(d_inner):
        total = bias[d] + weight[d, W - 1] * u[d]
        for w in range(W - 1):
            after[d, w] = before[d, w + 1]
            total += weight[d, w] * before[d, w + 1]
        after[d, W - 1] = u[d]
        u[d] = total
    activate_all(SILU, u)


@loop
def state_space_step(
    u: np.ndarray,
    gate: np.ndarray,
    w_x: np.ndarray,
    w_dt: np.ndarray,
    dt_bias: np.ndarray,
    A: np.ndarray,
    skip: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    low: np.ndarray,
    y: np.ndarray,
) -> None:
    """y [d_inner] of convolved channels u: h = exp(dt·A)·h + dt·B·u, y = (C·h + skip·u)·silu(gate).

    low [dt_rank + 2·d_state] is scratch: what w_x makes of u, dt's low-rank form, B and C. A < 0
    and the memories before and after: [d_inner, d_state].
    """
    (d_inner, d_state), rank = A.shape, w_dt.shape[1]
    dots(w_x, 0, w_x.shape[0], u, low, 0)
    dt = np.empty(d_inner, _f32)
    dots(w_dt, 0, d_inner, low[:rank], dt, 0)
    for d in range(d_inner):
        dt[d] = softplus(dt[d] + dt_bias[d])
    B, C = low[rank : rank + d_state], low[rank + d_state :]
    for d in numba.prange(d_inner):
        step, faded, now = dt[d], before[d], after[d]
        fading, taken, found = A[d], dt[d] * u[d], skip[d] * u[d]
        for n in range(d_state):  # apart: in one loop with the rest it is half as fast
            now[n] = exp(step * fading[n])
        for n in range(d_state):
            h = now[n] * faded[n] + taken * B[n]
            now[n] = h
            found += h * C[n]
        y[d] = found
    for d in range(d_inner):
        y[d] *= silu(gate[d])


@inner
def taylor_features(x: np.ndarray, out: np.ndarray) -> None:
    """The 1 + f + f² Taylor features of x [f]."""
    f = x.shape[0]
    root, two = _f32(f**0.25), _f32(math.sqrt(2.0))
    out[0] = _f32(1)
    first = out[1 : 1 + f]
    for i in range(f):
        first[i] = x[i] / root
    for i in range(f):
        row = out[1 + f + i * f : 1 + f + (i + 1) * f]
        for j in range(f):
            row[j] = first[i] * first[j] / two  # rounded as the plain path does


@loop
def linear_attention_step(
    qkv: np.ndarray,
    f: int,
    cos: np.ndarray,
    sin: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
    out: np.ndarray,
) -> None:
    """out [N·H]: what the query finds in a state that took in key and value.

    qkv: queries and keys [N·f] each, values [N·H]; states before and after: [N, 1 + f + f², H + 1],
    whose last column sums features of keys alone. cos, sin [f/2], or none.
    """
    N, n_features, H = before.shape[0], before.shape[1], before.shape[2] - 1
    for head in numba.prange(N):
        q, k, v = head * f, (N + head) * f, 2 * N * f + head * H
        turn(qkv, q, cos, sin, False)
        turn(qkv, k, cos, sin, False)
        phi = np.empty((2, n_features), np.float32)
        taylor_features(qkv[q : q + f], phi[0])
        taylor_features(qkv[k : k + f], phi[1])
        value, found, norm = qkv[v : v + H], out[head * H : head * H + H], _f32(0)
        found[:] = _f32(0)
        for i in range(n_features):
            phi_q, phi_k = phi[0, i], phi[1, i]
            for h in range(H):
                summed = before[head, i, h] + phi_k * value[h]
                after[head, i, h] = summed
                found[h] += phi_q * summed
            after[head, i, H] = before[head, i, H] + phi_k
            norm += phi_q * after[head, i, H]
        for h in range(H):
            found[h] /= norm
