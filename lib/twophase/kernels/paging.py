"""Keys and values in blocks: paged attention (Kwon et al., 2023, arXiv 2309.06180, section 4).

A pool holds `blocks` blocks of `block_size` tokens for each layer. A sequence owns a list of
blocks, its block table: token p lies in block `table[p // block_size]` at place `p % block_size`.
So a sequence grows by a block at a time, wherever one is free, and two that begin alike can share.

Sequences of one pass lie one after the other in a single row of n tokens (Yu et al., 2022, Orca,
section 3.2, "selective batching"): products and norms take the row as it is, with no padding;
attention and states, which must know whose a token is, go sequence by sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from twophase.kernels.attention import causal_attention
from twophase.kernels.attention_inputs import check_options, check_tensors
from twophase.kernels.compiled.attention import (
    Work,
    attend_latent_blocks,
    attend_rows,
    paged_work,
    rows_of,
)
from twophase.kernels.compiled.loops import STORED
from twophase.kernels.kv_cache import KVCache, check_queries
from twophase.kernels.latent_attention import LatentCache, attend_latents
from twophase.kernels.span import once
from twophase.kernels.state import Advance, State, Tensors


@dataclass(frozen=True)
class FlatSpan:
    """The n new tokens of a pass over several sequences, in one row: sequence i holds `starts[i]`
    tokens, and its `n_new[i]` ≥ 1 new ones follow those of the sequence before it.

    `tables[i]` lists its blocks, of which those that no query sees may be anything; `slots[i]` is
    its place among states. `block_size` 0: no layer keeps tokens, and tables are empty.
    `in_windows`: the same tokens for layers with a window whose blocks are others. ValueError if a
    table ends before its sequence does, or the lists are not of one length.
    """

    starts: tuple[int, ...]
    n_new: tuple[int, ...]
    tables: tuple[tuple[int, ...], ...]
    slots: tuple[int, ...]
    block_size: int
    device: torch.device | str | None = None
    in_windows: "FlatSpan | None" = None
    # what layers ask of a pass that is padded: here nothing pads, and nothing branches
    real: None = field(default=None, init=False)
    tree: None = field(default=None, init=False)
    B: int = field(default=1, init=False)
    _blocks: dict[tuple[int, int], torch.Tensor | slice] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _works: dict[tuple[int, int | None], Work] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if len({len(self.starts), len(self.n_new), len(self.tables), len(self.slots)}) != 1:
            raise ValueError("a flat span needs a start, a count, a table and a slot a sequence.")
        if not self.n_new or min(self.n_new) < 1 or min(self.starts) < 0:
            raise ValueError(f"each sequence of a pass brings at least one token; got {self.n_new}")
        for end, table in zip(self.ends, self.tables, strict=True):
            if self.block_size and end > len(table) * self.block_size:
                raise ValueError(
                    f"a sequence of {end} tokens does not fit into its {len(table)} blocks of"
                    f" {self.block_size}: allocate more before the pass."
                )

    @once
    def T(self) -> int:
        """New tokens of all sequences."""
        return sum(self.n_new)

    @once
    def ends(self) -> tuple[int, ...]:
        """How long each sequence is after the pass."""
        return tuple(start + n for start, n in zip(self.starts, self.n_new, strict=True))

    @once
    def end(self) -> int:
        """The length of the longest sequence after the pass."""
        return max(self.ends)

    @once
    def parts(self) -> list[slice]:
        """Where in the row the tokens of each sequence are."""
        behind = 0
        found = []
        for n in self.n_new:
            found.append(slice(behind, behind + n))
            behind += n
        return found

    @once
    def positions(self) -> torch.Tensor:
        """The position of each token in its own sequence: int64 [1, n]."""
        counted = [
            p for start, end in zip(self.starts, self.ends, strict=True) for p in range(start, end)
        ]
        return torch.tensor(counted, device=self.device)[None]  # [1, n]

    @once
    def slot_mapping(self) -> torch.Tensor:
        """Where each token's keys go, counted in tokens from the first block's first: int64 [n]."""
        size = self.block_size
        places = [
            table[p // size] * size + p % size
            for start, end, table in zip(self.starts, self.ends, self.tables, strict=True)
            for p in range(start, end)
        ]
        return torch.tensor(places, device=self.device)  # [n]

    @once
    def alone(self) -> list[int]:
        """The sequences with one new token."""
        return [i for i, n in enumerate(self.n_new) if n == 1]

    def work(self, blocks: int, window: int | None) -> Work:
        """What attention reads for the sequences with one new token in a pool of so many blocks.
        Made once for all layers that are alike."""
        if (blocks, window) not in self._works:
            tables = _padded([self.tables[i] for i in self.alone])  # [decoding, most]
            ends = torch.tensor([self.ends[i] for i in self.alone], device="cpu")
            self._works[blocks, window] = paged_work(tables, ends, blocks, self.block_size, window)
        return self._works[blocks, window]

    def blocks(self, i: int, first: int = 0) -> torch.Tensor | slice:
        """The blocks that sequence i fills, if only in part, after the pass, from that of its token
        `first` on: int64, or a slice where they lie side by side."""
        if (i, first) not in self._blocks:
            begin, end = first // self.block_size, -(-self.ends[i] // self.block_size)
            blocks = self.tables[i][begin:end]
            beside = blocks == tuple(range(blocks[0], blocks[0] + len(blocks)))
            self._blocks[i, first] = (
                slice(blocks[0], blocks[-1] + 1)
                if beside
                else torch.tensor(blocks, device=self.device)  # [blocks]
            )
        return self._blocks[i, first]


class PagedKV(KVCache):
    """One layer's pool of keys and values, [blocks, block_size, K, H] each."""

    @property
    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values as loops see them: [blocks·block_size, K, H]."""
        return rows_of(self.keys), rows_of(self.values)

    def write(self, first: torch.Tensor, second: torch.Tensor, span: Any) -> None:
        """Put the keys and values [1, n, K, H] of a flat span's tokens where it says."""
        fits = [[1, span.T, *held.shape[2:]] for held in self.held]
        check_tensors("the pool", first, second, self.held[0])
        if [list(first.shape), list(second.shape)] != fits:
            raise ValueError(
                f"the pool takes rows of {fits[0]} and {fits[1]}; got {list(first.shape)} and"
                f" {list(second.shape)}."
            )
        places = span.slot_mapping  # [n]
        for held, new in zip(self.held, (first, second), strict=True):
            held.flatten(0, 1)[places] = new[0].to(held.dtype)  # [blocks·block_size, K, H]

    def attend(
        self,
        q: torch.Tensor,
        span: Any,
        *,
        window: int | None = None,
        softcap: float | None = None,
        scale: float | None = None,
    ) -> torch.Tensor:
        """What the queries q [1, n, N, H] of a flat span find, each in its own sequence.

        Sequences with one new token read their blocks where they lie, all in one call; those with
        more gather theirs first, as far as their windows reach: T queries share that copy, which is
        none where blocks lie side by side.
        """
        check_queries(span, q)
        check_options(window, softcap, scale)
        alone = span.alone if _in_place(q, self.keys) else []
        found: torch.Tensor | None = None
        if alone:
            work = span.work(len(self.keys), window)
            if len(alone) == len(span.n_new):  # nobody reads a prompt
                found = attend_rows(q[0][:, None], *self.rows, work, softcap, scale)
                return found.transpose(0, 1)  # [1, n, N, Hv]
            rows = [span.parts[i].start for i in alone]
            queries = q[0, rows][:, None]  # [decoding, 1, N, H]
            found = attend_rows(queries, *self.rows, work, softcap, scale)
        out = q.new_empty(*q.shape[:3], self.values.shape[3])  # [1, n, N, Hv]
        if found is not None:
            out[0, rows] = found[:, 0].to(out.dtype)
        for i in set(range(len(span.n_new))) - set(alone):
            part, seen = span.parts[i], 0 if window is None else span.starts[i] - window + 1
            keys, values = (
                self.gather(held, span, i, max(0, seen)).to(q.dtype) for held in self.held
            )
            out[:, part] = causal_attention(
                q[:, part], keys, values, window=window, softcap=softcap, scale=scale
            )  # [1, T, N, Hv]
        return out

    @staticmethod
    def gather(held: torch.Tensor, span: Any, i: int, first: int = 0) -> torch.Tensor:
        """What sequence i holds from token `first` on, in order, [1, S, ...]: a copy, or a view
        where its blocks lie side by side."""
        before, tokens = first % span.block_size, held[span.blocks(i, first)].flatten(0, 1)
        return tokens[None, before : before + span.ends[i] - first]  # [1, S, ...]


