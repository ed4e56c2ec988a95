"""Matrix times vector: the operation that decode consists of.

A decode step at batch 1 reads every weight once and uses it once, so the best a kernel can do is to
read as fast as memory delivers. Library routines are made for matrix times matrix; how close they
come differs from machine to machine and from dtype to dtype. This plain loop per row, compiled by
Numba, is the yardstick beside them: measure, do not assume.
"""

import numba
import numpy as np
import torch

from twophase.kernels.compiled.compiling import compiled


@compiled(parallel=True, fastmath=True)
def _matvec_float32(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    for row in numba.prange(w.shape[0]):
        total = np.float32(0)
        for i in range(w.shape[1]):
            total += w[row, i] * x[i]
        y[row] = total


@compiled(parallel=True, fastmath=True)
def _matvec_int8(w: np.ndarray, scales: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    for row in numba.prange(w.shape[0]):
        total = np.float32(0)
        for i in range(w.shape[1]):
            total += np.float32(w[row, i]) * x[i]
        y[row] = total * scales[row]


def matvec(w: torch.Tensor, x: torch.Tensor, scales: torch.Tensor | None = None) -> torch.Tensor:
    """`w @ x` on the CPU: w [O, I], x fp32 [I], returns fp32 [O]; reads each weight once.

    w is fp32; or int8 with `scales` fp32 [O], one per row, and then stands for `w * scales[:,
    None]`, never written out. Raises ValueError for other dtypes, shapes that do not fit, a matrix
    that is not contiguous, or tensors on another device.
    """
    if w.ndim != 2 or x.shape != w.shape[1:] or x.dtype != torch.float32 or not w.is_contiguous():
        raise ValueError(
            f"matvec needs a contiguous w [O, I] and fp32 x [I]; got {list(w.shape)} and {x.dtype}"
            f" {list(x.shape)}."
        )
    if any(t.device.type != "cpu" for t in (w, x, *(() if scales is None else (scales,)))):
        raise ValueError(f"matvec runs on the CPU; for tensors on {w.device} take w @ x.")
    if (w.dtype == torch.int8) != (scales is not None) or w.dtype not in (
        torch.int8,
        torch.float32,
    ):
        raise ValueError(
            f"matvec takes fp32 weights without scales or int8 weights with them; got {w.dtype}."
        )
    y = torch.empty(w.shape[0])
    if scales is None:
        _matvec_float32(w.numpy(), x.contiguous().numpy(), y.numpy())
    elif scales.shape != w.shape[:1] or scales.dtype != torch.float32:
        raise ValueError(
            f"int8 weights need one fp32 scale per row, [{w.shape[0]}]; got {scales.dtype}"
            f" {list(scales.shape)}."
        )
    else:
        _matvec_int8(w.numpy(), scales.contiguous().numpy(), x.contiguous().numpy(), y.numpy())
    return y


def quantize_rows(w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Symmetric int8 by row: w fp32 [O, I] → (int8 [O, I], scales fp32 [O]) with `w ≈ int8 *
    scales[:, None]`.

    The largest magnitude of each row becomes ±127; a row of zeros has scale 1.
    """
    largest = w.abs().amax(dim=1)  # [O]
    scales = torch.where(largest == 0, 1.0, largest / 127).float()
    return (w / scales[:, None]).round().clamp(-127, 127).to(torch.int8), scales
