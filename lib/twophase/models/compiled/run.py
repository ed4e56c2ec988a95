"""Layers of one kind, one behind the other, as one call (`kernels.compiled.layers`)."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from twophase.kernels.compiled.addresses import addresses
from twophase.kernels.compiled.layers import run_codes_layers, run_layers
from twophase.kernels.compiled.loops import Loop
from twophase.kernels.store import Store
from twophase.models.cache import Cache
from twophase.models.compiled.halves import MLP, Attention, Half
from twophase.models.compiled.products import CODES, NUMBERS
from twophase.models.compiled.token import Token, Workspace

Arrays = tuple[np.ndarray, ...]
Layer = Sequence[Half]  # its halves, or one that is all of it


class Numbers(NamedTuple):
    """What the loops of a layer take: arrays before and behind keys and values, and what is the
    same in all layers of its kind."""

    run: Loop
    attention: Attention
    before: Arrays
    behind: Arrays
    options: tuple[Any, ...]  # eps, N, eps of heads, pairs of RoPE, factor of queries
    activation: int
    scratch: tuple[Any, ...]


def numbers_of(layer: Layer) -> Numbers | None:
    """Of a layer that is of a kind that runs have; None for others: codes beside numbers, norms
    behind its halves, two eps."""
    if len(layer) < 2:
        return None
    attention, mlp = layer
    if not isinstance(attention, Attention) or not isinstance(mlp, MLP):
        return None
    project, activate = attention.project.given, mlp.activate.given
    o, down = attention.output.given, mlp.down.given
    loops = {p.loops for p in (attention.project, attention.output, mlp.activate, mlp.down)}
    through_norms = attention.output.through_norm or mlp.down.through_norm
    if through_norms or project[2] != activate[2] or len(loops) > 1:  # eps
        return None
    if loops == {NUMBERS}:
        *qkv, bias, h, y = project[3:]
        gate, up, mlp_bias, activation, _, between = activate[3:]
        run, matrices = run_layers, (qkv, [o[0]], [gate, up], [down[0]])
        given: tuple[Any, ...] = ()
    elif loops == {CODES}:
        codes, bias, h, qkv_given, y = project[3:]
        gate, up, mlp_bias, activation, _, up_given, between = activate[3:]
        run, matrices = run_codes_layers, (codes, o[0], [*gate, *up], down[0])
        given = ((qkv_given, o[3], up_given, down[3]),)
    else:
        return None
    _, N, q_norm, k_norm, *turned = attention.given
    return Numbers(
        run, attention, (*project[:2], *matrices[0], bias, q_norm, k_norm),
        (*matrices[1], o[1], *activate[:2], *matrices[2], mlp_bias, *matrices[3], down[1]),
        (project[2], N, *turned), activation, (h, y, attention.found, between, *given),
    )  # fmt: skip


def kind_of(layer: Layer) -> tuple[Any, ...] | None:
    """What layers have in common that differ in their numbers only; None for no such layer."""
    n = numbers_of(layer)
    if n is None:
        return None
    shapes = tuple((array.shape, array.dtype.str) for array in (*n.before, *n.behind))
    attention = n.attention
    return (
        n.run,
        attention.kind,
        attention.store[1:],
        attention.cap,
        shapes,
        n.options,
        n.activation,
    )


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
        self.layers, self.run = layers, work.choose(layers[0].run)
        self.kind = layers[0].attention.kind
        self._places: WeakKeyDictionary[Cache, tuple[list[Store], np.ndarray]] = WeakKeyDictionary()

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
                    f"layer {n.attention.store[0]} of this cache holds {_told(keys)} where layer"
                    f" {self.layers[0].attention.store[0]} holds other keys: make one with"
                    " `new_cache` of this model."
                )
        return np.array(rows, np.int64)


def _told(keys: np.ndarray) -> str:
    bits = {2: "bfloat16", 4: "float32"}[keys.itemsize]
    return f"{len(keys)} slots of {keys.shape[1]} heads of {keys.shape[2]} in {bits}"
