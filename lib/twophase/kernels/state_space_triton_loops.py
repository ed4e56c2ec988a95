"""The loops of the selective scan for a GPU, in Triton: a program carries the states of a few
channels of one sequence from token to token, in registers.

One token hardly keeps a program busy for as long as memory takes to answer, so the numbers of a
whole chunk of tokens are asked for before the first of them is used. Tokens beyond the last have
steps of length 0: they change neither a state nor the gradient of one.

Everything here is compiled by Triton, not run by Python; where there is no Triton, the file can be
imported, and that is all. `state_space_triton` has the shapes of what the pointers point to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    import triton
    import triton.language as tl
    from triton.language import constexpr
except ImportError:  # it comes with a torch for CUDA, and with no other
    triton = None


def _jit(kernel: Callable[..., Any]) -> Any:
    return kernel if triton is None else triton.jit(kernel)


@_jit
def _rows(
    ptr: tl.tensor,
    stride: tl.tensor,
    start: tl.tensor,
    T: tl.tensor,
    places: tl.tensor,
    real: tl.tensor,
    CHUNK: constexpr,
    wide: constexpr,
) -> tuple[tl.tensor, ...]:
    """Of each token of a chunk, the numbers at `places`: CHUNK tensors; zeros where there is no
    such token or place."""
    rows = ()  # type: tuple[tl.tensor, ...]
    for i in tl.static_range(CHUNK):
        where = ptr + (start + i) * stride + places
        row = tl.load(where, mask=real & (start + i < T), other=0.0)
        rows = rows + (row.to(wide),)  # noqa: RUF005
    return rows


@_jit
def scan_forward(
    x_ptr: tl.tensor,
    dt_ptr: tl.tensor,
    A_ptr: tl.tensor,
    B_ptr: tl.tensor,
    C_ptr: tl.tensor,
    skip_ptr: tl.tensor,
    state_ptr: tl.tensor,
    y_ptr: tl.tensor,
    kept_ptr: tl.tensor,
    last_ptr: tl.tensor,
    T: tl.tensor,
    x_b: tl.tensor,
    x_t: tl.tensor,
    dt_b: tl.tensor,
    dt_t: tl.tensor,
    B_b: tl.tensor,
    B_t: tl.tensor,
    C_b: tl.tensor,
    C_t: tl.tensor,
    D: constexpr,
    N: constexpr,
    BLOCK_D: constexpr,
    BLOCK_N: constexpr,
    CHUNK: constexpr,
) -> None:
    """y, the state before each chunk and the last one, of D channels with N numbers each. `x_b` and
    `x_t`: from one sequence of x to the next, and from one token to the next."""
    wide = last_ptr.dtype.element_ty
    b = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    n = tl.arange(0, BLOCK_N)
    in_d, in_n = d < D, n < N
    in_h = in_d[:, None] & in_n[None, :]
    numbers = d[:, None] * N + n[None, :]  # [BLOCK_D, BLOCK_N], of a state
    A = tl.load(A_ptr + numbers, mask=in_h, other=0.0).to(wide)
    skip = tl.load(skip_ptr + d, mask=in_d, other=0.0).to(wide)
    h = tl.load(state_ptr + b * D * N + numbers, mask=in_h, other=0.0).to(wide)
    y_ptr += b * T * D
    kept_ptr += b * tl.cdiv(T, CHUNK) * D * N
    for start in range(0, T, CHUNK):
        xs = _rows(x_ptr + b * x_b, x_t, start, T, d, in_d, CHUNK, wide)
        dts = _rows(dt_ptr + b * dt_b, dt_t, start, T, d, in_d, CHUNK, wide)
        Bs = _rows(B_ptr + b * B_b, B_t, start, T, n, in_n, CHUNK, wide)
        Cs = _rows(C_ptr + b * C_b, C_t, start, T, n, in_n, CHUNK, wide)
        tl.store(kept_ptr + start // CHUNK * D * N + numbers, h, mask=in_h)
        for i in tl.static_range(CHUNK):
            fade = tl.exp(dts[i][:, None] * A)
            h = fade * h + (dts[i] * xs[i])[:, None] * Bs[i][None, :]
            y = tl.sum(h * Cs[i][None, :], axis=1) + skip * xs[i]
            tl.store(y_ptr + (start + i) * D + d, y, mask=in_d & (start + i < T))
    tl.store(last_ptr + b * D * N + numbers, h, mask=in_h)


@_jit
def scan_back(
    x_ptr: tl.tensor,
    dt_ptr: tl.tensor,
    A_ptr: tl.tensor,
    B_ptr: tl.tensor,
    C_ptr: tl.tensor,
    skip_ptr: tl.tensor,
    kept_ptr: tl.tensor,
    grad_y_ptr: tl.tensor,
    grad_last_ptr: tl.tensor,
    grad_x_ptr: tl.tensor,
    grad_dt_ptr: tl.tensor,
    grad_A_ptr: tl.tensor,
    grad_B_ptr: tl.tensor,
    grad_C_ptr: tl.tensor,
    grad_skip_ptr: tl.tensor,
    grad_state_ptr: tl.tensor,
    T: tl.tensor,
    x_b: tl.tensor,
    x_t: tl.tensor,
    dt_b: tl.tensor,
    dt_t: tl.tensor,
    B_b: tl.tensor,
    B_t: tl.tensor,
    C_b: tl.tensor,
    C_t: tl.tensor,
    grad_y_b: tl.tensor,
    grad_y_t: tl.tensor,
    D: constexpr,
    N: constexpr,
    BLOCK_D: constexpr,
    BLOCK_N: constexpr,
    CHUNK: constexpr,
) -> None:
    """All gradients, last chunk first; its states are computed again from the one that was kept.

    With g_t the gradient of h_t, all that follows included: g_t = C_t·grad_y_t +
    exp(dt_(t+1)·A)·g_(t+1).
    """
    wide = kept_ptr.dtype.element_ty
    b = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    n = tl.arange(0, BLOCK_N)
    in_d, in_n = d < D, n < N
    in_h = in_d[:, None] & in_n[None, :]
    numbers = d[:, None] * N + n[None, :]  # [BLOCK_D, BLOCK_N], of a state
    A = tl.load(A_ptr + numbers, mask=in_h, other=0.0).to(wide)
    skip = tl.load(skip_ptr + d, mask=in_d, other=0.0).to(wide)
    g = tl.load(grad_last_ptr + b * D * N + numbers, mask=in_h, other=0.0).to(wide)
    grad_A = tl.zeros([BLOCK_D, BLOCK_N], wide)
    grad_skip = tl.zeros([BLOCK_D], wide)
    chunks = tl.cdiv(T, CHUNK)
    kept_ptr += b * chunks * D * N
    grad_x_ptr += b * T * D
    grad_dt_ptr += b * T * D
    part = (tl.program_id(1) * tl.num_programs(0) + b) * T * N  # of what these channels add
    for back in range(chunks):
        start = (chunks - 1 - back) * CHUNK
        h = tl.load(kept_ptr + start // CHUNK * D * N + numbers, mask=in_h, other=0.0)
        xs = _rows(x_ptr + b * x_b, x_t, start, T, d, in_d, CHUNK, wide)
        dts = _rows(dt_ptr + b * dt_b, dt_t, start, T, d, in_d, CHUNK, wide)
        Bs = _rows(B_ptr + b * B_b, B_t, start, T, n, in_n, CHUNK, wide)
        Cs = _rows(C_ptr + b * C_b, C_t, start, T, n, in_n, CHUNK, wide)
        gys = _rows(grad_y_ptr + b * grad_y_b, grad_y_t, start, T, d, in_d, CHUNK, wide)
        fades = ()  # type: tuple[tl.tensor, ...]
        states = (h,)  # type: tuple[tl.tensor, ...]  # before the chunk, then after each token
        for i in tl.static_range(CHUNK):
            fade = tl.exp(dts[i][:, None] * A)
            h = fade * h + (dts[i] * xs[i])[:, None] * Bs[i][None, :]
            fades = fades + (fade,)  # noqa: RUF005
            states = states + (h,)  # noqa: RUF005
        for i in tl.static_range(CHUNK - 1, -1, -1):
            x, dt, gy, t = xs[i], dts[i], gys[i], start + i
            g += gy[:, None] * Cs[i][None, :]
            faded = g * fades[i]
            exponent = faded * states[i]  # the gradient of dt·A
            grad_u = tl.sum(g * Bs[i][None, :], axis=1)  # of u = dt·x
            grad_dt = grad_u * x + tl.sum(exponent * A, axis=1)
            grad_C = tl.sum(gy[:, None] * states[i + 1], axis=0)
            grad_B = tl.sum(g * (dt * x)[:, None], axis=0)
            tl.store(grad_x_ptr + t * D + d, grad_u * dt + skip * gy, mask=in_d & (t < T))
            tl.store(grad_dt_ptr + t * D + d, grad_dt, mask=in_d & (t < T))
            tl.store(grad_B_ptr + part + t * N + n, grad_B, mask=in_n & (t < T))
            tl.store(grad_C_ptr + part + t * N + n, grad_C, mask=in_n & (t < T))
            grad_A += exponent * dt[:, None]
            grad_skip += gy * x
            g = faded
    tl.store(grad_A_ptr + b * D * N + numbers, grad_A, mask=in_h)
    tl.store(grad_skip_ptr + b * D + d, grad_skip, mask=in_d)
    tl.store(grad_state_ptr + b * D * N + numbers, g, mask=in_h)
