"""A pass of a few tokens of one sequence in compiled loops: what a verification of drafted tokens
is, and a short prompt.

Its halves are those of a step of one token, with a row for each token (`several_halves`). Latents,
experts and quantized layers have no such loops, and run in torch, on all tokens at once (the
products of codes in `quantized_tokens`): `CompiledTransformer.plain` does not name them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from twophase.kernels.compiled.several import project_several
from twophase.kernels.span import Span
from twophase.models.cache import Cache
from twophase.models.compiled.ends import Embedding, Head
from twophase.models.compiled.make import RUNS
from twophase.models.compiled.plain import PlainBlock, halves_of
from twophase.models.compiled.products import NUMBERS
from twophase.models.compiled.several_halves import OF_SEVERAL, in_numbers, keys_of, several_of
from twophase.models.compiled.token import Workspace
from twophase.models.compiled.tokens import Tokens
from twophase.models.compiled.weights import NoKernel, check_kind
from twophase.models.transformer import Block, Transformer

Array = np.ndarray


class Several:
    """A model for some tokens of one sequence: `halves` are its own for one token, in runs; `plain`
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
        self.in_loops = any(type(half) in OF_SEVERAL.values() for half in self.halves)

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


def parts_of(block: Any) -> list[Any]:
    """The halves of a block in torch, or the block itself, where a step of one token has halves and
    where it has none."""
    try:
        check_kind(block, Block)
    except NoKernel:
        return [PlainBlock(block)]
    return [*halves_of(block)]
