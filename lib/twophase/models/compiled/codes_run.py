"""Layers whose matrices are codes, one behind the other, in one call
(`kernels.compiled.layers`)."""

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from twophase.kernels.compiled.addresses import addresses
from twophase.kernels.compiled.layers import run_codes_layers
from twophase.kernels.store import Store
from twophase.models.cache import Cache
from twophase.models.compiled.halves import MLP, Attention
from twophase.models.compiled.products import CODES
from twophase.models.compiled.run import Halves, told
from twophase.models.compiled.token import Arrays, Token, Workspace


class Codes(NamedTuple):
    """What the loops of a layer take: arrays before and behind keys and values, and what is the
    same in all layers of its kind."""

    attention: Attention
    before: Arrays
    behind: Arrays
    options: tuple[Any, ...]  # eps, N, eps of heads, pairs of RoPE, factor of queries
    activation: int
    scratch: tuple[Any, ...]


def codes_of(layer: Halves) -> Codes | None:
    """Of a layer that is of a kind that runs have; None for others: numbers, norms behind its
    halves, two eps."""
    if len(layer) < 2:
        return None
    attention, mlp = layer
    if not isinstance(attention, Attention) or not isinstance(mlp, MLP):
        return None
    project, activate = attention.project.given, mlp.activate.given
    o, down = attention.output.given, mlp.down.given
    products = attention.project, attention.output, mlp.activate, mlp.down
    if project[2] != activate[2] or any(p.loops is not CODES for p in products):  # eps
        return None
    qkv, bias, h, qkv_given, y = project[3:]
    gate, up, mlp_bias, activation, _, up_given, between = activate[3:]
    _, N, q_norm, k_norm, *turned = attention.given
    return Codes(
        attention, (*project[:2], *qkv, bias, q_norm, k_norm),
        (*o[0], o[1], *activate[:2], *gate, *up, mlp_bias, *down[0], down[1]),
        (project[2], N, *turned), activation,
        (h, y, attention.found, between, (qkv_given, o[3], up_given, down[3])),
    )  # fmt: skip


class CodesRun:
    """Some layers that differ in their numbers only."""

    def __init__(self, layers: Sequence[Halves], work: Workspace) -> None:
        self.layers = [n for layer in layers if (n := codes_of(layer))]
        self.run = work.choose(run_codes_layers)
        self._places: WeakKeyDictionary[Cache, tuple[list[Store], np.ndarray]] = WeakKeyDictionary()

    @staticmethod
    def common(layer: Halves) -> tuple[Any, ...] | None:
        """What layers of a run have in common; None for one that is in none."""
        n = codes_of(layer)
        if n is None:
            return None
        a = n.attention
        sizes = tuple((array.shape, array.dtype.str) for array in (*n.before, *n.behind))
        return a.kind, a.store[1:], a.cap, sizes, n.options, n.activation

    def __call__(self, token: Token) -> None:
        """Take the stream through all of them."""
        places = self.places(token)
        n, attention = self.layers[0], self.layers[0].attention
        keys, values, slot, *blocks = token.keys_values(attention.store)
        self.run(
            token.x, places, (*n.before, keys, values, *n.behind), *n.options,
            *token.rope(attention.kind), slot, *blocks, attention.cap, n.activation, *n.scratch,
            token.workers,
        )  # fmt: skip

    def places(self, token: Token) -> np.ndarray:
        """Where the arrays of all layers begin, int64 [layers, arrays]: looked up again where the
        cache has other stores."""
        held = list(token.cache.stores.values())
        known = self._places.get(token.cache)
        if known is None or known[0] != held:  # not these very stores
            known = self._places[token.cache] = held, self._find_places(token)
        return known[1]

    def _find_places(self, token: Token) -> np.ndarray:
        """ValueError where the stores of the layers differ: loops take the first one's sizes for
        all."""
        rows, kinds = [], []
        for n in self.layers:
            _, keys, values = token.store(n.attention.store)
            rows.append(addresses((*n.before, keys, values, *n.behind)))
            kinds.append([(a.shape, a.dtype, a.strides) for a in (keys, values)])
            if kinds[-1] != kinds[0]:
                raise ValueError(
                    f"layer {n.attention.store[0]} of this cache holds {told(keys)} where layer"
                    f" {self.layers[0].attention.store[0]} holds other keys: make one with"
                    " `new_cache` of this model."
                )
        return np.array(rows, np.int64)
