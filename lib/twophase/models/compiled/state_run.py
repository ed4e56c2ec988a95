"""Layers with a state, one behind the other, in one call (`kernels.compiled.state_layers`)."""

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from twophase.kernels.compiled.addresses import addresses, shapes
from twophase.models.cache import Cache
from twophase.models.compiled.recurrent import LinearState, StateSpaceState
from twophase.models.compiled.run import Layer, Numbers, numbers_of
from twophase.models.compiled.token import Token, Workspace


class StateRun:
    """Some layers of linear attention, or with a selective state space, that differ in their arrays
    only."""

    def __init__(self, layers: Sequence[Layer], work: Workspace) -> None:
        self.layers = [n for layer in layers if (n := _numbers_of(layer))]
        first = self.layers[0]
        self.mixer, self.run = first.mixer, work.choose(first.mixer.run)
        # kept alive, as the layers are: loops know their addresses
        arrays = [_arrays(n) for n in self.layers]
        self.places = np.array([addresses(a) for a in arrays], np.int64)
        self.shapes, self.like = np.stack([shapes(a) for a in arrays]), first.like
        self.held = [work.scratch("state", *shape) for shape in self.mixer.shapes]
        self.eps, self.activation = first.eps, first.activation
        self._known: WeakKeyDictionary[Cache, tuple[list[Any], dict[Any, np.ndarray]]] = (
            WeakKeyDictionary()
        )

    @staticmethod
    def common(layer: Layer) -> tuple[Any, ...] | None:
        """What layers of a run have in common; None for one that is in none."""
        n = _numbers_of(layer)
        if n is None:
            return None
        return type(n.mixer), n.mixer.shapes, n.like.dtype.str, n.eps, n.activation

    def __call__(self, token: Token) -> None:
        """Take the stream through all of them."""
        self.run(
            token.x, self.places, self.shapes, self.states(token), self.like, *self.held, self.eps,
            *self.mixer.options(token), self.activation, token.workers,
        )  # fmt: skip

    def states(self, token: Token) -> np.ndarray:
        """Where the tensors of each layer's state lie, and room for those after the token, int64
        [layers, 2·tensors]. ValueError for a cache of another model."""
        stores = token.cache.stores
        held: list[Any] = [stores.get(n.mixer.layer) for n in self.layers]
        known = self._known.get(token.cache)
        if known is None or known[0] != held:  # not these very stores
            held = [token.state(n.mixer.layer, *n.mixer.shapes) for n in self.layers]
            known = self._known[token.cache] = held, {}
        places = tuple([state.step(token.span).places for state in held])
        if places not in known[1]:  # a state lies in one of two places
            known[1][places] = np.array(places, np.int64)
        return known[1][places]


def _numbers_of(layer: Layer) -> Numbers | None:
    n = numbers_of(layer, LinearState, StateSpaceState)
    return n if n and all(m.dtype == n.like.dtype for m in n.mixer.more_matrices) else None


def _arrays(n: Numbers) -> tuple[np.ndarray, ...]:
    """In the order in which the loops take them."""
    return *n.norm, *(m for m in n.matrices if len(m)), n.bias, *n.mixer.between, *n.behind
