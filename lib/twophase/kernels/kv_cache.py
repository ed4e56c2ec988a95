"""The KV cache: keys and values of every token so far, so that a decode step computes one token and
reads the rest.

Here is the store of one layer. It takes its memory once, `2·B·S_max·K·H` numbers, and fills it from
the left. It does not know how many tokens it holds: that is its owner's to say (`models.cache`),
with a `Span` for each pass. So a pass that is broken off changes nothing: what it wrote lies behind
the end, and the next pass writes over it.
"""

from collections.abc import Sequence

import torch

from twophase.kernels.attention import causal_attention
from twophase.kernels.span import Span


class KVCache:
    """One layer's keys and values [B, S_max, K, H]: the token at position p lies in slot p.

    `write` puts the tokens of a span into their slots; `attend` reads all that their sequences
    hold, as views, never copies. A store of another dtype than the queries' is converted as it is
    read.
    """

    unlimited = True  # any number of tokens can be taken back: nothing was overwritten

    def __init__(
        self,
        B: int,
        S_max: int,
        K: int,
        H: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        if min(B, S_max, K, H) < 1:
            raise ValueError(
                f"a cache needs B, S_max, K and H of at least 1; got {B}, {S_max}, {K}, {H}."
            )
        self.keys = torch.zeros(B, S_max, K, H, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)

    @property
    def nbytes(self) -> int:
        """Bytes taken, filled or not: `2·B·S_max·K·H` times the bytes of one number."""
        return 2 * self.keys.numel() * self.keys.element_size()

    def write(self, k: torch.Tensor, v: torch.Tensor, span: Span) -> None:
        """Store k and v [B, T, K, H].

        Raises ValueError, before a number is written, if they do not fit.
        """
        check_block(self.keys, k, v)
        check_room(span, self.keys.shape[1])
        put(self.keys, k, span)
        put(self.values, v, span)

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

        Returns [B, T, N, H]; options as in `causal_attention`.
        """
        keys = self.keys[:, : span.end].to(q.dtype)  # [B, S, K, H]
        values = self.values[:, : span.end].to(q.dtype)  # [B, S, K, H]
        mask = span.mask_of_all(window)  # [B, T, S]
        window = window if mask is None else None
        return causal_attention(
            q, keys, values, mask=mask, window=window, softcap=softcap, scale=scale
        )

    def move(self, span: Span, paths: Sequence[Sequence[int]]) -> None:
        """Put the tokens `paths[b]` of a tree one after the other, so that they can stay."""
        for held in (self.keys, self.values):
            move(held, span, paths)

    def commit(self, span: Span, kept: Sequence[int]) -> None:
        """Nothing: what is kept lies where it belongs, what is not lies behind the end."""

    def take_back(self, counts: Sequence[int]) -> None:
        """Nothing: what lies behind the end is not seen."""

    def clear(self, row: int) -> None:
        """Forget one sequence. What is not seen is weighted with 0, and 0·NaN is NaN: one that went
        wrong must leave nothing to the next in its row."""
        for held in (self.keys, self.values):
            held[row] = 0

    def copy_row(self, source: int, target: int) -> None:
        """Make one sequence a copy of another."""
        for held in (self.keys, self.values):
            held[target] = held[source]

    def fill_with_noise(self) -> None:
        """Normal numbers everywhere: for measuring, where the numbers do not matter."""
        self.keys.normal_()
        self.values.normal_()


def put(held: torch.Tensor, new: torch.Tensor, span: Span) -> None:
    """Write new tokens [B, T, ...] into their slots of held [B, S_max, ...]."""
    if span.even:
        start = span.starts[0]
        held[:, start : start + span.T] = new
    else:
        rows, tokens, slots = span.index  # [n] each
        held[rows, slots] = new[rows, tokens].to(held.dtype)


def move(held: torch.Tensor, span: Span, paths: Sequence[Sequence[int]]) -> None:
    """In held [B, S_max, ...], put the new tokens `paths[b]` of each sequence one after the
    other."""
    for b, (start, path) in enumerate(zip(span.starts, paths, strict=True)):
        if path:
            chosen = start + torch.tensor(path, device=held.device)  # [n]
            held[b, start : start + len(path)] = held[b, chosen]


def check_room(span: Span, S_max: int) -> None:
    """Raise ValueError if a sequence of the span would be longer than S_max tokens."""
    for b, (start, n) in enumerate(zip(span.starts, span.n_new, strict=True)):
        if start + n > S_max:
            raise ValueError(
                f"the cache has room for {S_max} tokens a sequence, and sequence {b} holds {start}:"
                f" {n} more do not fit; take a larger S_max."
            )


def check_block(held: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Raise ValueError unless k and v are [B, T, K, H] with the B, K and H of held [B, slots, K,
    H]."""
    B, _, K, H = held.shape
    if k.shape != v.shape or k.ndim != 4 or (k.shape[0], k.shape[2], k.shape[3]) != (B, K, H):
        raise ValueError(
            f"the cache takes k and v of [{B}, T, {K}, {H}]; got {list(k.shape)} and"
            f" {list(v.shape)}."
        )
