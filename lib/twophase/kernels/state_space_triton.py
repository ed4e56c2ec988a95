"""The selective scan at a speed to train with on a GPU: two kernels in Triton, forward and back.

What a scan computes is in `kernels.state_space`; this is the same, arranged for the machine. As a
Python loop it is a dozen kernels a token, and a kernel costs the GPU more than the numbers of one
token do. Here a program takes the tokens of one sequence for a few channels, and keeps their states
in registers; the gradient has few states to start from and computes the others again (Gu and Dao
2023, arXiv 2312.00752, section 3.3.2).
"""

import os
from functools import cache
from importlib.util import find_spec
from shutil import which
from typing import Any

import torch

from twophase.kernels.state_space import Pair, check_scan

BLOCK_D = 8  # channels of a program: with 16 numbers each, 4 states for each thread of a warp
CHUNK = 8  # tokens between two kept states, whose states and numbers fit into registers


@cache
def has_triton() -> bool:
    """Whether Triton can be imported here, which a torch for CUDA on Linux brings, and finds the C
    compiler that it starts kernels with, which many an image of a container lacks."""
    compilers = os.environ.get("CC") or which("gcc") or which("clang")
    return find_spec("triton") is not None and bool(compilers)


def triton_scan(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B_in: torch.Tensor,
    C: torch.Tensor,
    skip: torch.Tensor,
    state: torch.Tensor | None = None,
) -> Pair:
    """`selective_scan` on a GPU at a speed to train with: the same arguments, results and
    gradients.

    The same numbers on each run: sums over sequences and channels are taken in a fixed order. The
    host neither waits nor looks at values, so that it can be captured in a CUDA graph, once a first
    call has compiled it. Raises ValueError where `selective_scan` does, without Triton or a C
    compiler for it, and for tensors elsewhere than on a GPU (unless Triton's interpreter is on,
    TRITON_INTERPRET=1).
    """
    state = check_scan(x, dt, A, B_in, C, skip, state)
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if not has_triton() or (x.device.type != "cuda" and not interpreted):
        raise ValueError(
            "the scan in Triton runs on a GPU, with Triton and a C compiler installed; for tensors"
            f" on {x.device} take selective_scan."
        )
    y, last = _Scan.apply(x, dt, A, B_in, C, skip, state)  # type: ignore[no-untyped-call]
    return y, last  # [B, T, d_inner], [B, d_inner, d_state]


class _Scan(torch.autograd.Function):
    """The scan as one step of autograd. Tensors come in any dtype: kernels convert what they load,
    and all that they sum is fp32 (fp64 for fp64)."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> Pair:
        x, dt, A, B_in, C, skip, state = tensors
        given = [_rows(x), _rows(dt), A.contiguous(), _rows(B_in), _rows(C), skip.contiguous()]
        (B, T, D), N = x.shape, A.shape[1]
        wide = torch.promote_types(x.dtype, torch.float32)
        y = x.new_empty(B, T, D)
        kept = x.new_empty(B, -(-T // CHUNK), D, N, dtype=wide)
        last = x.new_empty(B, D, N, dtype=wide)
        _forward(*given, state.contiguous(), y, kept, last)
        ctx.save_for_backward(*given, kept)
        ctx.state_dtype = state.dtype
        return y, last

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, grad_y: torch.Tensor, grad_last: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        *given, kept = ctx.saved_tensors
        x, dt, A, B_in, C, skip = given
        (B, T, D), N = x.shape, A.shape[1]
        # What several programs add to is there once for each of them.
        grads = [
            torch.empty_like(x, memory_format=torch.contiguous_format),
            torch.empty_like(dt, memory_format=torch.contiguous_format),
            kept.new_empty(B, D, N),
            kept.new_empty(-(-D // BLOCK_D), B, T, N),
            kept.new_empty(-(-D // BLOCK_D), B, T, N),
            kept.new_empty(B, D),
            kept.new_empty(B, D, N, dtype=ctx.state_dtype),
        ]
        _back(*given, kept, _rows(grad_y), grad_last.contiguous(), *grads)
        for place, like in ((2, A), (3, B_in), (4, C), (5, skip)):
            grads[place] = grads[place].sum(0).to(like.dtype)
        return tuple(grads)


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor [B, T, ...], or a copy of it, with the numbers of a token side by side."""
    return tensor if tensor.stride(2) == 1 else tensor.contiguous()


def _forward(*tensors: torch.Tensor) -> None:
    """Launch `scan_forward` on x, dt, A, B_in, C, skip, state, and on y, kept and last, which it
    fills."""
    _launch("scan_forward", tensors, by_token=(0, 1, 3, 4))


def _back(*tensors: torch.Tensor) -> None:
    """Launch `scan_back` on x, dt, A, B_in, C, skip, kept, the gradients of y and last, and on
    those of x, dt, A, B_in, C, skip and state, which it fills."""
    _launch("scan_back", tensors, by_token=(0, 1, 3, 4, 7))


def _launch(kernel: str, tensors: tuple[torch.Tensor, ...], by_token: tuple[int, ...]) -> None:
    """One program for each sequence and BLOCK_D channels of it, on the device of the tensors;
    those `by_token`, [B, T, ...], come with two strides."""
    from twophase.kernels import state_space_triton_loops  # it takes Triton a while to start

    (B, T, D), N = tensors[0].shape, tensors[2].shape[1]
    block_n = 1 << (N - 1).bit_length()  # the next power of two
    warps = min(max(1, BLOCK_D * block_n // 128), 8)
    strides = [stride for place in by_token for stride in tensors[place].stride()[:2]]
    sizes = (D, N, BLOCK_D, block_n, CHUNK)
    with torch.cuda.device_of(tensors[0]):  # type: ignore[no-untyped-call]
        getattr(state_space_triton_loops, kernel)[(B, -(-D // BLOCK_D))](
            *tensors, T, *strides, *sizes, num_warps=warps
        )
