"""What is said of a value that may not cross: one sentence, with what to return in its place."""

from __future__ import annotations

from collections.abc import Coroutine, ItemsView, Iterator, KeysView, ValuesView
from enum import Enum
from numbers import Number
from typing import Any

PASSING = (Iterator, KeysView, ValuesView, ItemsView)  # generators, map, zip, a dict's views


def refusal(v: Any) -> str:
    """The sentence for a value that is not plain data."""
    return f"a value of type {type(v).__name__} is not plain data; {_instead(v)}"


def _instead(v: Any) -> str:
    if isinstance(v, Number):  # Fraction and Decimal, complex, a class of one's own of float
        return "return an int or float"
    if isinstance(v, PASSING):
        return "wrap it in list(...)"
    if isinstance(v, Coroutine):
        return "write the function without async"
    if isinstance(v, Enum):
        return "return its .value"
    if hasattr(type(v), "__dataclass_fields__"):
        return "return a tuple or a dict, as the task says (dataclasses.asdict gives a dict)"
    return "return numbers, strings, lists, tuples, dicts, arrays or tensors"
