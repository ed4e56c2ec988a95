"""Exact costs of the course's own compiled kernels (`twophase.kernels`). Importing this module
registers them."""

from __future__ import annotations

import numpy as np

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


def _scan_advance(fade: np.ndarray, u: np.ndarray, B_in: np.ndarray, states: np.ndarray) -> Count:
    """Two products and a sum for each number of every state; one state more is read than
    written."""
    return Count(
        1,
        0,
        3 * fade.size,
        fade.nbytes + u.nbytes + B_in.nbytes + states[0].nbytes,
        states[1:].nbytes,
    )


def _scan_read(states: np.ndarray, C: np.ndarray, y: np.ndarray) -> Count:
    """A multiply-add for each number of every state."""
    return Count(1, 0, 2 * states[1:].size, states[1:].nbytes + C.nbytes, y.nbytes)


def _scan_back(*arrays: np.ndarray) -> Count:
    """The gradient: 14 operations for each number of every state, eight arrays read, the rest
    written as well."""
    read = sum(array.nbytes for array in arrays)
    return Count(1, 0, 14 * arrays[0].size, read, sum(array.nbytes for array in arrays[8:]))


watch(f"{KERNELS}.matvec", "_matvec_float32", _matvec)
watch(f"{KERNELS}.matvec", "_matvec_int8", _matvec_int8)
watch(f"{KERNELS}.grouped_experts", "_grouped_mlp", _grouped_mlp)
watch(f"{KERNELS}.state_space_compiled", "_advance", _scan_advance)
watch(f"{KERNELS}.state_space_compiled", "_read", _scan_read)
watch(f"{KERNELS}.state_space_compiled", "_back", _scan_back)
