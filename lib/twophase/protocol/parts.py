"""What the parts of a value may be: how many, how deep, how large, and which of them keys. The same
for both directions."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from twophase.protocol.errors import ProtocolError

MAX_DEPTH = 32
MAX_NODES = 500_000
MAX_INT_BITS = 4096
MAX_KEY = 2**60  # integers beyond it could be chosen to collide in a hash table
MAX_TUPLE_KEYS = (
    2_000  # tuples of ordinary numbers can be chosen so too, and each then meets all others
)
MAX_VALUES = 1_000  # in one frame

_BEYOND = 1 << MAX_INT_BITS
WORDS = frozenset((type(None), bool, str))  # JSON has words for each of these
_SIMPLE = WORDS | {int, float}


def plainly(v: Any) -> Any:
    """The tuple, str or int in a value of a class that is derived from one (a named tuple, a member
    of an enumeration), read without the methods of that class; what is of any other class as it is.
    """
    kind = type(v)
    if issubclass(kind, tuple):
        return tuple(tuple.__iter__(v))
    if issubclass(kind, str):
        return str.__str__(v)
    return int.__int__(v) if issubclass(kind, int) else v


class Keys:
    """The dict keys and set members of one frame: none of a kind, or in a number, that makes a hash
    table slow."""

    def __init__(self) -> None:
        self.tuples = 0

    def check(self, key: Any) -> Any:
        """`key`, if it may cross."""
        if type(key) is tuple:
            self.tuples += 1
            if self.tuples > MAX_TUPLE_KEYS:
                raise ProtocolError(
                    f"more than {MAX_TUPLE_KEYS} keys of dicts or sets are tuples; use a list or an"
                    " array"
                )
            return tuple(self.check(k) for k in key)
        if type(key) is int and not -MAX_KEY < key < MAX_KEY:
            raise ProtocolError(
                "a dict has an enormous integer as a key; use ordinary numbers or strings"
            )
        if key is None or type(key) in (bool, int, float, str, bytes):
            return key
        if (plain := plainly(key)) is not key:
            return self.check(plain)
        raise ProtocolError(
            f"a dict or set has a key of type {type(key).__name__}; use strings, numbers or tuples"
            " of them"
        )


class Walk:
    """A walk through the parts of values, one value after another: what encoding and decoding have
    in common."""

    def __init__(self) -> None:
        self.nodes = 0
        self.keys = Keys()

    def value(self, v: Any, depth: int = 0) -> Any:
        raise NotImplementedError

    def each(self, values: Any) -> list[Any]:
        """Several values, each of as many parts as a value may have."""
        if type(values) is not list or len(values) > MAX_VALUES:
            raise ProtocolError(f"a frame is to hold a list of at most {MAX_VALUES} values")
        out = []
        for v in values:
            self.nodes = 0
            out.append(self.value(v))
        return out

    def count(self, n: int, depth: int) -> None:
        """`n` more parts, `depth` deep."""
        self.nodes += n
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise ProtocolError(
                "a value is nested too deeply or has too many parts; use plain data of modest size"
            )

    def parts(self, found: Collection[Any], depth: int) -> list[Any]:
        """The parts of a list or of its like. Numbers and words, the usual parts, are looked at all
        at once."""
        n = len(found)
        self.count(n, depth + bool(n))
        items = list(found)
        if _simple(items):
            return items
        self.nodes -= n  # each counts itself
        return [self.value(x, depth + 1) for x in items]


def _simple(items: list[Any]) -> bool:
    """Whether all of these cross as they are: words, finite floats, integers of ordinary size."""
    kinds = set(map(type, items))
    if not kinds <= _SIMPLE:
        return False
    if float in kinds:
        floats = items if len(kinds) == 1 else [x for x in items if type(x) is float]
        if not all(map(math.isfinite, floats)):
            return False
    if int in kinds:
        whole = items if len(kinds) == 1 else [x for x in items if type(x) is int]
        return min(whole) > -_BEYOND and max(whole) < _BEYOND
    return True
