"""What a formula accepts: `formula` converts its numeric arguments and refuses those outside their
domain, with one sentence that names the argument."""

import functools
import inspect
import math
import sys
import threading
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ParamSpec, TypeVar

Number = Any
"""An int, a float, a fraction, a numpy array or number, or a sympy expression."""

P = ParamSpec("P")
Result = TypeVar("Result")

LARGEST, SMALLEST = 10.0**32, 10.0**-32  # products and quotients of six such numbers stay floats


def is_symbolic(value: object) -> bool:
    """Whether `value` is a sympy expression."""
    return hasattr(value, "free_symbols")


def is_array(value: object) -> bool:
    """Whether `value` is a numpy array or a numpy number."""
    return hasattr(value, "__array__") and hasattr(value, "dtype")


@dataclass(frozen=True)
class Domain:
    """What one argument may be: from `least` (0: above it, unless `zero_ok`) to `most`."""

    least: float = 0.0
    most: float = LARGEST
    zero_ok: bool = False
    whole: bool = False

    def __str__(self) -> str:
        if self.most < LARGEST:
            return f"{'zero or more' if self.zero_ok else 'positive'} and at most {self.most:g}"
        if self.whole:
            return f"a whole number, {self.least:g} or more"
        if self.least > 0:
            return f"{self.least:g} or more"
        return "zero or more" if self.zero_ok else "positive"

    def check(self, name: str, value: object) -> Number:
        """`value`, ready for arithmetic. ValueError, naming the argument, for anything that is no
        number, array of numbers or symbol, or lies outside."""
        number = as_number(name, value)
        if is_symbolic(number) and not number.is_number:
            inside = number.is_nonnegative if self.zero_ok else number.is_positive
            if inside is False or number.is_extended_real is False:
                raise ValueError(f"{name} must be {self}, but the symbol {number} is not.")
            return number
        if not _all(abs(number) <= LARGEST):
            raise ValueError(f"{name} must be at most 10^32, but it is {_shown(value)}.")
        if not self._inside(number):
            raise ValueError(f"{name} must be {self}, but it is {_shown(value)}.")
        if not self.zero_ok and not _all(number >= SMALLEST):
            raise ValueError(f"{name} must be at least 10^-32, but it is {_shown(value)}.")
        return number

    def _inside(self, number: Number) -> bool:
        low = number >= self.least if self.least or self.zero_ok else number > 0
        whole = number % 1 == 0 if self.whole else True
        return _all(low) and _all(number <= self.most) and _all(whole)


# How many there are of something: from 0 on, from 1 on.
COUNT, SOME = Domain(zero_ok=True, whole=True), Domain(least=1.0, whole=True)


def as_number(name: str, value: object) -> Number:
    """`value` if it is a finite real number, an array of them (as float64, so that no product of
    integers overflows) or a symbol; ValueError, naming the argument, otherwise."""
    if is_symbolic(value):
        real = isinstance(value, sys.modules["sympy"].Expr)
        if real and not (value.is_number and not (value.is_real and value.is_finite)):  # type: ignore[attr-defined]
            return value
    elif is_array(value):
        kind = str(getattr(value.dtype, "kind", "none"))  # type: ignore[attr-defined]
        if kind in {"i", "u", "f"}:
            number = value.astype("float64")  # type: ignore[attr-defined]
            if _all(abs(number) < math.inf):
                return number
    elif isinstance(value, float):
        if math.isfinite(value):
            return value
    elif isinstance(value, (int, Fraction)) and not isinstance(value, bool):
        return value
    raise ValueError(
        f"{name} must be a finite number, a numeric array or a symbol, but it is {_shown(value)}."
    )


def _all(condition: Any) -> bool:
    return bool(condition.all()) if hasattr(condition, "all") else bool(condition)


def _shown(value: object) -> str:
    """The value for a sentence: never a number of four hundred digits."""
    if isinstance(value, int) and abs(value) > LARGEST:
        return "an integer beyond that"
    text = " ".join(repr(value).split())  # arrays and matrices print lines
    return text if len(text) <= 80 else f"{text[:77]}..."


def at_most(name: str, value: Number, bound_name: str, bound: Number) -> None:
    """Raise ValueError unless no entry of `value` is above that of `bound`. Symbols pass."""
    if not is_symbolic(value) and not is_symbolic(bound) and not _all(value <= bound):
        raise ValueError(
            f"{name} must be at most {bound_name}, but {name} is {value} and {bound_name} is"
            f" {bound}."
        )


_calls = threading.local()  # formulas call formulas: what the outermost has checked is in order


def formula(
    *,
    zero_ok: tuple[str, ...] = (),
    fraction: tuple[str, ...] = (),
    whole: tuple[str, ...] = (),
    least: Mapping[str, float] | None = None,
    ordered: tuple[tuple[str, str], ...] = (),
) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Decorate a formula: its numeric arguments arrive converted and checked.

    Every argument annotated as `Number` must be positive; those in `zero_ok` zero or more, in
    `fraction` at most 1, in `whole` a whole number, in `least` no less than given there; of each
    pair in `ordered` the first must not exceed the second. Switches, strings, None and objects such
    as an `Architecture` pass through untouched. The domains are `.domains` of the result.

    TypeError where an argument has no annotation or one that cannot be resolved: its checks would
    be lost without a word.
    """

    def decorate(function: Callable[P, Result]) -> Callable[P, Result]:
        signature = inspect.signature(function)
        names = _number_names(function, signature)
        bottom = dict.fromkeys(whole, 1.0) | dict.fromkeys(zero_ok, 0.0) | dict(least or {})
        declared = {*bottom, *fraction, *(name for pair in ordered for name in pair)}
        if unknown := declared - set(names):
            raise TypeError(f"{function.__qualname__} has no number called {min(unknown)}.")
        domains = {
            name: Domain(
                least=(least or {}).get(
                    name, 1.0 if name in whole and name not in zero_ok else 0.0
                ),
                most=1.0 if name in fraction else LARGEST,
                zero_ok=name in zero_ok,
                whole=name in whole,
            )
            for name in names
        }
        defaults = {name: parameter.default for name, parameter in signature.parameters.items()}

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> Result:
            if getattr(_calls, "inside", False):
                return function(*args, **kwargs)
            bound = signature.bind(*args, **kwargs)
            for name, domain in domains.items():
                if bound.arguments.get(name) is not None:
                    bound.arguments[name] = domain.check(name, bound.arguments[name])
                elif name in bound.arguments and signature.parameters[name].default is not None:
                    raise ValueError(f"{name} must be {domain}, but it is None.")
            for small, large in ordered:
                given = defaults | bound.arguments
                at_most(small, given[small], large, given[large])
            _calls.inside = True
            try:
                return function(*bound.args, **bound.kwargs)
            finally:
                _calls.inside = False

        checked.domains = domains  # type: ignore[attr-defined]
        checked.ordered = ordered  # type: ignore[attr-defined]
        return checked

    return decorate


def _number_names(function: Callable[..., Any], signature: inspect.Signature) -> list[str]:
    """The arguments annotated as `Number`, whether annotations are objects or text."""
    try:
        hints = typing.get_type_hints(function)
    except Exception as problem:
        raise TypeError(f"{function.__qualname__}: {problem}") from problem
    for name in signature.parameters:
        if name not in hints and name != "self":
            raise TypeError(f"{function.__qualname__} does not say what {name} is.")
    return [n for n in signature.parameters if hints.get(n) in (Number, Number | None)]
