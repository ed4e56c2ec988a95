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

import torch

from twophase.kernels.attention import causal_attention
from twophase.kernels.kv_cache import check_block
from twophase.kernels.span import Span


class RingKVCache:
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
        if min(B, window, K, H) < 1 or spare < 0:
            raise ValueError(
                "a ring cache needs B, window, K and H of at least 1 and spare of at least 0; got"
                f" {B}, {window}, {K}, {H}, {spare}."
            )
        self.window = window
        self.keys = torch.zeros(B, window + spare, K, H, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)
        self._block: tuple[torch.Tensor, torch.Tensor] | None = None  # written, not committed

    @property
    def slots(self) -> int:
        """Tokens that the ring holds at most."""
        return self.keys.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes taken, filled or not: `2·B·(window + spare)·K·H` times those of one number."""
        return 2 * self.keys.numel() * self.keys.element_size()

    def write(self, k: torch.Tensor, v: torch.Tensor, span: Span) -> None:
        """Take k and v [B, T, K, H]. ValueError, before a number is written, if they do not fit."""
        check_block(self.keys, k, v)
        self._block = None
        if span.T == 1:
            self._put(k, v, span, span.n_new)
        else:
            self._block = k.to(self.keys.dtype), v.to(self.values.dtype)

    def attend(
        self,
        q: torch.Tensor,
        span: Span,
        *,
        window: int | None = None,
        softcap: float | None = None,
        scale: float | None = None,
    ) -> torch.Tensor:
        """What the queries q [B, T, N, H] of a span that was written find in their windows: [B, T,
        N, H]. ValueError for another window than the ring's."""
        if window is not None and window < self.window:
            raise ValueError(f"this ring is for windows of {self.window} tokens, not of {window}.")
        slots, keys, values = self._found(span)
        mask = None
        if slots is not None:
            mask = span.mask(slots, self.window)  # [B, T, S]
        return causal_attention(
            q,
            keys.to(q.dtype),
            values.to(q.dtype),
            mask=mask,
            window=None if mask is not None or span.T == 1 else self.window,
            softcap=softcap,
            scale=scale,
        )

    def _found(self, span: Span) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
        """Keys and values [B, S, K, H] that hold what the queries may see, and the slot in the text
        of each, [B, S]; None in place of these if the queries are the last of the keys.

        - T = 1: the ring itself, a view. Its order is not that of the text, and need not be: a key
          carries its position in it (RoPE).
        - T > 1: the `window − 1` tokens before the block, in order, then the block: a copy.
        """
        if self._block is None:
            keys, values = self.keys[:, : span.end], self.values[:, : span.end]
            if span.even and self.slots <= self.window:
                return None, keys, values
            return self._positions(span, keys.shape[1]), keys, values
        if span.even and span.tree is None:
            keys, values = (
                torch.cat([*self._tail(ring, span.starts[0]), new], dim=1)  # [B, held + T, K, H]
                for ring, new in zip((self.keys, self.values), self._block, strict=True)
            )
            return None, keys, values
        before = span.first[:, None] - torch.arange(self.window - 1, 0, -1, device=span.device)
        rows = torch.arange(span.B, device=span.device)[:, None]  # [B, 1]
        where = before.remainder(self.slots)  # [B, window − 1]
        block = span.first[:, None] + torch.arange(span.T, device=span.device)  # [B, T]
        keys, values = (
            torch.cat([ring[rows, where], new], dim=1)  # [B, window − 1 + T, K, H]
            for ring, new in zip((self.keys, self.values), self._block, strict=True)
        )
        return torch.cat([before.clamp(min=-1), block], dim=1), keys, values

    def _positions(self, span: Span, n: int) -> torch.Tensor:
        """Where in the text the tokens in the first n slots stand, once a lone token was written:
        int64 [B, n]; below 0 where there is none."""
        counts = torch.tensor(span.n_new, device=span.device)  # [B], 0 or 1
        last = (span.first + counts - 1)[:, None]  # [B, 1]
        return last - (last - torch.arange(n, device=span.device)).remainder(self.slots)

    def _tail(self, ring: torch.Tensor, length: int) -> list[torch.Tensor]:
        """The last `window − 1` of `length` tokens in the order of the text, in one part or two."""
        held = min(length, self.window - 1)
        first, last = (length - held) % self.slots, length % self.slots
        if held == 0:
            return []
        return [ring[:, first:last]] if first < last else [ring[:, first:], ring[:, :last]]

    def move(self, span: Span, paths: Sequence[Sequence[int]]) -> None:
        """Put the tokens `paths[b]` of a tree one after the other, so that they can stay."""
        for held in self._block or ():
            for b, path in enumerate(paths):
                held[b, : len(path)] = held[b, list(path)]

    def commit(self, span: Span, kept: Sequence[int]) -> None:
        """Write the first `kept[b]` tokens of a block that was held back."""
        if self._block is not None:
            self._put(*self._block, span, kept)
            self._block = None

    def _put(self, k: torch.Tensor, v: torch.Tensor, span: Span, kept: Sequence[int]) -> None:
        """Write the first `kept[b]` of the tokens k and v [B, T, K, H], or as many of their last as
        there are slots."""
        if span.even and len(set(kept)) == 1:
            end = span.starts[0] + kept[0]
            n = min(kept[0], self.slots)
            first, fits = (end - n) % self.slots, min(n, self.slots - (end - n) % self.slots)
            for ring, new in ((self.keys, k), (self.values, v)):
                last = new[:, kept[0] - n : kept[0]]  # [B, n, K, H]
                ring[:, first : first + fits] = last[:, :fits]
                ring[:, : n - fits] = last[:, fits:]
            return
        whose = [b for b, n in enumerate(kept) for _ in range(min(n, self.slots))]
        which = [t for n in kept for t in range(max(0, n - self.slots), n)]
        slots = [(span.starts[b] + t) % self.slots for b, t in zip(whose, which, strict=True)]
        rows, tokens, where = torch.tensor([whose, which, slots], device=k.device).long()
        self.keys[rows, where] = k[rows, tokens].to(self.keys.dtype)
        self.values[rows, where] = v[rows, tokens].to(self.values.dtype)

    def take_back(self, counts: Sequence[int]) -> None:
        """Nothing: the spare slots hold what the windows of earlier queries need."""

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
