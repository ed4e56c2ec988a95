"""Layers of one kind, one behind the other, as one call (`kernels.compiled.layers`)."""

from collections.abc import Sequence
from itertools import groupby
from operator import is_
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from twophase.kernels.compiled.addresses import addresses
from twophase.kernels.compiled.layers import run_layers
from twophase.models.cache import Cache
from twophase.models.compiled.halves import MLP, Attention, Half
from twophase.models.compiled.token import Stored, Token, Workspace

Arrays = tuple[np.ndarray, ...]
Layer = Sequence[Half]  # its halves, or one that is all of it


class Numbers(NamedTuple):
    """What the loops of a layer take: arrays before and behind keys and values, and what is the
    same in all layers of its kind."""

    attention: Attention
    before: Arrays
    behind: Arrays
    options: tuple[Any, ...]  # eps, N, eps of heads, pairs of RoPE, factor of queries
    activation: int
    scratch: Arrays


def numbers_of(layer: Layer) -> Numbers | None:
    """Of a layer that is of the kind that runs have; None for others: codes, norms behind its
    halves, two eps."""
    if len(layer) < 2:
        return None
    attention, mlp = layer
    if not isinstance(attention, Attention) or not isinstance(mlp, MLP):
        return None
    products = attention.project, attention.output, mlp.activate, mlp.down
    if not all(product.is_plain for product in products):
        return None
    scale, shift, eps, q, k, v, bias, h, qkv = attention.project.given
    _, N, q_norm, k_norm, *turned = attention.given
    mlp_scale, mlp_shift, mlp_eps, gate, up, mlp_bias, activation, _, between = mlp.activate.given
    (o, o_bias, _), (down, down_bias, _) = attention.output.given, mlp.down.given
    if eps != mlp_eps:
        return None
    return Numbers(
        attention, (scale, shift, q, k, v, bias, q_norm, k_norm),
        (o, o_bias, mlp_scale, mlp_shift, gate, up, mlp_bias, down, down_bias),
        (eps, N, *turned), activation, (h, qkv, attention.found, between),
    )  # fmt: skip


def kind_of(layer: Layer) -> tuple[Any, ...] | None:
    """What layers have in common that differ in their numbers only; None for no such layer."""
    n = numbers_of(layer)
    if n is None:
        return None
    shapes = tuple((array.shape, array.dtype.str) for array in (*n.before, *n.behind))
    attention = n.attention
    return attention.kind, attention.store[1:], attention.cap, shapes, n.options, n.activation


def in_runs(layers: Sequence[Layer], work: Workspace) -> list[Half]:
    """The halves of all layers, where two layers or more of one kind, one behind the other, are a
    run."""
    found: list[Half] = []
    for kind, group in groupby(layers, kind_of):
        members = list(group)
        numbers = [n for n in map(numbers_of, members) if n]
        if kind is None or len(members) < 2:
            found += [half for layer in members for half in layer]
        else:
            found.append(Run(numbers, work))
    return found


class Run:
    """Some layers that differ in their numbers only."""

    def __init__(self, layers: Sequence[Numbers], work: Workspace) -> None:
        self.layers, self.run = layers, work.choose(run_layers)
        self._places: WeakKeyDictionary[Cache, tuple[list[Stored], np.ndarray]] = (
            WeakKeyDictionary()
        )

    def __call__(self, token: Token) -> None:
        """Take the stream through all of them."""
        stores = [token.store(layer.attention.store) for layer in self.layers]
        known = self._places.get(token.cache)
        if known is None or not all(map(is_, stores, known[0])):
            known = self._places[token.cache] = stores, self._find_places(stores)
        n, attention = self.layers[0], self.layers[0].attention
        keys, values, slot, *blocks = token.keys_values(attention.store)
        self.run(
            token.x, known[1], (*n.before, keys, values, *n.behind), *n.options,
            *token.rope(attention.kind), slot, *blocks, attention.cap, n.activation, *n.scratch,
            token.workers,
        )  # fmt: skip

    def _find_places(self, stores: Sequence[Stored]) -> np.ndarray:
        """Where the arrays of all layers begin, int64 [layers, 19]."""
        rows = [
            addresses((*n.before, keys, values, *n.behind))
            for n, (_, keys, values) in zip(self.layers, stores, strict=True)
        ]
        return np.array(rows, np.int64)
