"""Arrays by where they begin, for loops that go through many of one kind."""

from typing import Any

import numba
import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic

from twophase.kernels.compiled.loops import inner


@intrinsic  # type: ignore[untyped-decorator]
def _pointer(context: Any, address: Any) -> Any:
    """A number as a pointer."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.intp), build


@inner
def array_at(address: int, like: np.ndarray) -> np.ndarray:
    """The array that begins at an address, contiguous, of the shape and type of another. Whoever
    hands over the address keeps its array alive."""
    return numba.carray(_pointer(address), like.shape, like.dtype)  # type: ignore[no-any-return]


@inner
def vector_at(address: int, shape: np.ndarray) -> np.ndarray:
    """The array of fp32 that begins at an address, as long as `shape` says first."""
    return numba.carray(_pointer(address), shape[0], np.float32)  # type: ignore[no-any-return]


@inner
def matrix_at(address: int, shape: np.ndarray, like: np.ndarray) -> np.ndarray:
    """The matrix that begins at an address, of the type of another and so many rows and columns."""
    return numba.carray(_pointer(address), (shape[0], shape[1]), like.dtype)  # type: ignore[no-any-return]


@inner
def store_at(address: int, shape: np.ndarray, like: np.ndarray) -> np.ndarray:
    """The same for keys or values, of three sizes: slots, heads, width."""
    sizes = shape[0], shape[1], shape[2]
    return numba.carray(_pointer(address), sizes, like.dtype)  # type: ignore[no-any-return]


def shapes(arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    """The sizes of arrays, int64 [arrays, 3]; 1 where there is no second or third."""
    return np.array([(*array.shape, 1, 1)[:3] for array in arrays], np.int64)


def addresses(arrays: tuple[np.ndarray, ...]) -> list[int]:
    """Where arrays begin."""
    return [array.ctypes.data for array in arrays]
