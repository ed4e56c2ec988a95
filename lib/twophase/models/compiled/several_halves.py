"""Halves of a block, and runs of layers, for a few tokens of one sequence: made of those for one
token, with the same arrays and a row for each token."""

from collections.abc import Callable
from typing import Any

import numpy as np

from twophase.kernels.compiled.addresses import addresses
from twophase.kernels.compiled.several import (
    activate_several,
    add_norm_several,
    add_several,
    project_several,
)
from twophase.kernels.compiled.several_attention import turn_attend_several
from twophase.kernels.compiled.several_layers import run_layers_several
from twophase.kernels.compiled.several_state_layers import (
    run_linear_layers_several,
    run_state_space_layers_several,
)
from twophase.kernels.compiled.state_layers import LinearRun
from twophase.models.compiled.halves import MLP, Attention
from twophase.models.compiled.products import NUMBERS, Output
from twophase.models.compiled.run import Run
from twophase.models.compiled.state_run import StateRun
from twophase.models.compiled.token import Workspace
from twophase.models.compiled.tokens import Tokens

Array = np.ndarray


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


class SeveralStateRun:
    """`state_run.StateRun` for some tokens."""

    def __init__(self, one: StateRun, work: Workspace) -> None:
        linear = one.kind is LinearRun
        loop = run_linear_layers_several if linear else run_state_space_layers_several
        self.one, self.work, self.run = one, work, work.choose(loop)

    def __call__(self, tokens: Tokens) -> None:
        """Take the streams through all of its layers."""
        one, kind = self.one, self.one.mixer.kind
        self.work.rope_tables(kind, tokens.span.end - 1)  # for the last of them, too
        rope = self.work.rope_of_kinds((kind,), tokens.position)
        held = [tokens.state(n.mixer.layer, *n.mixer.shapes) for n in one.layers]
        rows = [[x.data_ptr() for after in s.steps(tokens.span) for x in after] for s in held]
        run = one.kind(rope, np.array(rows, np.int64), *one.arrays)
        self.run(tokens.x, tokens.position, run, tokens.workers)


# What a half, or a run, of one token is for several.
OF_SEVERAL: dict[type, Any] = {
    Attention: SeveralAttention,
    MLP: SeveralMLP,
    Run: SeveralRun,
    StateRun: SeveralStateRun,
}


def in_numbers(one: Any) -> bool:
    """Whether a half, or a run, of one token has loops for several: those that read plain
    numbers."""
    if isinstance(one, Attention):
        return {one.project.loops, one.output.reads} == {NUMBERS}
    if isinstance(one, MLP):
        return {one.activate.loops, one.down.reads} == {NUMBERS}
    return isinstance(one, Run | StateRun)


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
    return OF_SEVERAL[type(one)](one, work) if in_numbers(one) else None
