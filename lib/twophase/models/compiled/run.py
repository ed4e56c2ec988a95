"""Layers one behind the other, in one call (`kernels.compiled.layers`): those of attention and MLP,
which may differ in their sizes, in whose keys they read, and in how far they see."""

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from twophase.kernels.compiled.addresses import addresses, shapes
from twophase.kernels.compiled.layers import AttentionRun, run_layers
from twophase.kernels.span import Span
from twophase.kernels.store import Store
from twophase.models.cache import Cache
from twophase.models.compiled.halves import MLP, Attention, Half
from twophase.models.compiled.products import NUMBERS
from twophase.models.compiled.token import Arrays, Token, Workspace

Halves = Sequence[Half]  # of a layer; or one that is all of it


class Numbers(NamedTuple):
    """What loops take of a layer of numbers. `behind`: the arrays of the last product of its first
    half, which mixes tokens, and of its MLP. All matrices are of the type of `like`."""

    mixer: Any
    norm: Arrays
    matrices: Arrays
    bias: np.ndarray
    behind: Arrays
    like: np.ndarray
    eps: np.float32
    activation: int


def numbers_of(layer: Halves, *kinds: type) -> Numbers | None:
    """Of a layer that mixes tokens in a half of these kinds; None for others: codes, norms behind
    its halves, two eps, matrices of two types."""
    if len(layer) < 2 or not isinstance(layer[0], kinds) or not isinstance(layer[1], MLP):
        return None
    mixer: Any = layer[0]
    mlp = layer[1]
    if any(p.loops is not NUMBERS for p in (mixer.project, mixer.output, mlp.activate, mlp.down)):
        return None
    scale, shift, eps, *matrices, bias, _, _ = mixer.project.given
    mlp_scale, mlp_shift, mlp_eps, gate, up, mlp_bias, activation, _, _ = mlp.activate.given
    o, o_bias, _ = mixer.output.given
    down, down_bias, _ = mlp.down.given
    if mlp_eps != eps or len({m.dtype for m in (*matrices, o, gate, up, down)}) > 1:
        return None
    behind = o, o_bias, mlp_scale, mlp_shift, gate, up, mlp_bias, down, down_bias
    return Numbers(mixer, (scale, shift), (*matrices,), bias, behind, up, eps, activation)


class Run:
    """Some such layers."""

    def __init__(self, layers: Sequence[Halves], work: Workspace) -> None:
        self.layers = [n for layer in layers if (n := numbers_of(layer, Attention))]
        self.work, self.run = work, work.choose(run_layers)
        self.like, self.options = self.layers[0].like, _options(self.layers[0])
        attentions = [n.mixer for n in self.layers]
        self.kinds = tuple(sorted({attention.kind for attention in attentions}))
        sees = [(a.store[3] or 0, self.kinds.index(a.kind)) for a in attentions]
        self.sees = np.array(sees, np.int64)
        self._known: WeakKeyDictionary[Cache, tuple[list[Store], AttentionRun]] = (
            WeakKeyDictionary()
        )

    @staticmethod
    def common(layer: Halves) -> tuple[Any, ...] | None:
        """What layers of a run have in common; None for one that is in none."""
        n = numbers_of(layer, Attention)
        return None if n is None else (n.like.dtype.str, *_options(n))

    def __call__(self, token: Token) -> None:
        """Take the stream through all of them."""
        self.run(token.x, token.position, self.given(token.span, token.cache), token.workers)

    def given(self, span: Span, cache: Cache) -> AttentionRun:
        """What the loops take for a token of a cache. ValueError for a cache of another model."""
        known, rope = self._known.get(cache), self.work.rope_of_kinds(self.kinds, span.starts[0])
        if known is None or known[0] != [*cache.stores.values()] or known[1].rope is not rope:
            found = self._find(Token(np.empty(0, np.float32), span, cache, self.work))
            known = [*cache.stores.values()], AttentionRun(rope, *found, *self.options)
            self._known[cache] = known  # as long as it has these very stores
        return known[1]

    def _find(self, token: Token) -> tuple[Any, ...]:
        """Where the arrays of all layers begin and their sizes, what each layer sees, and an array
        of matrices and one of keys for their types."""
        rows, sizes = [], []
        first: dict[tuple[Any, ...], tuple[int, Any, np.ndarray]] = {}
        for n in self.layers:
            store = n.mixer.store
            _, keys, values = token.store(store)
            # one dtype for all, and the same room for all that see as far
            for kind, size in ((), (keys.dtype,)), (store[1:], (keys.shape, keys.strides)):
                layer, wanted, found = first.setdefault(kind, (store[0], size, keys))
                if size != wanted:
                    raise ValueError(
                        f"layer {store[0]} of this cache holds {told(keys)} where layer {layer}"
                        f" holds {told(found)}: make one with `new_cache` of this model."
                    )
            arrays = *n.norm, *n.matrices, n.bias, *n.mixer.given[2:4], keys, values, *n.behind
            rows.append(addresses(arrays))
            sizes.append(shapes(arrays))
        return np.array(rows, np.int64), np.stack(sizes), self.sees, self.like, first[()][2]


def _options(n: Numbers) -> tuple[Any, ...]:
    """Of layers of attention: eps, eps of heads, pairs of RoPE, factor of scores, their cap, and
    the activation."""
    return n.eps, *n.mixer.given[4:], n.mixer.cap, n.activation


def told(keys: np.ndarray) -> str:
    """Keys in words."""
    bits = {2: "bfloat16", 4: "float32"}[keys.itemsize]
    return f"{len(keys)} slots of {keys.shape[1]} heads of {keys.shape[2]} in {bits}"
