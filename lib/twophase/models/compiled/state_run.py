"""Layers with a state, one behind the other, in one call (`kernels.compiled.state_layers`)."""

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from twophase.kernels.compiled.addresses import addresses, shapes
from twophase.kernels.compiled.state_layers import LinearRun, StateSpaceRun
from twophase.kernels.compiled.step import LOOPS
from twophase.kernels.span import Span
from twophase.models.cache import Cache
from twophase.models.compiled.recurrent import LinearState, StateSpaceState
from twophase.models.compiled.run import Halves, Numbers, numbers_of
from twophase.models.compiled.token import Token, Workspace

RUN_OF: dict[type, Any] = {LinearState: LinearRun, StateSpaceState: StateSpaceRun}


class StateRun:
    """Some layers of linear attention, or with a selective state space, that differ in their arrays
    only."""

    def __init__(self, layers: Sequence[Halves], work: Workspace) -> None:
        self.layers = [n for layer in layers if (n := _numbers_of(layer))]
        first = self.layers[0]
        self.mixer, self.kind = first.mixer, RUN_OF[type(first.mixer)]
        self.run, self.work = work.choose(LOOPS[self.kind]), work
        rows = [_arrays(n) for n in self.layers]
        places = np.array([addresses(row) for row in rows], np.int64)
        sizes = np.stack([shapes(row) for row in rows])
        held = [work.scratch("state", *shape) for shape in first.mixer.shapes]
        self.arrays: Any = places, sizes, first.like, *held, first.eps, first.activation
        self._known: WeakKeyDictionary[Cache, tuple[list[Any], dict[Any, Any]]] = (
            WeakKeyDictionary()
        )

    @staticmethod
    def common(layer: Halves) -> tuple[Any, ...] | None:
        """What layers of a run have in common; None for one that is in none."""
        n = _numbers_of(layer)
        if n is None:
            return None
        return type(n.mixer), n.mixer.shapes, n.like.dtype.str, n.eps, n.activation

    def __call__(self, token: Token) -> None:
        """Take the stream through all of them."""
        self.run(token.x, token.position, self.given(token.span, token.cache), token.workers)

    def given(self, span: Span, cache: Cache) -> Any:
        """What the loops take for a token of a cache. ValueError for a cache of another model."""
        held: list[Any] = [cache.stores.get(n.mixer.layer) for n in self.layers]
        known = self._known.get(cache)
        if known is None or known[0] != held:  # not these very stores
            token = Token(np.empty(0, np.float32), span, cache, self.work)
            held = [token.state(n.mixer.layer, *n.mixer.shapes) for n in self.layers]
            known = self._known[cache] = held, {}
        rope = self.work.rope_of_kinds((self.mixer.kind,), span.starts[0])
        places = tuple([state.step(span).places for state in held])
        run = known[1].get(places)  # a state lies in one of two places
        if run is None or run.rope is not rope:
            run = known[1][places] = self.kind(rope, np.array(places, np.int64), *self.arrays)
        return run


def _numbers_of(layer: Halves) -> Numbers | None:
    n = numbers_of(layer, LinearState, StateSpaceState)
    return n if n and all(m.dtype == n.like.dtype for m in n.mixer.more_matrices) else None


def _arrays(n: Numbers) -> tuple[np.ndarray, ...]:
    """In the order in which the loops take them."""
    return *n.norm, *(m for m in n.matrices if len(m)), n.bias, *n.mixer.between, *n.behind
