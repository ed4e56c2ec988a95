"""What breaks when one formula serves ints, floats, numpy arrays and sympy symbols, kept in one
place; `_domain` checks what comes in.

Nothing here imports numpy or sympy. An argument that is an array or a symbol has already brought
its library into `sys.modules`; a browser without them never needs them.
"""

import math
import sys
from fractions import Fraction
from typing import Any

from twophase.theory._domain import Number, is_array, is_symbolic


def exact(*values: Number) -> tuple[Number, ...]:
    """Plain numbers as fractions, a float as the decimal that it is written as: 0.1 is 1/10, so
    that a memory filled to the last byte fits. Unchanged if one of them is an array or a symbol."""
    if any(is_array(v) or is_symbolic(v) for v in values):
        return values
    return tuple(Fraction(repr(v)) if isinstance(v, float) else Fraction(v) for v in values)


def _dispatch(kind: str, *values: Number) -> Any:
    """The library function `kind` (a "numpy sympy" pair of names) for these values, or None for
    plain numbers."""
    numpy_name, sympy_name = kind.split()
    if any(is_symbolic(v) for v in values):
        return getattr(sys.modules["sympy"], sympy_name)
    if any(is_array(v) for v in values):
        return getattr(sys.modules["numpy"], numpy_name)
    return None


def maximum(a: Number, b: Number) -> Number:
    """The larger of two, elementwise."""
    library = _dispatch("maximum Max", a, b)
    return library(a, b) if library else max(a, b)


def minimum(a: Number, b: Number) -> Number:
    """The smaller of two, elementwise."""
    library = _dispatch("minimum Min", a, b)
    return library(a, b) if library else min(a, b)


def sqrt(a: Number) -> Number:
    """The square root."""
    library = _dispatch("sqrt sqrt", a)
    return library(a) if library else math.sqrt(a)


def log(a: Number) -> Number:
    """The natural logarithm."""
    library = _dispatch("log log", a)
    return library(a) if library else math.log(a)


def floor_div(a: Number, b: Number) -> Number:
    """The largest whole number not above a / b, no quotient rounded up to it."""
    if any(is_symbolic(v) for v in (a, b)):
        return sys.modules["sympy"].floor(a / b)
    return a // b if any(is_array(v) for v in (a, b)) else int(a // b)


def ceil_div(a: Number, b: Number) -> Number:
    """The smallest whole number not below a / b."""
    if any(is_symbolic(v) for v in (a, b)):
        return sys.modules["sympy"].ceiling(a / b)
    return -floor_div(-a, b)


def half(a: Number) -> Number:
    """a / 2, an int where a is an even int: closed forms such as T (T - 1) / 2 stay exact."""
    return a // 2 if isinstance(a, int) and a % 2 == 0 else a / 2


def where(condition: Any, yes: Number, no: Number) -> Number:
    """`yes` where the condition holds, `no` elsewhere. Both are computed."""
    if is_symbolic(condition) or any(is_symbolic(v) for v in (yes, no)):
        return sys.modules["sympy"].Piecewise((yes, condition), (no, True))
    if any(is_array(v) for v in (condition, yes, no)):
        return sys.modules["numpy"].where(condition, yes, no)
    return yes if condition else no


def divide_or_infinity(a: Number, b: Number) -> Number:
    """a / b where b is positive, infinity elsewhere."""
    if is_symbolic(b) and not b.is_number:
        return where(b > 0, a / b, sys.modules["sympy"].oo)
    if is_symbolic(a) or is_symbolic(b):  # a number below: a quotient by 0 is not even tried
        return a / b if b > 0 else sys.modules["sympy"].oo
    if any(is_array(v) for v in (a, b)):
        return where(b > 0, a / where(b > 0, b, 1), math.inf)
    return a / b if b > 0 else math.inf
