"""Whether what was observed is what was expected, and if not, where it differs, in one sentence.

Works on plain data of any nesting. Loads numpy only if an array or tensor is met.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from twophase.protocol import AnswerError, ProtocolError
from twophase.protocol.arrays import described

MAX_PLAIN = 1_000_000


@dataclass(frozen=True)
class Tolerance:
    """How near is near enough. `why` is the reason, printed in the instructor's table.

    A number passes if |observed - expected| <= atol + rtol * |expected|. Strings and booleans are
    exact. With `dtype` arrays must have the expected dtype, not only its kind (floating-point,
    whole, boolean). Without any tolerance a whole number must be an integer (Python's, numpy's or
    torch's; 3.0 is none), and a zero in an array must have its sign. With `whole` it must be one
    beside measured floats, too.
    """

    rtol: float = 1e-9
    atol: float = 0.0
    dtype: bool = False
    whole: bool = False
    why: str = "float64 arithmetic in another order"

    @property
    def exact(self) -> bool:
        """Whether nothing is allowed for."""
        return self.rtol == self.atol == 0


EXACT = Tolerance(rtol=0.0, atol=0.0, why="integers and labels are exact")
FORMULA = Tolerance(rtol=1e-6, why="a formula may be computed in float32")


def difference(
    observed: Any, expected: Any, tolerance: Tolerance, where: str = "the answer"
) -> str | None:
    """None if `observed` is right, else one sentence that says where and how it differs."""
    expected = _scalar(expected)
    if _is_array(expected):
        return _array_difference(observed, expected, tolerance, where)
    if isinstance(expected, bool):
        got = _scalar(observed)
        return (
            None if isinstance(got, bool) and got is expected else _says(where, observed, expected)
        )
    if isinstance(expected, int | float):
        return _number_difference(observed, expected, tolerance, where)
    if isinstance(expected, dict):
        return _dict_difference(observed, expected, tolerance, where)
    if isinstance(expected, list | tuple):
        return _sequence_difference(observed, expected, tolerance, where)
    if type(observed) is not type(expected) or observed != expected:
        return _says(where, observed, expected)
    return None


def _number_difference(
    observed: Any, expected: float, tolerance: Tolerance, where: str
) -> str | None:
    got = _scalar(observed)
    if isinstance(got, bool) or not isinstance(got, int | float):
        return f"{where} should be a number, and is {describe(observed)}"
    counted = tolerance.exact or tolerance.whole
    if counted and type(expected) is int and type(got) is float:
        return f"{where} should be a whole number, an int, and is the float {got!r}"
    if got == expected or (got != got and expected != expected):  # equal, or both NaN
        return None
    if tolerance.exact:  # a difference beyond 2**53 would be rounded to 0
        return _says(where, got, expected)
    try:  # an infinity is near nothing else, whatever the tolerance
        if math.isinf(expected) or math.isinf(got):
            return _says(where, got, expected)
        near = abs(got - expected) <= tolerance.atol + tolerance.rtol * abs(expected)
    except OverflowError:  # a whole number that no float can hold
        near = False
    return None if near else _says(where, got, expected)


def _dict_difference(
    observed: Any, expected: dict[Any, Any], tolerance: Tolerance, where: str
) -> str | None:
    if not isinstance(observed, dict):
        return (
            f"{where} should be a dict with the keys {_keys(expected)}, and is {describe(observed)}"
        )
    for key in expected:
        if key not in observed:
            return (
                f"{where} lacks the key {key!r}: expected {_keys(expected)}, got {_keys(observed)}"
            )
    for key in observed:
        if key not in expected:
            return f"{where} has the unexpected key {key!r}: expected {_keys(expected)}"
    for key, want in expected.items():
        name = f"{where}[{key!r}]" if where != "the answer" else f"{key!r}"
        found = difference(observed[key], want, tolerance, name)
        if found:
            return found
    return None


def _sequence_difference(
    observed: Any, expected: Any, tolerance: Tolerance, where: str
) -> str | None:
    if not isinstance(observed, list | tuple):
        return f"{where} should be a list of {len(expected)}, and is {describe(observed)}"
    if len(observed) != len(expected):
        return (
            f"{where} should have {len(expected)} entries, and has {len(observed)}:"
            f" {describe(observed)}"
        )
    for i, (got, want) in enumerate(zip(observed, expected, strict=True)):
        found = difference(
            got,
            want,
            tolerance,
            f"{where}, entry {i}" if where == "the answer" else f"{where}[{i}]",
        )
        if found:
            return found
    return None


def _array_difference(observed: Any, expected: Any, tolerance: Tolerance, where: str) -> str | None:
    kind = _library(expected)
    if not _is_array(observed) or _library(observed) != kind:
        want = f"a {kind} of shape {list(expected.shape)}"
        return f"{where} should be {want}, and is {describe(observed)}"
    if tuple(observed.shape) != tuple(expected.shape):
        return f"{where} should have shape {list(expected.shape)}, and has {list(observed.shape)}"
    got_dtype, want_dtype = _dtype(observed), _dtype(expected)
    if tolerance.dtype and got_dtype != want_dtype:
        return f"{where} should have dtype {want_dtype}, and has {got_dtype}"
    if _dtype_kind(got_dtype) != _dtype_kind(want_dtype):
        return (
            f"{where} should hold {_dtype_kind(want_dtype)} numbers ({want_dtype}), and holds"
            f" {got_dtype}"
        )
    if got_dtype == want_dtype and _same_bits(observed, expected):  # the usual case
        return None
    near = _near(observed, expected, tolerance)
    if near.all():
        return None
    import numpy as np

    first = tuple(int(i) for i in np.argwhere(~near)[0])
    got, want = (f"{_float64(x)[first]:.6g}" for x in (observed, expected))
    if got == want:
        got, want = (repr(x[first].item()) for x in (observed, expected))
    at = f"at {list(first)} " if first else ""
    return (
        f"{where} is wrong in {int((~near).sum())} of {near.size} places: {at}it has {got},"
        f" expected {want}"
    )


def _same_bits(observed: Any, expected: Any) -> bool:
    """Whether two arrays hold the same, bit by bit: then no tolerance need be asked."""
    try:
        got = described(observed)
        return got is not None and got == described(expected)
    except ProtocolError:  # of a kind that does not cross, so never an answer's
        return False


def _near(observed: Any, expected: Any, tolerance: Tolerance) -> Any:
    """Elementwise, as a numpy array of truth values."""
    import numpy as np

    if "float" not in _dtype(expected) and tolerance.exact:
        return np.asarray(
            _numpy(observed) == _numpy(expected)
        )  # whole numbers: beyond 2**53 float64 would round them
    got, want = _float64(observed), _float64(expected)
    with np.errstate(
        invalid="ignore", over="ignore"
    ):  # inf - inf: equal infinities are near by the first clause
        near = (got == want) | (
            np.abs(got - want) <= tolerance.atol + tolerance.rtol * np.abs(want)
        )
    if tolerance.exact:
        near &= np.signbit(got) == np.signbit(want)  # -0.0 is equal to 0.0, and other bits
    near |= np.isnan(got) & np.isnan(want)
    return near & (np.isinf(got) == np.isinf(want))


def describe(value: Any, limit: int = 160) -> str:
    """`value` for a sentence: arrays by shape and dtype, everything else shortened."""
    if _is_array(value):
        head = f"a {_library(value)} of shape {list(value.shape)}, {_dtype(value)}"
        return f"{head}: {value.tolist()}" if 0 < math.prod(value.shape) <= 8 else head
    if isinstance(value, dict):
        text = (
            "{" + ", ".join(f"{k!r}: {describe(v, 60)}" for k, v in list(value.items())[:12]) + "}"
        )
    elif isinstance(value, list | tuple) and any(_is_array(x) for x in value):
        text = "[" + ", ".join(describe(x, 60) for x in value[:8]) + "]"
    elif isinstance(value, float):
        text = f"{value:.6g}"
    else:
        text = repr(_scalar(value))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def few(value: Any, most: int = MAX_PLAIN) -> Any:
    """`value` itself. Raises AnswerError (unusable) for an array or tensor of more than `most`
    numbers, empty axes counted as one.

    To be asked before an array is made a list, and before a loop over it: torch makes a tensor of
    every row at once.
    """
    if math.prod(max(1, n) for n in getattr(value, "shape", ())) > most:
        raise AnswerError(
            "unusable",
            f"your answer gave {describe(value)}: far more numbers than it was asked for",
        )
    return value


def plain(value: Any) -> Any:
    """The same in Python's own numbers and lists, for those who made it with numpy or torch. Raises
    AnswerError as `few` does."""
    if hasattr(value, "tolist"):
        return few(value).tolist()
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value


def _says(where: str, observed: Any, expected: Any) -> str:
    got, want = describe(observed), describe(expected)
    if got == want and isinstance(
        _scalar(observed), int | float
    ):  # they differ in a digit that was rounded away
        got, want = repr(_scalar(observed)), repr(expected)
    return f"{where} is {got}, expected {want}"


def _keys(d: dict[Any, Any]) -> str:
    return ", ".join(map(repr, list(d)[:20]))


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and tuple(value.shape) != ()


def _scalar(value: Any) -> Any:
    """A zero-dimensional array, tensor or numpy scalar as the Python number it holds; anything else
    unchanged."""
    if hasattr(value, "shape") and hasattr(value, "item") and tuple(value.shape) == ():
        return value.item()
    return value


def _library(value: Any) -> str:
    return "torch tensor" if type(value).__module__.startswith("torch") else "numpy array"


def _dtype(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")


def _dtype_kind(name: str) -> str:
    return "boolean" if name == "bool" else "floating-point" if "float" in name else "whole"


def _float64(value: Any) -> Any:
    import numpy as np

    if _library(value) == "torch tensor" and "float" in str(value.dtype):
        value = value.detach().cpu().double()  # numpy has no bfloat16
    return np.asarray(_numpy(value), dtype=np.float64)


def _numpy(value: Any) -> Any:
    """A tensor as an array: torch does not compare every pair of dtypes. An array unchanged."""
    return value.detach().cpu().numpy() if _library(value) == "torch tensor" else value
