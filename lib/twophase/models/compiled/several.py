"""A pass of a few tokens of one sequence in compiled loops: what a verification of drafted tokens
is, and a short prompt.

Its halves are those of a step of one token, with a row for each token. What has no such loops (all
but grouped-query attention and MLPs of plain numbers) runs in torch, on all tokens at once.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch

from twophase.kernels.compiled.addresses import addresses
from twophase.kernels.compiled.several import (
    activate_several,
    add_norm_several,
    add_several,
    project_several,
)
from twophase.kernels.compiled.several_attention import shared_work, turn_attend_several
from twophase.kernels.compiled.several_layers import run_layers_several
from twophase.kernels.local_attention import RingKVCache
from twophase.kernels.span import Span
from twophase.models.cache import Cache
from twophase.models.compiled.ends import Embedding, Head
from twophase.models.compiled.halves import MLP, Attention
from twophase.models.compiled.make import RUNS
from twophase.models.compiled.plain import PlainBlock, halves_of
from twophase.models.compiled.products import NUMBERS, Output
from twophase.models.compiled.run import Run
from twophase.models.compiled.token import Rows, Token, Workspace
from twophase.models.compiled.weights import NoKernel, check_kind
from twophase.models.step import Step, Tables
from twophase.models.transformer import KINDS, Block, Transformer

Array = np.ndarray


class Tokens(Token):
    """The stream x, fp32 [T, D], of some tokens of one sequence, and where they go in the cache."""

    def __init__(self, x: Array, span: Span, cache: Cache, work: Workspace) -> None:
        super().__init__(x, span, cache, work)
        self.new: dict[int, Rows] = {}  # keys and values [T, K, H] of layers that have their own

    def rope(self, kind: str) -> Rows:
        """Cosines and sines for a kind of layer, [T, H/2] each, or of width 0."""
        if kind not in self._rope:
            first, last = self.position, self.position + len(self.x)
            cos, sin = self.work.rope_tables(kind, last - 1)
            self._rope[kind] = cos[first:last], sin[first:last]
        return self._rope[kind]

    def shared(self, slots: int, window: int | None, token_bytes: int) -> tuple[Array, ...]:
        """What they see of a store, and who sees it (`shared_work`)."""
        sizes = slots, window or 0, token_bytes
        return shared_work(self.position, len(self.x), *sizes, self.workers)

    def room(self, layer: int, keys: Array) -> Rows:
        """For the new keys and values of a layer, [T, K, H] each, in the numbers of its store's
        keys [slots, K, H]."""
        made = np.empty((2, len(self.x), *keys.shape[1:]), keys.dtype)
        self.new[layer] = made[0], made[1]
        return self.new[layer]

    def slot(self, layer: int) -> int:
        """Where the first of them goes in a store, or -1: a ring takes them when they are
        committed."""
        return self.position if self.cache.stores[layer].unlimited else -1

    def hold_back(self, layer: int) -> None:
        """Hand a ring what it takes when it is committed."""
        store = cast(RingKVCache, self.cache.stores[layer])
        new = [torch.from_numpy(x[None]).view(store.held[0].dtype) for x in self.new[layer]]
        store.write(new[0], new[1], self.span)

    @property
    def tensor(self) -> torch.Tensor:
        """The stream as plain layers take it: [1, T, D], in the dtype of the weights."""
        return torch.from_numpy(self.x)[None].to(self.work.model.embed_tokens.weight.dtype)

    @cached_property
    def step(self) -> Step:
        """The same for the layers that run in plain torch."""
        tables: dict[str, Tables | None] = {}
        for kind in KINDS:
            cos, sin = map(torch.from_numpy, self.rope(kind))  # [T, H/2]
            tables[kind] = (cos, sin) if cos.numel() else None
        return Step(self.span, tables, self.cache)


class SeveralOutput:
    """`products.Output` for some tokens."""

    def __init__(self, one: Output, work: Workspace) -> None:
        self.w, self.bias, _, *norm = one.given
        self.norm = norm[:-1]  # but for its scratch; none without a norm behind the half
        self.add = work.choose(add_norm_several if norm else add_several)

    def __call__(self, tokens: Tokens, h: Array) -> None:
        """x [T, D] += h Wᵀ + bias, or its norm."""
        self.add(self.w, self.bias, h, *self.norm, tokens.x, tokens.workers)


class SeveralAttention:
    """`halves.Attention` for some tokens."""

    def __init__(self, one: Attention, work: Workspace) -> None:
        self.one, self.output = one, SeveralOutput(one.output, work)
        self.project, self.attend = work.choose(project_several), work.choose(turn_attend_several)

    def __call__(self, tokens: Tokens) -> None:
        """Add to their streams what the tokens find among those before them."""
        one, T = self.one, len(tokens.x)
        _, N, *turning = one.given
        layer, _, H, window = one.store
        *given, bias, _, _ = one.project.given  # norm, matrices, bias, and scratch
        qkv, found = np.empty((T, len(bias)), np.float32), np.empty((T, N, H), np.float32)
        self.project(tokens.x, *given, bias, qkv, tokens.workers)
        _, keys, values = tokens.store(one.store)
        new_keys, new_values = tokens.room(layer, keys) if one.has_keys else tokens.new[layer]
        self.attend(
            qkv, N, *turning, *tokens.rope(one.kind), new_keys, new_values, keys, values,
            *tokens.shared(len(keys), window, keys.strides[0]), window or 0, one.cap, found,
        )  # fmt: skip
        slot = tokens.slot(layer)
        if one.has_keys and slot < 0:
            tokens.hold_back(layer)
        elif one.has_keys:
            keys[slot : slot + T], values[slot : slot + T] = new_keys, new_values
        self.output(tokens, found.reshape(T, N * H))  # [T, N·H]


class SeveralMLP:
    """`halves.MLP` for some tokens."""

    def __init__(self, one: MLP, work: Workspace) -> None:
        *self.given, _, self.between = one.activate.given  # norm, matrices, bias, kind; scratch
        self.activate, self.down = work.choose(activate_several), SeveralOutput(one.down, work)

    def __call__(self, tokens: Tokens) -> None:
        """Add to their streams what the MLP makes of the tokens."""
        y = np.empty((len(tokens.x), len(self.between)), np.float32)
        self.activate(tokens.x, *self.given, y, tokens.workers)
        self.down(tokens, y)


class SeveralRun:
    """`run.Run` for some tokens."""

    def __init__(self, one: Run, work: Workspace) -> None:
        self.one, self.work, self.run = one, work, work.choose(run_layers_several)
        self.attentions = [n.mixer for n in one.layers]

    def __call__(self, tokens: Tokens) -> None:
        """Take the streams through all of its layers."""
        self.work.rope_tables(self.one.kinds[0], tokens.span.end - 1)  # for the last of them, too
        given = self.one.given(tokens.span, tokens.cache)
        for attention in self.attentions:
            if attention.has_keys:
                tokens.room(attention.store[0], tokens.store(attention.store)[1])
        read = [attention.store[0] for attention in self.attentions]
        new = np.array([addresses(tokens.new[layer]) for layer in read], np.int64)
        put = [a.has_keys and tokens.slot(a.store[0]) >= 0 for a in self.attentions]
        self.run(tokens.x, tokens.position, given, new, np.array(put), tokens.workers)
        for attention, done in zip(self.attentions, put, strict=True):
            if attention.has_keys and not done:
                tokens.hold_back(attention.store[0])


class Several:
    """A model for some tokens of one sequence: `halves` are its own for one token, in runs, `plain`
    is the same model in torch, for what has no loops."""

    def __init__(
        self, embed: Any, halves: Sequence[Any], head: Any, plain: Transformer, work: Workspace
    ) -> None:  # fmt: skip
        self.plain, self.work = plain, work
        self.embed = embed if isinstance(embed, Embedding) else None
        self.head = head if head_in_numbers(head) else None
        self.project = work.choose(project_several)
        in_torch = [half for block in plain.layers for half in parts_of(block)]
        self.halves: list[Callable[..., None]] = []
        known: set[int] = set()  # the layers whose new keys loops make
        for one in halves:
            n = 2 * len(one.layers) if isinstance(one, RUNS) else 1
            made, read = keys_of(one)
            few = several_of(one, work) if read <= known else None  # torch reads what torch makes
            known |= made if few else set()
            self.halves += [few] if few else in_torch[:n]
            del in_torch[:n]
        self.in_loops = any(
            isinstance(half, (SeveralRun, SeveralAttention, SeveralMLP)) for half in self.halves
        )

    def __call__(
        self, tokens: torch.Tensor, span: Span, cache: Cache, at: int | None
    ) -> torch.Tensor:
        """Logits fp32 of some tokens [1, T], [T, V], or [1, V] of one of them; the cache waits for
        its commit."""
        passing = Tokens(self._streams(tokens, span), span, cache, self.work)
        for half in self.halves:
            half(passing)
        found: torch.Tensor
        x = passing.x if at is None else passing.x[at : at + 1]  # [T, D] or [1, D]
        if self.head is None:
            hidden = torch.from_numpy(x).to(self.work.model.embed_tokens.weight.dtype)
            found = self.plain.logits(self.plain.norm(hidden[None]))[0].float()
            return found
        *given, _ = self.head.given  # but for its scratch
        logits = np.empty((len(x), self.head.V), np.float32)
        self.project(x, *given, logits, passing.workers)
        found = self.head.capped(torch.from_numpy(logits))
        return found

    def _streams(self, tokens: torch.Tensor, span: Span) -> Array:
        """Where the streams begin, fp32 [T, D]. ValueError for a token that is none."""
        if self.embed is not None:
            return self.embed.several(tokens, span)
        found: Array = self.plain.embed(tokens, span.positions)[0].float().numpy().copy()
        return found


def without_loops(embed: Any, halves: Sequence[Any], head: Any) -> bool:
    """Whether anything of a model runs in torch where several tokens come."""
    ends = isinstance(embed, Embedding) and head_in_numbers(head)
    return not (ends and all(map(in_numbers, halves)))


def head_in_numbers(head: Any) -> bool:
    """Whether a head is in loops that read plain numbers."""
    return isinstance(head, Head) and head.loops is NUMBERS


def in_numbers(one: Any) -> bool:
    """Whether a half, or a run, of one token has loops for several: those that read plain
    numbers."""
    if isinstance(one, Attention):
        return {one.project.loops, one.output.reads} == {NUMBERS}
    if isinstance(one, MLP):
        return {one.activate.loops, one.down.reads} == {NUMBERS}
    return isinstance(one, Run)


def keys_of(one: Any) -> tuple[set[int], set[int]]:
    """The layers whose keys a half, or a run, of one token makes, and those whose keys it reads and
    does not make."""
    made: set[int] = set()
    read: set[int] = set()
    halves = [n.mixer for n in one.layers] if isinstance(one, Run) else [one]
    for half in halves:
        if isinstance(half, Attention):
            (made if half.has_keys else read).add(half.store[0])
    return made, read - made


def several_of(one: Any, work: Workspace) -> Callable[[Tokens], None] | None:
    """The same for several tokens; None where it has no loops for these."""
    kinds = {Run: SeveralRun, Attention: SeveralAttention, MLP: SeveralMLP}
    return kinds[type(one)](one, work) if in_numbers(one) else None


def parts_of(block: Any) -> list[Any]:
    """The halves of a block in torch, or the block itself, where a step of one token has halves and
    where it has none."""
    try:
        check_kind(block, Block)
    except NoKernel:
        return [PlainBlock(block)]
    return [*halves_of(block)]
