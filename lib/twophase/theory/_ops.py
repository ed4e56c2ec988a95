"""What breaks when one formula serves ints, floats, numpy arrays and sympy symbols, kept in one
place.

Nothing here imports numpy or sympy. An argument that is an array or a symbol has already brought
its library into `sys.modules`; a browser without them never needs them.
"""

import functools
import inspect
import math
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

Number = Any
"""An int, a float, a numpy array or number, or a sympy expression."""

P = ParamSpec("P")
Result = TypeVar("Result")


def is_symbolic(value: object) -> bool:
    """Whether `value` is a sympy expression."""
    return hasattr(value, "free_symbols")


def is_array(value: object) -> bool:
    """Whether `value` is a numpy array or a numpy number."""
    return hasattr(value, "__array__") and hasattr(value, "dtype")


def as_number(name: str, value: object) -> Number:
    """`value`, ready for arithmetic: integer arrays become float64, so that no product overflows.

    Raises ValueError, naming the argument, for anything that is not a number, an array of numbers
    or a symbol.
    """
    if is_symbolic(value):
        return value
    if is_array(value):
        kind = value.dtype.kind  # type: ignore[attr-defined]
        if kind in "iuf":
            return value.astype("float64")  # type: ignore[attr-defined]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise ValueError(f"{name} must be a number, a numeric array or a symbol, but it is {value!r}.")


def _all(condition: Any) -> bool:
    return bool(condition.all()) if hasattr(condition, "all") else bool(condition)


def positive(name: str, value: object) -> Number:
    """`value` as a number, or ValueError unless every entry is above zero. Symbols pass."""
    number = as_number(name, value)
    if not is_symbolic(number) and not _all(number > 0):
        raise ValueError(f"{name} must be positive, but it is {value!r}.")
    return number


def non_negative(name: str, value: object) -> Number:
    """`value` as a number, or ValueError unless every entry is zero or more. Symbols pass."""
    number = as_number(name, value)
    if not is_symbolic(number) and not _all(number >= 0):
        raise ValueError(f"{name} must be zero or more, but it is {value!r}.")
    return number


def at_least(name: str, value: Number, bound_name: str, bound: Number) -> None:
    """Raise ValueError unless every entry of `value` reaches that of `bound`. Symbols pass."""
    if not is_symbolic(value) and not is_symbolic(bound) and not _all(value >= bound):
        raise ValueError(
            f"{name} must be at least {bound_name}, but {name} is {value} and {bound_name} is"
            f" {bound}."
        )


def formula(
    *, zero_ok: tuple[str, ...] = ()
) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Decorate a formula: its numeric arguments arrive converted and checked.

    Every argument must be positive, those named in `zero_ok` zero or more. Booleans (switches),
    strings, None and objects such as an `Architecture` pass through untouched.
    """

    def decorate(function: Callable[P, Result]) -> Callable[P, Result]:
        signature = inspect.signature(function)
        switches = {
            n
            for n, p in signature.parameters.items()
            if p.annotation not in (Number, Number | None)
        }

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> Result:
            bound = signature.bind(*args, **kwargs)
            for name, value in bound.arguments.items():
                if name not in switches and value is not None:
                    bound.arguments[name] = (non_negative if name in zero_ok else positive)(
                        name, value
                    )
            return function(*bound.args, **bound.kwargs)

        return checked

    return decorate


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


def floor_div(a: Number, b: Number) -> Number:
    """The largest whole number not above a / b. Exact for ints."""
    library = _dispatch("floor floor", a, b)
    if library:
        return library(a / b)
    return a // b if isinstance(a, int) and isinstance(b, int) else math.floor(a / b)


def ceil_div(a: Number, b: Number) -> Number:
    """The smallest whole number not below a / b. Exact for ints."""
    library = _dispatch("ceil ceiling", a, b)
    if library:
        return library(a / b)
    return -(-a // b) if isinstance(a, int) and isinstance(b, int) else math.ceil(a / b)


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
    if any(is_symbolic(v) for v in (a, b)):
        return where(b > 0, a / b, sys.modules["sympy"].oo)
    if any(is_array(v) for v in (a, b)):
        return where(b > 0, a / where(b > 0, b, 1), math.inf)
    return a / b if b > 0 else math.inf
