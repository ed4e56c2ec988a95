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
    u, dts, Bs, Cs = (tensor.transpose(0, 1) for tensor in (dts * xs, dts, Bs, Cs))  # [T, B, ...]
    y, last = _Scan.apply(u, dts, A.T, Bs, Cs, h.transpose(1, 2))  # type: ignore[no-untyped-call]
    y = y.transpose(0, 1) + skip * xs  # [B, T, d_inner]
    return y.to(x.dtype), last.transpose(1, 2)  # [B, T, d_inner], [B, d_inner, d_state]


# Tokens between two kept states. Larger chunks keep less; but what one chunk computes, 2·CHUNK·B
# states, should fit into the cache of a core (4 MB at B = 16, d_inner = 256, d_state = 16).
CHUNK = 8


class _Scan(torch.autograd.Function):
    """The scan of u = dt·x, without the skip.

    Time comes first, so that a chunk is one block of memory; channels come last, so that the loops
    run over neighbors: u, dt [T, B, d_inner]; A [d_state, d_inner]; B_in, C [T, B, d_state]; state
    [B, d_state, d_inner].
    """

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> Pair:
        u, dt, A, B_in, C, state = (tensor.detach().contiguous() for tensor in tensors)
        y = torch.zeros_like(u)
        kept = []
        for part in _chunks(len(u)):
            kept.append(state)
            _, states = _run(u[part], dt[part], A, B_in[part], state)
            _read(states.numpy(), C[part].numpy(), y[part].numpy())
            state = states[-1].clone()
        ctx.save_for_backward(u, dt, A, B_in, C, *kept)
        return y, state

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, grad_y: torch.Tensor, grad_last: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        u, dt, A, B_in, C, *kept = ctx.saved_tensors
        grad_y, grad_state = (
            grad_y.contiguous(),
            grad_last.clone(memory_format=torch.contiguous_format),
        )
        grads = [torch.zeros_like(tensor) for tensor in (u, dt, A, B_in, C)]
        for part, state in reversed(list(zip(_chunks(len(u)), kept, strict=True))):
            fade, states = _run(u[part], dt[part], A, B_in[part], state)
            given = (fade, states, u[part], dt[part], A, B_in[part], C[part], grad_y[part])
            grad_u, grad_dt, grad_A, grad_B, grad_C = grads
            wanted = (grad_state, grad_u[part], grad_dt[part], grad_A, grad_B[part], grad_C[part])
            _back(*(tensor.numpy() for tensor in given + wanted))
        return (*grads, grad_state)


def _chunks(T: int) -> list[slice]:
    return [slice(t, min(t + CHUNK, T)) for t in range(0, T, CHUNK)]


def _run(
    u: torch.Tensor, dt: torch.Tensor, A: torch.Tensor, B_in: torch.Tensor, state: torch.Tensor
) -> Pair:
    """exp(dt·A) of a chunk of T tokens, [T, B, d_state, d_inner], and its T + 1 states, the given
    one first."""
    fade = (
        dt[:, :, None] * A
    ).exp_()  # [T, B, d_state, d_inner]; torch's exp runs on vectors, Numba's does not
    states = fade.new_empty(len(u) + 1, *state.shape)  # [T + 1, B, d_state, d_inner]
    states[0] = state
    _advance(fade.numpy(), u.numpy(), B_in.numpy(), states.numpy())
    return fade, states


# Sums may be taken in any order and fused with products, so that the loops use whole vectors. NaN
# and inf are respected.
_loop = compiled(fastmath={"reassoc", "contract", "nsz"}, nogil=True)


@_loop
def _advance(fade: np.ndarray, u: np.ndarray, B_in: np.ndarray, states: np.ndarray) -> None:
    """h_t = exp(dt_t·A)·h_(t-1) + B_t·u_t."""
    T, B, d_state, d_inner = fade.shape
    for b in range(B):
        for t in range(T):
            for n in range(d_state):
                fades, before, after = fade[t, b, n], states[t, b, n], states[t + 1, b, n]
                us, write = u[t, b], B_in[t, b, n]
                for d in range(d_inner):
                    after[d] = fades[d] * before[d] + write * us[d]


@_loop
def _read(states: np.ndarray, C: np.ndarray, y: np.ndarray) -> None:
    """y_t = C_t·h_t."""
    T, B, d_inner = y.shape
    for b in range(B):
        for t in range(T):
            for n in range(C.shape[2]):
                h, weight, out = states[t + 1, b, n], C[t, b, n], y[t, b]
                for d in range(d_inner):
                    out[d] += weight * h[d]


@_loop
def _back(
    fade: np.ndarray,
    states: np.ndarray,
    u: np.ndarray,
    dt: np.ndarray,
    A: np.ndarray,
    B_in: np.ndarray,
    C: np.ndarray,
    grad_y: np.ndarray,
    grad_state: np.ndarray,
    grad_u: np.ndarray,
    grad_dt: np.ndarray,
    grad_A: np.ndarray,
    grad_B: np.ndarray,
    grad_C: np.ndarray,
) -> None:
    """The loops above, last token first. `grad_state` comes in as that of the last state and leaves
    as that of the first.

    With g_t the gradient of h_t, all that follows included: g_t = C_t·grad_y_t +
    exp(dt_(t+1)·A)·g_(t+1).
    """
    T, B, d_state, d_inner = fade.shape
    for b in range(B):
        for t in range(T - 1, -1, -1):
            # A trailing s: the row of all channels. A leading g: the gradient of what follows.
            us, dts, gys, gus, gdts = u[t, b], dt[t, b], grad_y[t, b], grad_u[t, b], grad_dt[t, b]
            for n in range(d_state):
                fades, before, after, g = (
                    fade[t, b, n],
                    states[t, b, n],
                    states[t + 1, b, n],
                    grad_state[b, n],
                )
                a, ga, write, weight = A[n], grad_A[n], B_in[t, b, n], C[t, b, n]
                gb, gc = grad_B[t, b, n], grad_C[t, b, n]
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
                grad_B[t, b, n], grad_C[t, b, n] = gb, gc
