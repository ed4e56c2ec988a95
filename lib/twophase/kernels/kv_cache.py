"""The KV cache: keys and values of every token so far, so that a decode step computes one token and
reads the rest.

Memory is taken once, `2·L·B·S_max·K·H` numbers, and filled from the left. `append` returns views of
the filled part, never copies.
"""

import torch


class KVCache:
    """A cache for B sequences of one common length.

    `append(layer, k, v)` takes the T new tokens of one layer, k and v [B, T, K, H], and returns
    that layer's keys and values so far, two views [B, S, K, H]. Every layer keeps its own length,
    so a forward pass may append layer after layer; `length` is the number of tokens that all layers
    hold. Overflow raises ValueError before a single number is written.
    """

    def __init__(
        self,
        L: int,
        B: int,
        S_max: int,
        K: int,
        H: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        if min(L, B, S_max, K, H) < 1:
            raise ValueError(
                f"a cache needs L, B, S_max, K and H of at least 1; got {L}, {B}, {S_max}, {K},"
                f" {H}."
            )
        self.keys = torch.zeros(L, B, S_max, K, H, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)
        self._filled = [0] * L

    @property
    def S_max(self) -> int:
        """Room per sequence, in tokens."""
        return self.keys.shape[2]

    @property
    def length(self) -> int:
        """Tokens that every layer holds."""
        return min(self._filled)

    @property
    def nbytes(self) -> int:
        """Bytes taken, filled or not: `2·L·B·S_max·K·H` times the bytes of one number."""
        return 2 * self.keys.numel() * self.keys.element_size()

    def append(
        self, layer: int, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store k and v [B, T, K, H] after what the layer holds; return all of it as two views [B,
        S, K, H]."""
        start = self._filled[layer]
        end = start + k.shape[1]
        check_block(self.keys, k, v)
        if end > self.S_max:
            raise ValueError(
                f"the cache has room for {self.S_max} tokens and holds {start}: {k.shape[1]} more"
                " do not fit."
            )
        self.keys[layer, :, start:end] = k
        self.values[layer, :, start:end] = v
        self._filled[layer] = end
        return self.keys[layer, :, :end], self.values[layer, :, :end]

    def truncate(self, length: int) -> None:
        """Forget every token from position `length` on, in all layers (to roll back rejected
        drafts, or start anew)."""
        if not 0 <= length <= self.length:
            raise ValueError(f"the cache holds {self.length} tokens and cannot be cut to {length}.")
        self._filled = [length] * len(self._filled)


class RaggedKVCache:
    """A cache for B sequences, each with its own length.

    `append(layer, k, v, n_new)` stores the first `n_new[b]` of the T given tokens of sequence b
    after what it holds, and returns `(keys, values, starts, lengths)`: two views [B, S, K, H] with
    S the longest length, the lengths [B] before and after. Hand starts and lengths to
    `causal_attention`; it hides the rest.
    """

    def __init__(
        self,
        L: int,
        B: int,
        S_max: int,
        K: int,
        H: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        if min(L, B, S_max, K, H) < 1:
            raise ValueError(
                f"a cache needs L, B, S_max, K and H of at least 1; got {L}, {B}, {S_max}, {K},"
                f" {H}."
            )
        self.keys = torch.zeros(L, B, S_max, K, H, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)
        self._filled = torch.zeros(L, B, dtype=torch.long, device=device)

    @property
    def S_max(self) -> int:
        """Room per sequence, in tokens."""
        return self.keys.shape[2]

    @property
    def lengths(self) -> torch.Tensor:
        """Tokens of each sequence that every layer holds: int64 [B]."""
        return self._filled.amin(dim=0)

    @property
    def nbytes(self) -> int:
        """Bytes taken, filled or not: `2·L·B·S_max·K·H` times the bytes of one number."""
        return 2 * self.keys.numel() * self.keys.element_size()

    def append(
        self, layer: int, k: torch.Tensor, v: torch.Tensor, n_new: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Store `n_new[b]` (default: all T) of the tokens k, v [B, T, K, H]; see the class for what
        is returned."""
        check_block(self.keys, k, v)
        B, T = k.shape[:2]
        if n_new is None:
            n_new = torch.full((B,), T, device=k.device)
        if n_new.shape != (B,) or int(n_new.min()) < 0 or int(n_new.max()) > T:
            raise ValueError(f"n_new needs {B} counts between 0 and T = {T}; got {n_new.tolist()}.")
        starts = self._filled[layer].clone()  # [B]
        lengths = starts + n_new  # [B]
        if int(lengths.max()) > self.S_max:
            b = int(lengths.argmax())
            raise ValueError(
                f"sequence {b} holds {int(starts[b])} of {self.S_max} tokens: {int(n_new[b])} more"
                " do not fit."
            )
        token = torch.arange(T, device=k.device)
        row, t = (token < n_new[:, None]).nonzero(
            as_tuple=True
        )  # the valid tokens: which sequence, which of its T
        self.keys[layer, row, starts[row] + t] = k[row, t].to(self.keys.dtype)
        self.values[layer, row, starts[row] + t] = v[row, t].to(self.values.dtype)
        self._filled[layer] = lengths
        longest = int(lengths.max())
        return self.keys[layer, :, :longest], self.values[layer, :, :longest], starts, lengths


def check_block(cache: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Raise ValueError unless k and v are [B, T, K, H] with the cache's B, K and H; cache is [L, B,
    S_max, K, H]."""
    _, B, _, K, H = cache.shape
    if k.shape != v.shape or k.ndim != 4 or (k.shape[0], k.shape[2], k.shape[3]) != (B, K, H):
        raise ValueError(
            f"the cache takes k and v of [{B}, T, {K}, {H}]; got {list(k.shape)} and"
            f" {list(v.shape)}."
        )
