"""The selective state space of Mamba: a memory of fixed size that each token decides how to fade, write and read.

A channel keeps d_state numbers h. A token brings a step size dt and two vectors B and C, and does

    h ← exp(dt·A)·h + dt·B·x        y = C·h + skip·x

with A < 0 learned: a long step forgets the past and writes the token, a short one passes it by. Source: Gu and Dao 2023
(Mamba, arXiv 2312.00752), algorithm 2 and section 3.3. What the course calls `B_in` is the paper's B.
"""

from typing import Any

import numba
import numpy as np
import torch

Pair = tuple[torch.Tensor, torch.Tensor]


class StateSpaceState:
    """What one layer remembers of B sequences, whatever their length.

    `ssm` [B, d_inner, d_state] is the memory, `inputs` [B, d_inner, conv_width] the last inputs of the convolution,
    oldest first. `update(inputs, ssm, T)` takes what they are T tokens later.
    """

    def __init__(
        self,
        B: int,
        d_inner: int,
        d_state: int,
        conv_width: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        if min(B, d_inner, d_state, conv_width) < 1:
            raise ValueError(
                f"a state needs B, d_inner, d_state and conv_width of at least 1; got {B}, {d_inner}, {d_state}, {conv_width}."
            )
        self.ssm = torch.zeros(B, d_inner, d_state, dtype=dtype, device=device)
        self.inputs = torch.zeros(B, d_inner, conv_width, dtype=dtype, device=device)
        self._length = 0

    @property
    def length(self) -> int:
        """Tokens seen so far."""
        return self._length

    @property
    def nbytes(self) -> int:
        """Bytes taken, after one token or a million: `B·d_inner·(d_state + conv_width)` times the bytes of a number."""
        return (self.ssm.numel() + self.inputs.numel()) * self.ssm.element_size()

    def update(self, inputs: torch.Tensor, ssm: torch.Tensor, T: int) -> None:
        """Keep what `causal_conv` and `selective_scan` returned for T more tokens. ValueError if the shapes differ."""
        if inputs.shape != self.inputs.shape or ssm.shape != self.ssm.shape:
            raise ValueError(
                f"the state takes inputs {list(self.inputs.shape)} and memory {list(self.ssm.shape)}; "
                f"got {list(inputs.shape)} and {list(ssm.shape)}."
            )
        self.inputs.copy_(inputs)
        self.ssm.copy_(ssm)
        self._length += T

    def check_truncate(self, length: int) -> None:
        """Raise ValueError unless `truncate(length)` is possible."""
        if length not in (0, self._length):
            raise ValueError(
                f"a state of {self._length} tokens cannot be unwound to {length}: cut to 0 and read the tokens again."
            )

    def truncate(self, length: int) -> None:
        """Forget every token from `length` on: all (0) or none; a state has mixed the others beyond undoing."""
        self.check_truncate(length)
        if length == 0:
            self.ssm.zero_()
            self.inputs.zero_()
        self._length = length


def causal_conv(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, state: torch.Tensor | None = None
) -> Pair:
    """Each channel's weighted sum of its last W inputs: x [B, T, d_inner] → the same shape, and the last W inputs.

    weight [d_inner, W], newest input last; bias [d_inner]. `state` [B, d_inner, W], the last inputs before x, oldest
    first; None for zeros. The sums are in fp32 (fp64 for fp64).
    """
    T, W = x.shape[1], weight.shape[1]
    if state is None:
        state = x.new_zeros(x.shape[0], x.shape[2], W)
    inputs = torch.cat([state.transpose(1, 2).to(x.dtype), x], dim=1)  # [B, W + T, d_inner]
    wide = torch.promote_types(x.dtype, torch.float32)
    total = torch.zeros_like(x, dtype=wide)
    for i in range(W):
        total = total + inputs[:, i + 1 : i + 1 + T] * weight[:, i].to(wide)
    if bias is not None:
        total = total + bias
    return total.to(x.dtype), inputs[:, T:].transpose(1, 2)  # [B, T, d_inner], [B, d_inner, W]


def selective_scan(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B_in: torch.Tensor,
    C: torch.Tensor,
    skip: torch.Tensor,
    state: torch.Tensor | None = None,
) -> Pair:
    """The recurrence, token by token: outputs [B, T, d_inner] and the state after the last token, [B, d_inner, d_state].

    x and dt > 0 [B, T, d_inner]; A < 0 [d_inner, d_state]; B_in and C [B, T, d_state]; skip [d_inner]; `state` is the
    state before the first token, None for zeros. Computes in fp32 (fp64 for fp64); outputs have the dtype of x.
    """
    xs, dts, A, Bs, Cs, h = prepare(x, dt, A, B_in, C, state)
    outputs = []
    for t in range(x.shape[1]):
        fade = torch.exp(dts[:, t, :, None] * A)  # [B, d_inner, d_state]
        h = fade * h + (dts[:, t] * xs[:, t])[:, :, None] * Bs[:, t, None, :]  # [B, d_inner, d_state]
        outputs.append((h * Cs[:, t, None, :]).sum(-1))  # [B, d_inner]
    y = torch.stack(outputs, dim=1) + skip * xs  # [B, T, d_inner]
    return y.to(x.dtype), h


def prepare(
    x: torch.Tensor, dt: torch.Tensor, A: torch.Tensor, B_in: torch.Tensor, C: torch.Tensor, state: torch.Tensor | None
) -> tuple[torch.Tensor, ...]:
    """The same tensors in the precision of the scan, and a state. ValueError if the shapes do not fit."""
    B, T, d_inner = x.shape
    d_state = A.shape[1]
    expected = {"dt": (B, T, d_inner), "A": (d_inner, d_state), "B_in": (B, T, d_state), "C": (B, T, d_state)}
    given = {"dt": dt, "A": A, "B_in": B_in, "C": C}
    if state is not None:
        expected["state"], given["state"] = (B, d_inner, d_state), state
    for name, shape in expected.items():
        if tuple(given[name].shape) != shape:
            raise ValueError(f"a scan of x {list(x.shape)} takes {name} {list(shape)}; got {list(given[name].shape)}.")
    if T < 1:
        raise ValueError("a scan needs at least one token; got none.")
    wide = torch.promote_types(x.dtype, torch.float32)
    if state is None:
        state = x.new_zeros(B, d_inner, d_state)
    return tuple(tensor.to(wide) for tensor in (x, dt, A, B_in, C, state))


def compiled_scan(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B_in: torch.Tensor,
    C: torch.Tensor,
    skip: torch.Tensor,
    state: torch.Tensor | None = None,
) -> Pair:
    """`selective_scan` on the CPU at a speed to train with: the same arguments, results and gradients.

    The plain form runs a dozen small operations per token and keeps all that they made for the gradient. This one loops
    in compiled code and keeps the state of every CHUNK-th token only; on the way back it computes the others again.
    """
    xs, dts, A, Bs, Cs, h = prepare(x, dt, A, B_in, C, state)
    u, dts, Bs, Cs = (tensor.transpose(0, 1) for tensor in (dts * xs, dts, Bs, Cs))  # [T, B, ...]
    y, last = _Scan.apply(u, dts, A.T, Bs, Cs, h.transpose(1, 2))  # type: ignore[no-untyped-call]
    y = y.transpose(0, 1) + skip * xs  # [B, T, d_inner]
    return y.to(x.dtype), last.transpose(1, 2)  # [B, T, d_inner], [B, d_inner, d_state]


CHUNK = 8  # tokens between two kept states: the numbers of one chunk should fit into the cache of a core


class _Scan(torch.autograd.Function):
    """The scan of u = dt·x, without the skip. Time comes first, so that a chunk is one block of memory; channels come
    last, so that the loops run over neighbors.

    u, dt [T, B, d_inner]; A [d_state, d_inner]; B_in, C [T, B, d_state]; state [B, d_state, d_inner].
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
    def backward(ctx: Any, grad_y: torch.Tensor, grad_last: torch.Tensor) -> tuple[torch.Tensor, ...]:
        u, dt, A, B_in, C, *kept = ctx.saved_tensors
        grad_y, grad_state = grad_y.contiguous(), grad_last.clone(memory_format=torch.contiguous_format)
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


def _run(u: torch.Tensor, dt: torch.Tensor, A: torch.Tensor, B_in: torch.Tensor, state: torch.Tensor) -> Pair:
    """exp(dt·A) of a chunk of T tokens, [T, B, d_state, d_inner], and its T + 1 states, the given one first."""
    fade = (dt[:, :, None] * A).exp_()  # [T, B, d_state, d_inner]; torch's exp runs on vectors, Numba's does not
    states = fade.new_empty(len(u) + 1, *state.shape)  # [T + 1, B, d_state, d_inner]
    states[0] = state
    _advance(fade.numpy(), u.numpy(), B_in.numpy(), states.numpy())
    return fade, states


# Sums may be taken in any order and fused with products, so that the loops use whole vectors. NaN and inf are respected.
_loop = numba.njit(fastmath={"reassoc", "contract", "nsz"}, cache=True, nogil=True)


@_loop  # type: ignore[untyped-decorator]
def _advance(fade: np.ndarray, u: np.ndarray, B_in: np.ndarray, states: np.ndarray) -> None:
    """h_t = exp(dt_t·A)·h_(t-1) + B_t·u_t."""
    T, B, d_state, d_inner = fade.shape
    for b in range(B):
        for t in range(T):
            for n in range(d_state):
                fades, before, after, write, us = (
                    fade[t, b, n],
                    states[t, b, n],
                    states[t + 1, b, n],
                    B_in[t, b, n],
                    u[t, b],
                )
                for d in range(d_inner):
                    after[d] = fades[d] * before[d] + write * us[d]


@_loop  # type: ignore[untyped-decorator]
def _read(states: np.ndarray, C: np.ndarray, y: np.ndarray) -> None:
    """y_t = C_t·h_t."""
    T, B, d_inner = y.shape
    for b in range(B):
        for t in range(T):
            for n in range(C.shape[2]):
                h, weight, out = states[t + 1, b, n], C[t, b, n], y[t, b]
                for d in range(d_inner):
                    out[d] += weight * h[d]


@_loop  # type: ignore[untyped-decorator]
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
    """The loops above, last token first. `grad_state` comes in as that of the last state and leaves as that of the first.

    With g_t the gradient of h_t, all that follows included: g_t = C_t·grad_y_t + exp(dt_(t+1)·A)·g_(t+1).
    """
    T, B, d_state, d_inner = fade.shape
    for b in range(B):
        for t in range(T - 1, -1, -1):
            us, dts, gys, gus, gdts = u[t, b], dt[t, b], grad_y[t, b], grad_u[t, b], grad_dt[t, b]
            for n in range(d_state):
                fades, before, after, g = fade[t, b, n], states[t, b, n], states[t + 1, b, n], grad_state[b, n]
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
