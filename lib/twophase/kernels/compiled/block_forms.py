"""Which form of a block's arithmetic a loop gets: products of fp32 (`block`), or of pairs of bf16
(`block_pairs`) where a store holds bf16 and the processor multiplies such pairs.

The dtype of the arrays decides, while a loop is compiled: queries and weights in fp32, or as bits
of bf16.
"""

from typing import Any

import numpy as np
from numba.core import types
from numba.extending import overload

from twophase.kernels.compiled.block import add_values, score
from twophase.kernels.compiled.block_pairs import add_pair_values, score_pairs
from twophase.kernels.compiled.lanes import has_pairs
from twophase.kernels.compiled.loops import inner
from twophase.kernels.compiled.numbers import narrow

Array = np.ndarray


def in_pairs(keys: Array) -> bool:
    """Whether a store holds bf16 and the processor multiplies pairs of them."""
    raise NotImplementedError("in_pairs is for compiled code.")


def as_pairs(x: Array, keys: Array) -> Array:
    """x, fp32 [n, m], as it is multiplied with a store: rounded to bf16 where `in_pairs(keys)`."""
    raise NotImplementedError("as_pairs is for compiled code.")


def round_to(x: Array, n: int, out: Array) -> None:
    """The first n numbers of each row of x into out: rounded to bf16 where out holds the bits of
    such; otherwise out is x."""
    raise NotImplementedError("round_to is for compiled code.")


def score_by(
    q: Array, keys: Array, upcoming: Array, first: int, n: int, p: Array, column: int
) -> None:
    """`score_pairs` of queries in bits of bf16, `block.score` of those in fp32."""
    raise NotImplementedError("score_by is for compiled code.")


def add_by(
    weights: Array,
    column: int,
    values: Array,
    first: int,
    n: int,
    out: Array,
    keys: Array,
    following: int,
) -> None:
    """`add_pair_values` with weights in bits of bf16, `block.add_values` with those in fp32."""
    raise NotImplementedError("add_by is for compiled code.")


@overload(in_pairs)
def _in_pairs(keys):  # type: ignore[no-untyped-def]
    return (lambda keys: True) if _paired(keys) else (lambda keys: False)


@overload(as_pairs)
def _as_pairs(x, keys):  # type: ignore[no-untyped-def]
    return (lambda x, keys: _rounded(x)) if _paired(keys) else (lambda x, keys: x)


@overload(round_to)
def _round_to(x, n, out):  # type: ignore[no-untyped-def]
    if out.dtype == types.uint16:
        return lambda x, n, out: _round(x, n, out)
    return lambda x, n, out: None


@overload(score_by)
def _score_by(q, keys, upcoming, first, n, p, column):  # type: ignore[no-untyped-def]
    chosen = score_pairs if q.dtype == types.uint16 else score
    return lambda q, keys, upcoming, first, n, p, column: chosen(
        q, keys, upcoming, first, n, p, column
    )


@overload(add_by)
def _add_by(weights, column, values, first, n, out, keys, following):  # type: ignore[no-untyped-def]
    chosen = add_pair_values if weights.dtype == types.uint16 else add_values
    return lambda weights, column, values, first, n, out, keys, following: chosen(
        weights, column, values, first, n, out, keys, following
    )


def _paired(keys: Any) -> bool:
    return bool(keys.dtype == types.uint16 and has_pairs())


@inner
def _round(x: Array, n: int, out: Array) -> None:
    for i in range(len(x)):
        for s in range(n):
            out[i, s] = narrow(x[i, s])


@inner
def _rounded(x: Array) -> Array:
    out = np.empty(x.shape, np.uint16)
    _round(x, x.shape[1], out)
    return out
