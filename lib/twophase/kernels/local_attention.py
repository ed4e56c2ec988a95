"""Sliding-window attention: a query sees the last `window` keys, its own included, and a cache that
forgets the rest.

The attention itself is `causal_attention(q, k, v, window=window)`. Here is its cache: a ring. The
token at position p goes to slot p mod window, where it overwrites the token that has just left the
window, so that memory and the bytes a decode step reads stop growing once `window` tokens were seen
(Beltagy et al., 2020, arXiv 2004.05150, section 3.1; Jiang et al., 2023, arXiv 2310.06825, section
2, "rolling buffer cache").

What left the window is not lost to the model. A key at layer 2 was computed from the output of
layer 1, and that had seen `window − 1` tokens further back; so each layer adds `window − 1` to the
reach. After L layers the output depends on the last L·(window − 1) + 1 tokens, the receptive field.
It says what can be reached, not what is: what comes from far had to pass through every layer
between.

A ring that has gone round can give back its last token and no more: the window of an earlier query
reaches further back, to tokens that were overwritten. To roll back r rejected drafts at once would
take window + r − 1 slots.
"""

import torch

from twophase.kernels.kv_cache import check_block


class RingKVCache:
    """One layer's last `window` keys and values, for B sequences of one common length.

    `append(k, v)` stores the T new tokens, k and v [B, T, K, H], and returns the keys and values,
    [B, S, K, H], that `causal_attention(q, keys, values, window=window)` needs for their T queries:

    - T = 1: the ring itself, a view. Its order is not that of the text, and need not be: there is
      one query, it sees every key, and a key carries its position in it (RoPE).
    - T > 1: the `window − 1` tokens before the block, in order, then the block: S = T + window − 1
      at most. A copy, since early queries of the block need keys that its late tokens overwrite. T
      may exceed the window.
    """

    def __init__(
        self,
        B: int,
        window: int,
        K: int,
        H: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        if min(B, window, K, H) < 1:
            raise ValueError(
                f"a ring cache needs B, window, K and H of at least 1; got {B}, {window}, {K}, {H}."
            )
        self.keys = torch.zeros(B, window, K, H, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)
        self._seen = 0
        self._overwritten = 0  # tokens before this position are gone

    @property
    def window(self) -> int:
        """Tokens that the ring holds at most."""
        return self.keys.shape[1]

    @property
    def length(self) -> int:
        """Tokens seen so far, of which the last `window` are held."""
        return self._seen

    @property
    def nbytes(self) -> int:
        """Bytes taken, filled or not: `2·B·window·K·H` times the bytes of one number."""
        return 2 * self.keys.numel() * self.keys.element_size()

    def append(self, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Store k and v [B, T, K, H] after what was seen; return what their queries may see, [B, S,
        K, H] each."""
        check_block(self.keys[None], k, v)
        before = (
            None if k.shape[1] == 1 else (self._block(self.keys, k), self._block(self.values, v))
        )
        self._write(self.keys, k)
        self._write(self.values, v)
        self._seen += k.shape[1]
        self._overwritten = max(self._overwritten, self._seen - self.window)
        return before or (self.keys[:, : self._seen], self.values[:, : self._seen])

    def _write(self, ring: torch.Tensor, new: torch.Tensor) -> None:
        """Put the last of the new tokens [B, T, K, H] into their slots, going round the end of the
        ring."""
        kept = new[:, -self.window :]  # [B, at most window, K, H]
        first = (self._seen + new.shape[1] - kept.shape[1]) % self.window
        fits = min(self.window - first, kept.shape[1])
        ring[:, first : first + fits] = kept[:, :fits]
        ring[:, : kept.shape[1] - fits] = kept[:, fits:]

    def _block(self, ring: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """The last `window − 1` tokens of the ring in the order of the text, then the new ones: [B,
        S, K, H]."""
        held = min(self._seen, self.window - 1)
        first, last = (self._seen - held) % self.window, self._seen % self.window
        parts = [ring[:, first:last]] if first <= last else [ring[:, first:], ring[:, :last]]
        return torch.cat([*parts, new.to(ring.dtype)], dim=1)  # [B, held + T, K, H]

    def check_truncate(self, length: int) -> None:
        """Raise ValueError, and change nothing, if `truncate(length)` would."""
        if not 0 <= length <= self._seen:
            raise ValueError(
                f"the cache has seen {self._seen} tokens and cannot be cut to {length}."
            )
        first = max(0, length - self.window + 1)  # the first of those that the next query must see
        if first < min(length, self._overwritten):
            raise ValueError(
                f"a window of {self.window} cannot be cut to {length} tokens: the next query needs"
                f" those from position {first} on, but all before {self._overwritten} were"
                " overwritten; compute the sequence again."
            )

    def truncate(self, length: int) -> None:
        """Forget every token from position `length` on; ValueError if the window before it was
        overwritten."""
        self.check_truncate(length)
        self._seen = length
        if length == 0:
            self._overwritten = 0