class WindowKV(PagedKV):
    """The pool of a layer with a window, in blocks that only such layers use."""

    def write(self, first: torch.Tensor, second: torch.Tensor, span: Any) -> None:
        """As in `PagedKV`, where the span says for windows."""
        super().write(first, second, span.in_windows)

    def attend(
        self, q: torch.Tensor, span: Any, *, window: int | None = None, **options: Any
    ) -> torch.Tensor:
        """As in `PagedKV`."""
        return super().attend(q, span.in_windows, window=window, **options)


class PagedLatents(LatentCache):
    """One layer's pool of latents [blocks, block_size, R] and rotated keys [blocks, block_size,
    rope_dim]."""

    def write(self, first: torch.Tensor, second: torch.Tensor, span: Any) -> None:
        """Put the latents [1, n, R] and keys [1, n, rope_dim] where a flat span says."""
        PagedKV.write(self, first, second, span)  # type: ignore[arg-type]  # same two tensors

    def read(self, span: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """ValueError: sequences of different lengths lie in no one tensor."""
        raise ValueError(
            "latents in pages are read in the absorbed form: the layer cannot absorb its"
            " up-projections."
        )

    def attend(
        self, q_latent: torch.Tensor, q_rope: torch.Tensor, span: Any, *, scale: float
    ) -> torch.Tensor:
        """What absorbed queries [1, n, N, R] and [1, n, N, rope_dim] find, each in its own
        sequence: [1, n, N, R]. As in `PagedKV`, sequences with one new token read their blocks
        where they lie."""
        check_queries(span, q_latent, q_rope)
        alone = span.alone if _in_place(q_latent, self.held[0]) else []
        out = torch.empty_like(q_latent)  # [1, n, N, R]
        if alone:
            rows = [span.parts[i].start for i in alone]
            q, turned = (
                q_latent[0, rows][:, None],
                q_rope[0, rows][:, None],
            )  # [decoding, 1, N, ...]
            work = span.work(len(self.held[0]), None)
            found = attend_latent_blocks(q, turned, self.held[0], self.held[1], work, scale)
            out[0, rows] = found[:, 0]  # [decoding, N, R]
        for i in set(range(len(span.n_new))) - set(alone):
            part = span.parts[i]
            latent, key = (PagedKV.gather(held, span, i).to(q_latent.dtype) for held in self.held)
            out[:, part] = attend_latents(
                q_latent[:, part], q_rope[:, part], latent, key, scale=scale
            )  # [1, T, N, R]
        return out


class SlotStates(State):
    """One layer's states, one slot for each sequence that is served: [slots, 1, ...]."""

    def run(self, span: Any, advance: Advance) -> torch.Tensor:
        """What the tokens of a flat span give, [1, n, ...]; each sequence continues its own state,
        which is replaced at once."""
        outs = []
        for part, slot in zip(span.parts, span.slots, strict=True):
            before: Tensors = tuple(past[slot : slot + 1, -1] for past in self.held)
            out, after = advance(part, before)
            for past, state in zip(self.held, after, strict=True):
                past[slot, -1] = state[0]
            outs.append(out)
        return torch.cat(outs, dim=1)


def _in_place(q: torch.Tensor, held: torch.Tensor) -> bool:
    """Whether loops can read what is held where it lies."""
    return q.device.type == "cpu" and held.dtype in STORED


def _padded(tables: Sequence[Sequence[int]]) -> torch.Tensor:
    """Block tables as one tensor, int64 [sequences, most]; what is behind an end is 0."""
    most = max(map(len, tables))
    rows = [[*table, *[0] * (most - len(table))] for table in tables]
    return torch.tensor(rows, device="cpu")  # loops read it
