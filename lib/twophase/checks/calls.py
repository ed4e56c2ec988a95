"""What a check asked of an answer in one case, as Python that the person can run.

A case's data is not always what the answer is called with: a check may make an object and call it
many times. So what is shown are the calls themselves, in order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from twophase.checks.answer import Answer, Asked, Handle, each
from twophase.checks.compare import describe
from twophase.protocol.arguments import FIXED

MOST_CALLS = 12  # of one case are shown
MOST_NUMBERS = 32  # of an array or a list that is written out
LONGEST = 1_500  # characters in all
DIGITS = {"float32": 9, "float16": 5, "bfloat16": 4}  # that tell every number from its neighbors


class Calls:
    """An answer that notes what it is asked, and passes it on."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._made = 0
        self._lines: dict[str, None] = {}  # in order; what is asked again is there already
        self._noted: list[tuple[str, list[Any], dict[str, Any]]] = []  # calls not yet written
        self._left = 0  # calls that are not noted

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self.note(name, args, kwargs)
        if not self._made:  # the usual case: none of its objects is among them
            return self._answer.call(name, *args, **kwargs)
        return self._answer.call(name, *map(_own, args), **_own(kwargs))

    def new(self, name: str, *args: Any, **kwargs: Any) -> Handle:
        self._made += 1
        variable = name.lower() if self._made == 1 else f"{name.lower()}_{self._made}"
        self.note(f"{variable} = {name}", args, kwargs)
        return _Made(self, self._answer.new(name, *map(_own, args), **_own(kwargs)), variable)

    def note(self, called: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Remember one call: a copy, since the check may go on to change what it passed. Written
        out only when somebody wants to read it: most answers are right."""
        if len(self._lines) + len(self._noted) == MOST_CALLS:
            self._write()
        if len(self._lines) == MOST_CALLS:
            self._left += 1
            return
        self._noted.append((called, _kept(list(args)), _kept(dict(kwargs))))

    def _write(self) -> None:
        for called, args, kwargs in self._noted:
            written = [source(a) for a in args]
            written += [f"{name}={source(value)}" for name, value in kwargs.items()]
            self._lines[f"{called}({', '.join(written)})"] = None
        self._noted.clear()

    def text(self) -> str:
        """The calls, one a line. An argument too large to be written is described in <...>."""
        self._write()
        more = [f"# and {self._left:,} more calls"] if self._left else []
        whole = "\n".join([*self._lines, *more])
        return whole if len(whole) <= LONGEST else f"{whole[: LONGEST - 1]}…"


class _Made:
    """An object of the answer, under the name that it has in the text."""

    def __init__(self, calls: Calls, handle: Handle, variable: str) -> None:
        self.handle, self.variable = handle, variable
        self._calls = calls

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        self._calls.note(f"{self.variable}.{method}", args, kwargs)
        return self.handle.call(method, *map(_own, args), **_own(kwargs))

    def get(self, attribute: str) -> Any:
        return self.handle.get(attribute)

    def each(self, *asked: Asked) -> list[Any]:
        for called in asked:
            if not isinstance(called, str):
                self._calls.note(f"{self.variable}.{called[0]}", tuple(called[1:]), {})
        return each(self.handle, *map(_own, asked))


def _own(value: Any) -> Any:
    """An argument as the answer's own side knows it: objects of its own without our wrapper."""
    if isinstance(value, _Made):
        return value.handle
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(map(_own, value))
    return {k: _own(v) for k, v in value.items()} if type(value) is dict else value


class _Written(str):
    """The source of a value that is too large to be kept."""


def _kept(value: Any) -> Any:
    """What gives the same source as `value`, now and when `value` has changed."""
    if type(value) in FIXED or isinstance(value, _Made) or callable(value):
        return value
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        if math.prod(value.shape) <= MOST_NUMBERS:
            return value.detach().clone() if _is_torch(value) else value.copy()
    elif type(value) in (list, tuple, dict) and len(value) <= MOST_NUMBERS:
        if type(value) is dict:
            return {k: _kept(v) for k, v in value.items()}
        return type(value)(map(_kept, value))
    return _Written(source(value))


def source(value: Any) -> str:
    """`value` as Python that makes it again, where it is small; else what it is, in <...>."""
    if type(value) is _Written:
        return str(value)
    if isinstance(value, _Made):
        return value.variable
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _array(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if type(value) in (list, tuple):
        return _sequence(value)
    if type(value) is dict:
        inside = [f"{k!r}: {source(v)}" for k, v in list(value.items())[:MOST_NUMBERS]]
        more = ["<and more>"] if len(value) > MOST_NUMBERS else []
        return "{" + ", ".join([*inside, *more]) + "}"
    if isinstance(value, str | bytes) and len(value) > 200:
        return f"<{len(value):,} characters, {value[:40]!r}...>"
    return "<a function>" if callable(value) else repr(value)


def _is_torch(value: Any) -> bool:
    return type(value).__module__.startswith("torch")


def _sequence(value: list[Any] | tuple[Any, ...]) -> str:
    if len(value) > MOST_NUMBERS:
        first = ", ".join(map(source, value[:4]))
        return f"<a {type(value).__name__} of {len(value):,}: {first}, ...>"
    inside = ", ".join(map(source, value))
    if isinstance(value, list):
        return f"[{inside}]"
    return f"({inside},)" if len(value) == 1 else f"({inside})"


def _array(value: Any) -> str:
    if math.prod(value.shape) > MOST_NUMBERS:
        return f"<{describe(value)}>"
    is_torch = _is_torch(value)
    dtype = str(value.dtype) if is_torch else repr(str(value.dtype))
    if 0 in value.shape:
        return f"{'torch' if is_torch else 'np'}.zeros({tuple(value.shape)}, dtype={dtype})"
    values = source(_shortened(value.tolist(), DIGITS.get(str(value.dtype).split(".")[-1], 17)))
    if not is_torch and not value.shape:
        return values
    return f"{'torch.tensor' if is_torch else 'np.array'}({values}, dtype={dtype})"


def _shortened(values: Any, digits: int) -> Any:
    """The same numbers without the digits that their dtype does not have."""
    if isinstance(values, list):
        return [_shortened(v, digits) for v in values]
    return float(f"{values:.{digits}g}") if isinstance(values, float) else values
