"""The KV cache: keys and values of every token so far, so that a decode step computes one token and
reads the rest.

Here is the store of one layer. It takes its memory once, `2·B·S_max·K·H` numbers, and fills it from
the left; its owner (`models.cache`) says where, with a `Span` for each pass.
"""

from collections.abc import Sequence
from typing import Any

import torch

from twophase.kernels.attention import causal_attention
from twophase.kernels.attention_inputs import check_tensors
from twophase.kernels.span import Span
from twophase.kernels.store import Store


class SlotStore(Store):
    """Two tensors [B, S_max, ...] that hold the token at position p in slot p."""

    unlimited = True

    def write(self, first: torch.Tensor, second: torch.Tensor, span: Span) -> None:
        """Put the tokens of a span, [B, T, ...], into their slots.

        Raises ValueError, before a number is written, if they do not fit.
        """
        self.check_block(first, second, span)
        check_room(span, self.held[0].shape[1])
        put(self.held[0], first, span)
        put(self.held[1], second, span)

    def check_block(self, first: torch.Tensor, second: torch.Tensor, span: Span) -> None:
        """ValueError unless the new tokens are as wide and as many as those held."""
        fits = [[held.shape[0], span.T, *held.shape[2:]] for held in self.held]
        check_tensors("the cache", first, second, self.held[0])
        if [list(first.shape), list(second.shape)] != fits:
            raise ValueError(
                f"the cache takes blocks of {fits[0]} and {fits[1]}; got {list(first.shape)} and"
                f" {list(second.shape)}."
            )

    def move(self, span: Span, paths: Sequence[Sequence[int]]) -> None:
        """Put the tokens `paths[b]` of a tree one after the other, so that they can stay."""
        for held in self.held:
            for b, (start, path) in enumerate(zip(span.starts, paths, strict=True)):
                held[b, start : start + len(path)] = held[b, [start + t for t in path]]

    def take_back(self, gone: Span) -> None:
        """Write zeros over these tokens."""
        rows, _, slots = gone.index  # [n] each
        for held in self.held:
            held[rows, slots] = 0


class KVCache(SlotStore):
    """One layer's keys and values [B, S_max, K, H].

    `write` puts the tokens of a span into their slots; `attend` reads all that their sequences
    hold, as views, never copies. A store of another dtype than the queries' is converted as it is
    read.
    """

    def __init__(
        self,
        B: int,
        S_max: int,
        K: int,
        H: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(B, (S_max, K, H), (S_max, K, H), dtype=dtype, device=device)
        self.keys, self.values = self.held

    def attend(
        self,
        q: torch.Tensor,
        span: Span,
        *,
        window: int | None = None,
        softcap: float | None = None,
        scale: float | None = None,
    ) -> torch.Tensor:
        """What the queries q [B, T, N, H] of a span that was written find.

        Returns [B, T, N, H]; options as in `causal_attention`. ValueError
        unless each token of the span has a query.
        """
        check_queries(span, q)
        keys, values, mask = self.found(span, window)
        keys, values = keys.to(q.dtype), values.to(q.dtype)  # [B, S, K, H]
        window = window if mask is None else None
        return causal_attention(
            q, keys, values, mask=mask, window=window, softcap=softcap, scale=scale
        )

    def slot(self, span: Span) -> int:
        """Where the one new token of one sequence goes, for somebody else to write it."""
        return span.starts[0]

    def found(
        self, span: Span, window: int | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Keys and values [B, S, K, H] with all that the queries may see.

        And which they see, [B, T, S]; None: the queries are the last of the keys.
        """
        S = span.end
        return self.keys[:, :S], self.values[:, :S], span.mask_of_all(window)


def check_queries(span: Any, *queries: torch.Tensor) -> None:
    """Raise ValueError unless they are tensors [B, T, N, ...] with a place for each token of the
    span: queries are taken for its tokens one by one."""
    fits = (span.B, span.T)
    if not all(isinstance(q, torch.Tensor) and q.shape[:2] == fits for q in queries):
        got = ", ".join(str(list(getattr(q, "shape", [type(q).__name__]))) for q in queries)
        raise ValueError(
            f"a pass of {list(fits)} tokens has queries {list(fits)} + ...; got {got}."
        )


def put(held: torch.Tensor, new: torch.Tensor, span: Span) -> None:
    """Write new tokens [B, T, ...] into their slots of held [B, S_max, ...]."""
    if span.even:
        start = span.starts[0]
        held[:, start : start + span.T] = new
    else:
        rows, tokens, slots = span.index  # [n] each
        held[rows, slots] = new[rows, tokens].to(held.dtype)


def check_room(span: Span, S_max: int) -> None:
    """Raise ValueError if a sequence of the span would be longer than S_max tokens."""
    if span.end <= S_max:
        return
    for b, (start, n) in enumerate(zip(span.starts, span.n_new, strict=True)):
        if start + n > S_max:
            raise ValueError(
                f"the cache has room for {S_max} tokens a sequence, and sequence {b} holds {start}:"
                f" {n} more do not fit; take a larger S_max."
            )
