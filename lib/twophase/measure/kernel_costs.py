"""Exact costs of the course's own compiled kernels (`twophase.kernels`). Importing this module registers them."""

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


watch(f"{KERNELS}.matvec", "_matvec_float32", _matvec)
watch(f"{KERNELS}.matvec", "_matvec_int8", _matvec_int8)
