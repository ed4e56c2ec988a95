"""Sliding-window attention: a query sees the last `window` keys, its own included, and a store that
forgets the rest.

The attention itself is `causal_attention(q, k, v, window=window)`. Here is its store: a ring. The
token at position p goes to slot p mod the ring's size, so that memory and the bytes a decode step
reads stop growing once the ring is full (Beltagy et al., 2020, arXiv 2004.05150, section 3.1; Jiang
et al., 2023, arXiv 2310.06825, section 2, "rolling buffer cache").

What left the window is not lost to the model. A key at layer 2 was computed from the output of
layer 1, and that had seen `window − 1` tokens further back; so each layer adds `window − 1` to the
reach. After L layers the output depends on the last L·(window − 1) + 1 tokens, the receptive field.
It says what can be reached, not what is: what comes from far had to pass through every layer
between.

A ring of `window` slots cannot take a token back: what it overwrote is needed again. With r slots
more it can take back r, whenever that is (to reject r drafted tokens, say).
"""

from collections.abc import Sequence
from typing import Any

import torch

from twophase.kernels.kv_cache import KVCache
from twophase.kernels.span import Span


class RingKVCache(KVCache):
    """One layer's last `window` keys and values, [B, slots, K, H], with `spare` slots more.

    A lone token is written at once, over one that every window has left. A block is held back until
    it is committed: its early queries need keys that its late tokens overwrite, and a pass that is
    broken off must not have overwritten anything.
    """

    unlimited = False

    def __init__(
        self,
        B: int,
        window: int,
        K: int,
        H: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        *,
        spare: int = 0,
    ) -> None:
        if window < 1 or spare < 0:
            raise ValueError(
                f"a ring needs a window of at least 1 and spare of at least 0; got {window} and"
                f" {spare}."
            )
        super().__init__(B, window + spare, K, H, dtype, device)
        self.window = window
        self._block: tuple[torch.Tensor, torch.Tensor] | None = None  # written, not committed
        self._span: Span | None = None  # of what was written last

    @property
    def slots(self) -> int:
        """Tokens that the ring holds at most."""
        return self.keys.shape[1]

    def write(self, first: torch.Tensor, second: torch.Tensor, span: Span) -> None:
        """Take k and v [B, T, K, H]. ValueError, before a number is written, if they do not fit."""
        self.check_block(first, second, span)
        self._block, self._span = None, span
        if span.T == 1:
            self._put(first, second, span, span.n_new)
        else:
            self._block = first.to(self.keys.dtype), second.to(self.values.dtype)

    def attend(
        self, q: torch.Tensor, span: Span, *, window: int | None = None, **options: Any
    ) -> torch.Tensor:
        """What the queries q [B, T, N, H] of a span that was written find in their windows: [B, T,
        N, H]. ValueError for another window than the ring's."""
        if window not in (None, self.window):
            raise ValueError(f"this ring is for windows of {self.window} tokens, not of {window}.")
        return super().attend(q, span, window=self.window, **options)

    def slot(self, span: Span) -> int:
        """As in `KVCache`; it lies over a token that every window has left."""
        self._block, self._span = None, span
        return span.starts[0] % self.slots

    def found(
        self, span: Span, window: int | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """As in `KVCache`.

        - T = 1: the ring itself, a view. Its order is not that of the text, and need not be: a key
          carries its position in it (RoPE).
        - T > 1: the `window − 1` tokens before the block, in order, then the block: a copy.
        """
        if self._block is None:
            keys, values = self.keys[:, : span.end], self.values[:, : span.end]
            if span.even and self.slots <= self.window:
                return keys, values, None
            counts = torch.tensor(span.n_new, device=span.device)  # [B], 0 or 1
            slots = self._positions(span.first + counts, keys.shape[1])  # [B, S]
            return keys, values, span.mask(slots, self.window)
        if span.even and span.tree is None:
            start = span.starts[0]
            parts = zip(self.held, self._block, strict=True)
            keys, values = (torch.cat([*self._tail(ring, start), new], 1) for ring, new in parts)
            return keys, values, None
        before = self._positions(span.first, self.slots)  # [B, slots]
        block = span.first[:, None] + torch.arange(span.T, device=span.device)  # [B, T]
        mask = span.mask(torch.cat([before.clamp(min=-1), block], dim=1), self.window)  # [B, T, S]
        unseen = ~mask.any(1)[..., None, None]  # [B, S, 1, 1]; weighted with 0, and 0·NaN is NaN
        keys, values = (
            torch.cat([ring, new], dim=1).masked_fill_(unseen, 0)  # [B, slots + T, K, H]
            for ring, new in zip(self.held, self._block, strict=True)
        )
        return keys, values, mask

    def _positions(self, lengths: torch.Tensor, n: int) -> torch.Tensor:
        """Where in the text the tokens in the first n slots stand, in a ring
        of sequences of these lengths [B]: int64 [B, n]; below 0 where there is
        none."""
        last = lengths[:, None] - 1  # [B, 1]
        slots = torch.arange(n, device=lengths.device)  # [n]
        return last - (last - slots).remainder(self.slots)  # [B, n]

    def _tail(self, ring: torch.Tensor, length: int) -> list[torch.Tensor]:
        """The last `window − 1` of `length` tokens in the order of the text,
        in one part or two."""
        held = min(length, self.window - 1)
        first, last = (length - held) % self.slots, length % self.slots
        if held == 0:
            return []
        if first < last:
            return [ring[:, first:last]]
        return [ring[:, first:], ring[:, :last]]

    def move(self, span: Span, paths: Sequence[Sequence[int]]) -> None:
        """Put the tokens `paths[b]` of a tree one after the other, so that they can stay."""
        for held in self._block or ():
            for b, path in enumerate(paths):
                held[b, : len(path)] = held[b, list(path)]

    def commit(self, span: Span, kept: Sequence[int]) -> None:
        """Write the first `kept[b]` tokens of a block that was held back."""
        if self._block is not None and self._span is span:
            self._put(*self._block, span, kept)
        self._block = self._span = None

    def _put(self, k: torch.Tensor, v: torch.Tensor, span: Span, kept: Sequence[int]) -> None:
        """Write the first `kept[b]` of the tokens k and v [B, T, K, H], or as many of their last as
        there are slots."""
        if span.even and len(set(kept)) == 1:
            end = span.starts[0] + kept[0]
            n = min(kept[0], self.slots)
            first, fits = (end - n) % self.slots, min(n, self.slots - (end - n) % self.slots)
            for ring, new in zip(self.held, (k, v), strict=True):
                last = new[:, kept[0] - n : kept[0]]  # [B, n, K, H]
                ring[:, first : first + fits] = last[:, :fits]
                ring[:, : n - fits] = last[:, fits:]
            return
        whose = [b for b, n in enumerate(kept) for _ in range(min(n, self.slots))]
        which = [t for n in kept for t in range(max(0, n - self.slots), n)]
        slots = [(span.starts[b] + t) % self.slots for b, t in zip(whose, which, strict=True)]
        rows, tokens, where = torch.tensor([whose, which, slots], device=k.device).long()
        for ring, new in zip(self.held, (k, v), strict=True):
            ring[rows, where] = new[rows, tokens].to(ring.dtype)

    def take_back(self, gone: Span) -> None:
        """Write zeros over these tokens, and over a lone one behind them that did not stay: the
        windows of earlier queries need only the others."""
        more = tuple(n + 1 if n else 0 for n in gone.n_new)
        rows, _, slots = Span(gone.starts, more, gone.T + 1, gone.device).index  # [n] each
        for ring in self.held:
            ring[rows, slots % self.slots] = 0
