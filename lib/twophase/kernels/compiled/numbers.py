"""Numbers inside compiled loops: bf16 bits to fp32 and back, and an exponential that runs on
vectors.

Numba knows no bf16, so a bf16 tensor comes in as its bits (`tensor.view(torch.uint16)`). A bf16 is
the upper half of an fp32: widening is a shift. And Numba's `np.exp` calls a function for each
number, 2 ns; a polynomial is vectorized, 0.1 to 0.3 ns.

LLVM inlines these functions into the loops that call them, and each keeps its own flags there:
`exp` needs its operations in the order written, whatever its caller allows.
"""

import math
from typing import Any

import numba
import numba.extending
import numpy as np

from twophase.kernels.compiled.compiling import compiled

_u16, _u32, _i32, _f32 = np.uint16, np.uint32, np.int32, np.float32

LOG2_E = _f32(1.4426950408889634)
# ln 2 in two parts: the first has 9 bits, so that its product with a whole number below 2**15 is
# exact; the second is what is left.
LN_2_HIGH = _f32(0.693359375)
LN_2_LOW = _f32(-2.12194440e-4)
# From -87.68 (-126.5 · ln 2) down i is -127, and 2**i has no exponent left: the result is 0.
EXP_BEGINS = _f32(-88.02969)
# exp(r) for |r| ≤ ln(2) / 2, as 1 + r + r²·(...): Cephes' expf (Moshier 1992).
C_2, C_3, C_4 = _f32(5.0000001201e-1), _f32(1.6666665459e-1), _f32(4.1665795894e-2)
C_5, C_6, C_7 = _f32(8.3334519073e-3), _f32(1.3981999507e-3), _f32(1.9875691500e-4)
# tanh(x) near 0: its Taylor series, x·(1 + T_3·x² + T_5·x⁴ + T_7·x⁶).
T_3, T_5, T_7 = _f32(-1 / 3), _f32(2 / 15), _f32(-17 / 315)
# artanh(s): its Taylor series, s·(1 + s²/3 + s⁴/5 + ...).
A_3, A_5, A_7 = _f32(1 / 3), _f32(1 / 5), _f32(1 / 7)
A_9, A_11, A_13 = _f32(1 / 9), _f32(1 / 11), _f32(1 / 13)


@compiled()
def widen(bits: np.uint16) -> np.float32:
    """The fp32 of the same value as the bf16 with these 16 bits (exact, NaN and inf as well)."""
    return _u32(_u32(bits) << _u32(16)).view(_f32)


@compiled()
def narrow(x: np.float32) -> np.uint16:
    """The 16 bits of the bf16 nearest to the fp32 x, to even in the middle; NaN stays NaN.

    On integers only, so that no flag of a caller can touch NaN and inf.
    """
    bits = _f32(x).view(_u32)
    if _u32(bits & _u32(0x7FFFFFFF)) > _u32(0x7F800000):  # NaN: adding could carry it to a number
        return _u16(_u32(bits >> _u32(16)) | _u32(0x0040))
    odd = _u32(_u32(bits >> _u32(16)) & _u32(1))
    return _u16(_u32(bits + _u32(0x7FFF) + odd) >> _u32(16))


@compiled(fastmath={"contract"})
def exp(x: np.float32) -> np.float32:
    """e**x for x ≤ 0 in fp32, with a relative error below 1e-7 down to -87.3; from there on, where
    fp32 runs out of normal numbers, next to 0, and then 0.

    exp(-inf) is 0, exp(NaN) is NaN. With x = i·ln 2 + r, |r| ≤ ln(2) / 2: e**x = 2**i · e**r.
    The whole number i goes straight into the exponent's bits. Up to x = 88 it holds as well.
    """
    x = EXP_BEGINS if x < EXP_BEGINS else x  # in this order NaN stays
    i = np.floor(x * LOG2_E + _f32(0.5))
    r = (x - i * LN_2_HIGH) - i * LN_2_LOW
    p = ((((C_7 * r + C_6) * r + C_5) * r + C_4) * r + C_3) * r + C_2
    power = _i32((_i32(i) + _i32(127)) << _i32(23)).view(_f32)
    return (p * (r * r) + r + _f32(1)) * power  # type: ignore[no-any-return]


@compiled(fastmath={"contract"})
def tanh(x: np.float32) -> np.float32:
    """The hyperbolic tangent in fp32, with a relative error below 4e-7."""
    square = x * x
    near = x * (_f32(1) + square * (T_3 + square * (T_5 + square * T_7)))
    small = exp(_f32(-2) * abs(x))
    far = (_f32(1) - small) / (_f32(1) + small)
    return near if square < _f32(0.04) else (-far if x < 0 else far)


@compiled(fastmath={"contract"})
def softplus(x: np.float32) -> np.float32:
    """log(1 + e**x) in fp32, with a relative error below 3e-7 down to x = -87.3.

    It is x or 0, plus log(1 + e**-|x|); and log(1 + z) = 2·artanh(s) with s = z / (2 + z), which is
    at most 1/3. No choice in it, so a loop of it runs on vectors.
    """
    z = exp(-abs(x))
    s = z / (_f32(2) + z)
    square = s * s
    rest = ((((A_13 * square + A_11) * square + A_9) * square + A_7) * square + A_5) * square + A_3
    return max(x, _f32(0)) + _f32(2) * (s + s * square * rest)


def value_of(x: Any) -> Any:
    """The fp32 that an element of an array stands for: uint16 holds the bits of a bf16, fp32 is
    itself. One source so serves both formats; only compiled code calls it."""
    raise NotImplementedError("value_of is for compiled code.")


@numba.extending.overload(value_of)
def _value_of(x):  # type: ignore[no-untyped-def]
    if x == numba.types.uint16:
        return lambda x: widen(x)
    return (lambda x: x) if x == numba.types.float32 else None


def exp_of(x: Any) -> Any:
    """e**x of an fp32 ≤ 0 by `exp`, of an fp64 by the library's. Only compiled code calls it."""
    raise NotImplementedError("exp_of is for compiled code.")


@numba.extending.overload(exp_of)
def _exp_of(x):  # type: ignore[no-untyped-def]
    return (lambda x: exp(x)) if x == numba.types.float32 else (lambda x: math.exp(x))
