"""Runs a pass: tokens of many requests through the model in one row, keys and values in blocks.

Layers are those of the plain model. They ask their `Step` where keys and values go, and get pools
of blocks in place of a cache; so whatever a model is made of, it is served.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import torch

from twophase.kernels.kv_cache import KVCache
from twophase.kernels.latent_attention import LatentCache
from twophase.kernels.paging import FlatSpan, PagedKV, PagedLatents, SlotStates, WindowKV
from twophase.kernels.span import Span, whole
from twophase.kernels.state import State
from twophase.kernels.store import Store
from twophase.models.compiled.batch_linear import with_batch_linears
from twophase.models.config import Config
from twophase.models.step import Step
from twophase.models.stores import state_shapes
from twophase.models.transformer import Transformer
from twophase.serving.block_manager import GONE
from twophase.serving.request import Request
from twophase.serving.windows import windows_kept

Pools = dict[int, Store]
Tables = tuple[dict[int, list[int]], dict[int, list[int]] | None]  # and those of windows


@dataclass
class PagedStep(Step):
    """A step whose layers write to and read from pools."""

    pools: Pools = field(default_factory=dict)
    in_pages: bool = True

    def latents(self, layer: int) -> LatentCache:
        """The pool of a layer of latents."""
        return cast(LatentCache, self.pools[layer])

    def state(self, layer: int) -> State:
        """The states of a layer."""
        return cast(State, self.pools[layer])

    def keys_values(self, layer: int, read_later: bool) -> KVCache:
        """The pool of a layer of keys and values."""
        return cast(KVCache, self.pools[layer])


class ModelRunner:
    """A model and its pools: `n_blocks` blocks of `block_size` tokens for each layer that keeps
    tokens, `max_seqs` slots for each that keeps a state.

    `dtype`: of keys, values and latents; that of the weights if not said. `batch_invariant`: each
    token in calls of its own. `window_blocks`: as many blocks of their own for layers with a window
    (0: they share those of the others). `pack_weights`: a copy of matrices in the order of products
    of several tokens, where memory has room for it and torch such an order, or loops that widen
    bf16; what is written to the model later it may not see. ValueError for a model that reads both
    ways, and for sizes that are no whole numbers of at least 1.
    """

    def __init__(
        self,
        model: Transformer,
        n_blocks: int,
        block_size: int,
        max_seqs: int,
        *,
        dtype: torch.dtype | None = None,
        batch_invariant: bool = False,
        window_blocks: int = 0,
        pack_weights: bool = False,
    ) -> None:
        if not model.config.causal:
            raise ValueError("a model that reads both ways fills in masks: it cannot be served.")
        self.model = with_batch_linears(model, pack=True) if pack_weights else model
        n_blocks = whole("the number of blocks", n_blocks, 1)
        self.block_size = block_size = whole("the block size", block_size, 1)
        max_seqs = whole("max_seqs", max_seqs, 1)
        self.V, self.most_positions = model.config.V, model.config.learned_positions
        self.batch_invariant = batch_invariant
        dtype = dtype or model.embed_tokens.weight.dtype
        sizes = n_blocks, block_size, max_seqs
        self.pools = new_pools(model.config, *sizes, dtype, model.device, window_blocks)
        if not self._of_kind(PagedKV, PagedLatents):
            self.block_size = 0  # nothing lies in blocks
        self.slots: dict[int, int] = {}  # of sequences that run
        self._free_slots = list(range(max_seqs))

    @property
    def has_states(self) -> bool:
        """Whether a layer keeps a state, which belongs to one sequence at one moment."""
        return any(isinstance(pool, SlotStates) for pool in self.pools.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all pools."""
        return sum(pool.nbytes for pool in self.pools.values())

    def seat(self, seq: int) -> None:
        """Give a sequence a slot, with states at zero."""
        slot = self.slots[seq] = self._free_slots.pop()
        for pool in self._of_kind(SlotStates):
            pool.clear(slot)

    def unseat(self, seq: int) -> None:
        """Take a sequence's slot back, if it has one."""
        if seq in self.slots:
            self._free_slots.append(self.slots.pop(seq))

    def copy_block(self, source: int, target: int) -> None:
        """Copy what lies in a block, in all layers."""
        for pool in self._of_kind(PagedKV, PagedLatents):
            if not isinstance(pool, WindowKV):
                pool.copy_row(source, target)

    def copy_window_block(self, source: int, target: int) -> None:
        """The same in the layers whose blocks are their own."""
        for pool in self._of_kind(WindowKV):
            pool.copy_row(source, target)

    def copy_state(self, source: int, target: int) -> None:
        """Copy the states of one sequence to another."""
        for pool in self._of_kind(SlotStates):
            pool.copy_row(self.slots[source], self.slots[target])

    def save(
        self, seq: int, table: Sequence[int], window_table: Sequence[int] = ()
    ) -> list[torch.Tensor]:
        """What a sequence holds in its blocks and its slot, as copies."""
        saved = [
            held[rows]  # [blocks, block_size, ...]
            for pool, rows in self._rows(table, window_table)
            for held in pool.held
        ]
        slot = self.slots[seq]
        return saved + [held[slot].clone() for p in self._of_kind(SlotStates) for held in p.held]

    def restore(
        self,
        seq: int,
        table: Sequence[int],
        saved: Sequence[torch.Tensor],
        window_table: Sequence[int] = (),
    ) -> None:
        """Put back what `save` gave, into these blocks and the sequence's slot. ValueError, and
        nothing is written, for what did not come from there."""
        places: list[tuple[torch.Tensor, list[int]]] = [
            (held, rows) for pool, rows in self._rows(table, window_table) for held in pool.held
        ]
        slots = self._of_kind(SlotStates)
        places += [(held[self.slots[seq]], []) for pool in slots for held in pool.held]
        fits = len(places) == len(saved) and all(
            copy.shape[1 if rows else 0 :] == held.shape[1 if rows else 0 :]
            and (not rows or len(copy) <= len(rows))
            for (held, rows), copy in zip(places, saved, strict=True)
        )
        if not fits:
            raise ValueError(
                f"what is restored was saved by a runner of other layers or blocks: {len(places)}"
                f" tensors belong here; got {[list(copy.shape) for copy in saved]}."
            )
        for (held, rows), copy in zip(places, saved, strict=True):
            if rows:
                held[rows[: len(copy)]] = copy  # [blocks, block_size, ...]
            else:
                held.copy_(copy)

    def _rows(
        self, table: Sequence[int], window_table: Sequence[int]
    ) -> Iterator[tuple[Store, list[int]]]:
        """The pools of tokens, and what a sequence holds in each."""
        for pool in self._of_kind(PagedKV, PagedLatents):
            blocks = window_table if isinstance(pool, WindowKV) else table
            yield pool, [block for block in blocks if block != GONE]

    def _of_kind(self, *kinds: type[Store]) -> list[Store]:
        return [pool for pool in self.pools.values() if isinstance(pool, kinds)]

    @torch.inference_mode()
    def run(
        self,
        n_new: dict[Request, int],
        tables: dict[int, list[int]],
        window_tables: dict[int, list[int]] | None = None,
    ) -> dict[Request, torch.Tensor]:
        """Read `n_new` of the missing tokens of each request, and give the logits [V] after the
        last one of those whose tokens are all read then."""
        both = tables, window_tables
        if self.batch_invariant:
            return self._one_by_one(n_new, both)
        requests = list(n_new)
        span = self._span(requests, [r.n_computed for r in requests], list(n_new.values()), both)
        tokens = [t for r, n in n_new.items() for t in r.tokens_from(r.n_computed, n)]
        x = self._stream(span, tokens)  # [1, n, D]
        last = [i for i, r in enumerate(requests) if r.n_missing == n_new[r]]
        rows = [span.parts[i].stop - 1 for i in last]
        logits = self.model.logits(x[:, rows])[0] if rows else ()  # [finishing, V]
        return {requests[i]: row for i, row in zip(last, logits, strict=True)}

    def _one_by_one(self, n_new: dict[Request, int], tables: Tables) -> dict[Request, torch.Tensor]:
        """The same, each token in calls of its own, as if it were alone."""
        logits = {}
        for request, n in n_new.items():
            for start in range(request.n_computed, request.n_computed + n):
                span = self._span([request], [start], [1], tables)
                x = self._stream(span, request.tokens_from(start, 1))  # [1, 1, D]
            if request.n_missing == n:
                logits[request] = self.model.logits(x)[0, 0]  # [V]
        return logits

    def _span(
        self,
        requests: Sequence[Request],
        starts: Sequence[int],
        n_new: Sequence[int],
        tables: Tables,
    ) -> FlatSpan:
        slots = tuple(self.slots[r.id] for r in requests)

        def span(tables: dict[int, list[int]], other: FlatSpan | None = None) -> FlatSpan:
            of_each = tuple(tuple(tables[r.id]) for r in requests)
            place = slots, self.block_size, self.model.device
            return FlatSpan(tuple(starts), tuple(n_new), of_each, *place, other)

        every, windows = tables
        return span(every, None if windows is None else span(windows))

    def _stream(self, span: FlatSpan, tokens: Sequence[int]) -> torch.Tensor:
        """The stream after the last norm, [1, n, D]."""
        positions = span.positions  # [1, n]
        step = PagedStep(cast(Span, span), self.model.rope(positions), pools=self.pools)
        x = self.model.embed(torch.tensor([tokens], device=self.model.device), positions)
        for block in self.model.layers:
            x = block(x, step)  # [1, n, D]
        return self.model.norm(x)  # type: ignore[no-any-return]


def new_pools(
    config: Config,
    n_blocks: int,
    block_size: int,
    max_seqs: int,
    dtype: torch.dtype,
    device: torch.device | str | None,
    window_blocks: int = 0,
) -> Pools:
    """An empty pool for each layer that keeps something of its own; `window_blocks` blocks where
    nobody sees more than a window of it, if there are any, else as many as elsewhere."""
    pools: Pools = {}
    windows = windows_kept(config) if window_blocks else {}
    for layer, kind in enumerate(config.mixers):
        c = config.at(layer)
        if config.source(layer) != layer:
            continue
        if shapes := state_shapes(c, kind):
            pools[layer] = SlotStates(max_seqs, shapes, device=device)
        elif kind == "mla" and c.mla is not None:
            rows = n_blocks, block_size, c.mla.R, c.mla.rope_dim
            pools[layer] = PagedLatents(*rows, dtype, device)
        elif windows.get(layer):
            pools[layer] = WindowKV(window_blocks, block_size, c.K, c.H, dtype, device)
        else:
            pools[layer] = PagedKV(n_blocks, block_size, c.K, c.H, dtype, device)
    return pools
