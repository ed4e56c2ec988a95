"""Exact costs of the course's own compiled kernels (`twophase.kernels`). Importing this module
registers them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from .regions import Count
from .reports import watch

KERNELS = "twophase.kernels"


def _matvec(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> Count:
    """A multiply-add per weight; weights and vector read once, the result written once."""
    return Count(1, 2 * w.size, 0, w.nbytes + x.nbytes, y.nbytes)


def _matvec_int8(w: np.ndarray, scales: np.ndarray, x: np.ndarray, y: np.ndarray) -> Count:
    """The same with a scale per row: one more multiplication for each result."""
    return Count(1, 2 * w.size, y.size, w.nbytes + scales.nbytes + x.nbytes, y.nbytes)


def _grouped_mlp(
    x: np.ndarray,
    touched: np.ndarray,
    starts: np.ndarray,
    w_gate: np.ndarray,
    w_up: np.ndarray,
    w_down: np.ndarray,
    between: np.ndarray,
    y: np.ndarray,
) -> Count:
    """Three products for each visit; the matrices of touched experts read once, what lies between
    them written and read once."""
    expert = w_gate[0].size + w_up[0].size + w_down[0].size
    read = len(touched) * expert * w_gate.itemsize + x.nbytes + between.nbytes
    flops = 5 * between.size  # exp, two sums, quotient, product; a sign is none
    return Count(1, 2 * len(x) * expert, flops, read, between.nbytes + y.nbytes)


def _scan_forward(*arrays: np.ndarray) -> Count:
    """Seven operations for each number of every state: a step times a rate, its exponential, two
    products and a sum to the next state, a multiply-add to the output. The state itself is written
    where it was read."""
    u, _, A, _, _, state, kept, y = arrays
    read = sum(array.nbytes for array in arrays[:6])
    return Count(1, 0, 7 * u.size * len(A), read, state.nbytes + kept.nbytes + y.nbytes)


def _scan_back(*arrays: np.ndarray) -> Count:
    """The gradient: five operations for each number of every state to have the states again, 14
    for what it needs of them; seven arrays read, the rest written as well."""
    u, _, A = arrays[:3]
    read = sum(array.nbytes for array in arrays)
    written = sum(array.nbytes for array in arrays[7:])
    return Count(1, 0, 19 * u.size * len(A), read, written)


def _scan_on_gpu(*tensors: torch.Tensor) -> Count:
    """As `_scan_forward`; with it, three operations for each channel of a token: a step times an
    input, and the skip."""
    x, A = tensors[0], tensors[2]
    read, written = _bytes(tensors[:7]), _bytes(tensors[7:])
    return Count(1, 0, x.numel() * (7 * A.shape[1] + 3), read, written)


def _scan_back_on_gpu(*tensors: torch.Tensor) -> Count:
    """As `_scan_back`; with it, seven operations for each channel of a token: a step times an
    input, the gradients of both, and that of the skip. Sums over programs are torch's."""
    x, A = tensors[0], tensors[2]
    read, written = _bytes(tensors[:9]), _bytes(tensors[9:])
    return Count(1, 0, x.numel() * (19 * A.shape[1] + 7), read, written)


def _bytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


watch(f"{KERNELS}.matvec", "_matvec_float32", _matvec)
watch(f"{KERNELS}.matvec", "_matvec_int8", _matvec_int8)
watch(f"{KERNELS}.grouped_experts", "_grouped_mlp", _grouped_mlp)
watch(f"{KERNELS}.state_space_compiled", "_forward", _scan_forward)
watch(f"{KERNELS}.state_space_compiled", "_back", _scan_back)
watch(f"{KERNELS}.state_space_triton", "_forward", _scan_on_gpu)
watch(f"{KERNELS}.state_space_triton", "_back", _scan_back_on_gpu)
