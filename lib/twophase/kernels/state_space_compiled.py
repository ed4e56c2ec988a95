"""The selective scan at a speed to train with on a CPU: compiled loops forward and back, and few
states kept between.

What a scan computes is in `kernels.state_space`; this is the same, arranged for the machine. The
idea of keeping few states and computing the others again is the paper's (Gu and Dao 2023, arXiv
2312.00752, section 3.3.2).
"""

from typing import Any

import numpy as np
import torch

from twophase.kernels.compiled.compiling import compiled
from twophase.kernels.compiled.numbers import exp_of
from twophase.kernels.state_space import Pair, prepare


def compiled_scan(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B_in: torch.Tensor,
    C: torch.Tensor,
    skip: torch.Tensor,
    state: torch.Tensor | None = None,
) -> Pair:
    """`selective_scan` on the CPU at a speed to train with: the same arguments, results and
    gradients.

    The plain form runs a dozen small operations per token and keeps all that they made for the
    gradient. This one loops in compiled code and keeps the state of every CHUNK-th token only; on
    the way back it computes the others again. Raises ValueError where `selective_scan` does, and
    for tensors elsewhere than in the memory of the CPU.
    """
    if x.device.type != "cpu":
        raise ValueError(
            f"the compiled scan runs on the CPU only; for tensors on {x.device} take"
            " selective_scan."
        )
    xs, dts, A, Bs, Cs, skip, h = prepare(x, dt, A, B_in, C, skip, state)
    y, last = _Scan.apply(dts * xs, dts, A.T, Bs, Cs, h.transpose(1, 2))  # type: ignore[no-untyped-call]
    y = y + skip * xs  # [B, T, d_inner]
    return y.to(x.dtype), last.transpose(1, 2)  # [B, T, d_inner], [B, d_inner, d_state]


# Tokens between two kept states. Larger chunks keep less; but what the way back computes of one,
# the fading and the states of CHUNK tokens, should fit into the cache of a core (0.3 MB at
# d_inner = 256, d_state = 16).
CHUNK = 8


class _Scan(torch.autograd.Function):
    """The scan of u = dt·x, without the skip.

    Channels come last, so that the loops run over neighbors: u, dt [B, T, d_inner]; A [d_state,
    d_inner]; B_in, C [B, T, d_state]; state [B, d_state, d_inner].
    """

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> Pair:
        given = [tensor.detach().contiguous() for tensor in tensors]
        u, state = given[0], given.pop().clone(memory_format=torch.contiguous_format)
        y = torch.zeros_like(u)
        kept = u.new_empty(len(u), -(-u.shape[1] // CHUNK), *state.shape[1:])
        _forward(*(tensor.numpy() for tensor in (*given, state, kept, y)))
        ctx.save_for_backward(*given, kept)
        return y, state

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, grad_y: torch.Tensor, grad_last: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        *given, kept = ctx.saved_tensors
        grads = [torch.zeros_like(tensor) for tensor in given]
        grads.append(grad_last.clone(memory_format=torch.contiguous_format))
        fade = kept.new_empty(CHUNK, *kept.shape[2:])  # exp(dt·A) of a chunk
        states = kept.new_empty(CHUNK + 1, *kept.shape[2:])  # its states, the one before it first
        _back(*(t.numpy() for t in (*given, kept, grad_y.contiguous(), fade, states, *grads)))
        return tuple(grads)


# Sums may be taken in any order and fused with products, so that the loops use whole vectors. NaN
# and inf are respected.
_loop = compiled(fastmath={"reassoc", "contract", "nsz"}, nogil=True)


@_loop
def _forward(
    u: np.ndarray,
    dt: np.ndarray,
    A: np.ndarray,
    B_in: np.ndarray,
    C: np.ndarray,
    state: np.ndarray,
    kept: np.ndarray,
    y: np.ndarray,
) -> None:
    """h_t = exp(dt_t·A)·h_(t-1) + B_t·u_t and y_t = C_t·h_t. `state` comes in as that before the
    first token and leaves as that after the last."""
    B, T, d_inner = u.shape
    for b in range(B):
        for t in range(T):
            if t % CHUNK == 0:
                kept[b, t // CHUNK] = state[b]
            us, dts, ys = u[b, t], dt[b, t], y[b, t]
            for n in range(len(A)):
                h, a, write, weight = state[b, n], A[n], B_in[b, t, n], C[b, t, n]
                for d in range(d_inner):
                    h[d] = exp_of(dts[d] * a[d]) * h[d] + write * us[d]
                    ys[d] += weight * h[d]


@_loop
def _again(
    u: np.ndarray,
    dt: np.ndarray,
    A: np.ndarray,
    B_in: np.ndarray,
    fade: np.ndarray,
    states: np.ndarray,
) -> None:
    """What `_forward` made of the tokens of one chunk of one sequence: exp(dt·A), and the states
    after states[0]."""
    T, d_inner = u.shape
    for t in range(T):
        us, dts = u[t], dt[t]
        for n in range(len(A)):
            fades, before, after = fade[t, n], states[t, n], states[t + 1, n]
            a, write = A[n], B_in[t, n]
            for d in range(d_inner):
                fades[d] = exp_of(dts[d] * a[d])
                after[d] = fades[d] * before[d] + write * us[d]


@_loop
def _back(
    u: np.ndarray,
    dt: np.ndarray,
    A: np.ndarray,
    B_in: np.ndarray,
    C: np.ndarray,
    kept: np.ndarray,
    grad_y: np.ndarray,
    fade: np.ndarray,
    states: np.ndarray,
    grad_u: np.ndarray,
    grad_dt: np.ndarray,
    grad_A: np.ndarray,
    grad_B: np.ndarray,
    grad_C: np.ndarray,
    grad_state: np.ndarray,
) -> None:
    """The loops above, last token first. `grad_state` comes in as that of the last state and leaves
    as that of the first.

    With g_t the gradient of h_t, all that follows included: g_t = C_t·grad_y_t +
    exp(dt_(t+1)·A)·g_(t+1).
    """
    B, T, d_inner = u.shape
    for b in range(B):
        for chunk in range(kept.shape[1] - 1, -1, -1):
            first, end = chunk * CHUNK, min((chunk + 1) * CHUNK, T)
            states[0] = kept[b, chunk]
            _again(u[b, first:end], dt[b, first:end], A, B_in[b, first:end], fade, states)
            for t in range(end - 1, first - 1, -1):
                # A trailing s: the row of all channels. A leading g: the gradient of what follows.
                us, dts, gys = u[b, t], dt[b, t], grad_y[b, t]
                gus, gdts = grad_u[b, t], grad_dt[b, t]
                for n in range(len(A)):
                    fades, g = fade[t - first, n], grad_state[b, n]
                    before, after = states[t - first, n], states[t - first + 1, n]
                    a, ga, write, weight = A[n], grad_A[n], B_in[b, t, n], C[b, t, n]
                    gb, gc = grad_B[b, t, n], grad_C[b, t, n]
                    for d in range(d_inner):
                        total = g[d] + weight * gys[d]
                        gc += after[d] * gys[d]
                        gb += total * us[d]
                        gus[d] += total * write
                        faded = total * fades[d]
                        exponent = faded * before[d]  # the gradient of dt·A
                        gdts[d] += exponent * a[d]
                        ga[d] += exponent * dts[d]
                        g[d] = faded
                    grad_B[b, t, n], grad_C[b, t, n] = gb, gc
