"""Which form of a block's arithmetic a loop gets: products of fp32 (`block`), of pairs of bf16
(`block_pairs`) where a store holds bf16 and the processor multiplies such pairs, or of whole tiles
of them (`block_tiles`).

The type of the queries decides, while a loop is compiled: fp32, bits of bf16, or what
`queries_in_tiles` makes. Which of the three a task takes is decided in `parts`: whether pairs are
quick here is a constant, whether Linux lends tile registers is known only when it runs.
"""

from typing import Any

import numpy as np
from numba.core import types
from numba.extending import overload

from twophase.kernels.compiled.block import add_values, score
from twophase.kernels.compiled.block_pairs import add_pair_values, score_pairs
from twophase.kernels.compiled.block_tiles import add_tile_values, queries_in_tiles, score_tiles
from twophase.kernels.compiled.lanes import LANES, has_pairs, has_tiles
from twophase.kernels.compiled.loops import inner
from twophase.kernels.compiled.numbers import narrow
from twophase.kernels.compiled.tile_registers import permitted, release

Array = np.ndarray


def in_pairs(keys: Array) -> bool:
    """Whether a store holds bf16 and the processor multiplies pairs of them."""
    raise NotImplementedError("in_pairs is for compiled code.")


def in_tiles(keys: Array) -> bool:
    """Whether tiles of such numbers are multiplied, too, and Linux lends the registers."""
    raise NotImplementedError("in_tiles is for compiled code.")


def as_tiles(q: Array, keys: Array, width: int, Hv: int) -> Any:
    """`queries_in_tiles` of queries in bits of bf16, where tiles of such are multiplied; else q."""
    raise NotImplementedError("as_tiles is for compiled code.")


def done_with(q: Any) -> None:
    """Give the registers of `as_tiles` back."""
    raise NotImplementedError("done_with is for compiled code.")


def as_pairs(x: Array, keys: Array) -> Array:
    """x, fp32 [n, m], as it is multiplied with a store: rounded to bf16 where `in_pairs(keys)`."""
    raise NotImplementedError("as_pairs is for compiled code.")


def round_to(x: Array, n: int, out: Array) -> None:
    """The first n numbers of each row of x into out: rounded to bf16 where out holds the bits of
    such; otherwise out is x."""
    raise NotImplementedError("round_to is for compiled code.")


def score_by(
    q: Any, keys: Array, upcoming: Array, first: int, n: int, p: Array, column: int
) -> None:
    """`score_tiles`, `score_pairs` of queries in bits of bf16, `block.score` of those in fp32."""
    raise NotImplementedError("score_by is for compiled code.")


def add_by(
    q: Any,
    weights: Array,
    column: int,
    values: Array,
    first: int,
    n: int,
    out: Array,
    keys: Array,
    following: int,
) -> None:
    """`add_tile_values`, `add_pair_values`, `block.add_values`; weights as queries, fp32 or bits of
    bf16."""
    raise NotImplementedError("add_by is for compiled code.")


@overload(in_pairs)
def _in_pairs(keys):  # type: ignore[no-untyped-def]
    return (lambda keys: True) if _paired(keys) else (lambda keys: False)


@overload(in_tiles)
def _in_tiles(keys):  # type: ignore[no-untyped-def]
    return (lambda keys: permitted()) if _tiled(keys) else (lambda keys: False)


@overload(as_tiles)
def _as_tiles(q, keys, width, Hv):  # type: ignore[no-untyped-def]
    if _tiled(keys) and q.dtype == types.uint16:
        return lambda q, keys, width, Hv: queries_in_tiles(q, keys.shape[1], width, Hv)
    return lambda q, keys, width, Hv: q


@overload(done_with)
def _done_with(q):  # type: ignore[no-untyped-def]
    return (lambda q: release()) if _is_tiles(q) else (lambda q: None)


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
    chosen = _form(q, score_tiles, score_pairs, score)
    return lambda q, keys, upcoming, first, n, p, column: chosen(
        q, keys, upcoming, first, n, p, column
    )


@overload(add_by)
def _add_by(q, weights, column, values, first, n, out, keys, following):  # type: ignore[no-untyped-def]
    if _is_tiles(q):
        return lambda q, weights, column, values, first, n, out, keys, following: add_tile_values(
            q, weights, column, values, first, n, out, keys, following
        )
    chosen = _form(q, None, add_pair_values, add_values)
    return lambda q, weights, column, values, first, n, out, keys, following: chosen(
        weights, column, values, first, n, out, keys, following
    )


@inner
def fill_registers(H: int, Hv: int) -> bool:
    """Whether rows of keys and values leave no rest: both in runs of 32 numbers."""
    return H % LANES == 0 and Hv % LANES == 0


def _form(q: Any, tiles: Any, pairs: Any, plain: Any) -> Any:
    """The one of three functions that is for such queries."""
    if _is_tiles(q):
        return tiles
    return pairs if q.dtype == types.uint16 else plain


def _paired(keys: Any) -> bool:
    return bool(keys.dtype == types.uint16 and has_pairs())


def _is_tiles(q: Any) -> bool:
    """Whether queries are what `queries_in_tiles` makes, and no array."""
    return not isinstance(q, types.Array)


def _tiled(keys: Any) -> bool:
    return _paired(keys) and has_tiles()


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
