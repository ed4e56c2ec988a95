"""A step in one call, of a model whose layers are all of one kind (`kernels.compiled.step`)."""

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch

from twophase.kernels.compiled.addresses import addresses, shapes
from twophase.kernels.compiled.layers import run_layers
from twophase.kernels.compiled.step import run_step
from twophase.kernels.span import Span
from twophase.kernels.store import Store
from twophase.models.cache import Cache
from twophase.models.compiled.ends import Embedding, Head
from twophase.models.compiled.products import NUMBERS
from twophase.models.compiled.run import Run
from twophase.models.compiled.token import Token, Workspace


class Places(NamedTuple):
    """The stores of a cache, and what the call takes for them."""

    stores: list[Store]
    given: tuple[Any, ...]


class Whole:
    """From a token to its logits: embedding, all layers, norm and output matrix."""

    def __init__(self, embed: Embedding, run: Run, head: Head, work: Workspace) -> None:
        self.embed, self.layers, self.head, self.work = embed, run, head, work
        self.run = work.choose(run_step)
        norm, shift, eps, matrix, _, _, bias, _ = head.given
        learned = embed.table[:0] if embed.positions is None else embed.positions
        # kept alive: the call knows their addresses
        self.arrays = embed.table, learned, norm, shift, matrix, bias
        places = np.array(addresses(self.arrays), np.int64)
        self.ends = places, shapes(self.arrays), embed.scale, eps
        self._places: WeakKeyDictionary[Cache, Places] = WeakKeyDictionary()

    def __call__(self, tokens: torch.Tensor, span: Span, cache: Cache) -> torch.Tensor:
        """Logits fp32 [1, V] of one token [1, 1]; the cache waits for its commit."""
        token, position = self.embed.number_of(tokens), span.starts[0]
        known = self._places.get(cache)
        if known is None or known.stores != [*cache.stores.values()]:  # not these very ones
            known = self._places[cache] = self._find_places(span, cache)
        logits = torch.empty(1, self.head.V, dtype=torch.float32)  # the caller's own
        rope = self.work.rope_tables(self.layers.kind, position)
        self.run(
            token, position, *self.ends, *rope, *known.given, logits.data_ptr(), self.work.workers
        )
        return self.head.capped(logits)

    def _find_places(self, span: Span, cache: Cache) -> Places:
        """What the call takes for a cache. ValueError for one of another model."""
        token = Token(np.empty(0, np.float32), span, cache, self.work)
        n = self.layers.layers[0]
        _, keys, _ = token.store(n.attention.store)
        arrays = *n.before, keys, keys, *n.behind
        given = (
            n.attention.store[3] or 0, self.layers.places(token),
            shapes(arrays), self.arrays[0][:0], keys, *n.options, n.attention.cap, n.activation,
        )  # fmt: skip
        return Places([*cache.stores.values()], given)


def whole_of(embed: Any, halves: Sequence[Any], head: Any, work: Workspace) -> Whole | None:
    """All of a model in one call; None where it is more than ends in loops and one run of layers of
    numbers, or where matrices differ in dtype."""
    run = halves[0]
    if len(halves) != 1 or not isinstance(run, Run) or run.layers[0].run is not run_layers:
        return None
    if not isinstance(embed, Embedding) or not isinstance(head, Head) or head.loops is not NUMBERS:
        return None
    n = run.layers[0]
    found = [embed.table, embed.positions, head.given[3], *n.before, *n.behind]
    matrices = [array for array in found if array is not None and array.ndim == 2]
    if len({array.dtype for array in matrices}) > 1:
        return None
    return Whole(embed, run, head, work)
