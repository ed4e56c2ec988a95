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
def at(address: int, like: np.ndarray) -> np.ndarray:
    """The array that begins at an address, contiguous, of the shape and type of another. Whoever
    hands over the address keeps its array alive."""
    return numba.carray(_pointer(address), like.shape, like.dtype)  # type: ignore[no-any-return]


def addresses(arrays: tuple[np.ndarray, ...]) -> list[int]:
    """Where arrays begin."""
    return [array.ctypes.data for array in arrays]
