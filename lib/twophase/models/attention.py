"""Grouped-query attention as a layer, with all that its families do differently: windows, biases,
norms, shared keys."""

from dataclasses import dataclass, field

import torch
from torch import nn

from twophase.kernels.attention import causal_attention, full_attention
from twophase.kernels.kv_cache import KVCache, RaggedKVCache
from twophase.kernels.rope import apply_rope
from twophase.models.cache import LayerCaches
from twophase.models.config import Config
from twophase.models.norm import RMSNorm

Cache = KVCache | RaggedKVCache | LayerCaches
Tables = tuple[torch.Tensor, torch.Tensor]
# Keys and values [B, S, K, H]; for a ragged batch also the start and the length of each sequence,
# [B].
KeysValues = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]


@dataclass
class Step:
    """What all layers of one forward pass share."""

    rope: dict[str, Tables | None]  # by kind of layer
    cache: Cache | None = None
    n_new: torch.Tensor | None = None  # [B]: how many of the T tokens are real, in a ragged batch
    shared: dict[int, KeysValues] = field(default_factory=dict)  # by the layer that made them


class GroupedQueryAttention(nn.Module):
    """N query heads over K shared KV heads; with a window, over the last keys only ("sliding")."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        c = self.config = config
        self.layer, self.kind, self.source = layer, c.mixers[layer], c.source(layer)
        self.is_read_later = any(
            c.source(later) == layer for later in range(layer + 1, c.L)
        )  # else nothing is kept
        self.window = c.window if self.kind == "sliding" else None
        self.q_proj = nn.Linear(c.D, c.N * c.H, bias=c.qkv_bias)
        if self.source == layer:  # else it reads the keys and values of an earlier layer
            self.k_proj = nn.Linear(c.D, c.K * c.H, bias=c.qkv_bias)
            self.v_proj = nn.Linear(c.D, c.K * c.H, bias=c.qkv_bias)
        self.o_proj = nn.Linear(c.N * c.H, c.D, bias=c.o_bias)
        if c.qk_norm:
            self.q_norm = RMSNorm(c.H, c)
            if self.source == layer:
                self.k_norm = RMSNorm(c.H, c)

    def forward(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """x: [B, T, D] → [B, T, D]; with a cache, the T tokens also see what it holds, and are
        appended to it."""
        c = self.config
        B, T, _ = x.shape
        q = self.q_proj(x).view(B, T, c.N, c.H)  # [B, T, N, H]
        q = self._turn(self.q_norm(q) if c.qk_norm else q, step)
        found = (
            self._keys_values(x, step) if self.source == self.layer else step.shared[self.source]
        )
        if self.is_read_later:
            step.shared[self.layer] = found
        k, v, starts, lengths = found  # [B, S, K, H]
        scores = {"scale": c.score_scale, "softcap": c.score_cap}
        if c.causal:
            out = causal_attention(
                q, k, v, lengths=lengths, starts=starts, window=self.window, **scores
            )
        else:
            out = full_attention(q, k, v, **scores)  # [B, T, N, H]
        return self.o_proj(out.reshape(B, T, c.N * c.H))  # type: ignore[no-any-return]  # [B, T, D]

    def _keys_values(self, x: torch.Tensor, step: Step) -> KeysValues:
        """Keys and values of the T tokens, and of those that the cache holds."""
        c = self.config
        B, T, _ = x.shape
        k = self.k_proj(x).view(B, T, c.K, c.H)  # [B, T, K, H]
        v = self.v_proj(x).view(B, T, c.K, c.H)  # [B, T, K, H]
        k = self._turn(self.k_norm(k) if c.qk_norm else k, step)
        if step.cache is None:
            return k, v, None, None
        if isinstance(step.cache, RaggedKVCache):
            return step.cache.append(self.layer, k, v, step.n_new)
        return *step.cache.append(self.layer, k, v), None, None

    def _turn(self, heads: torch.Tensor, step: Step) -> torch.Tensor:
        """RoPE, where there is one."""
        tables = step.rope[self.kind]
        return (
            heads
            if tables is None
            else apply_rope(heads, *tables, pairing=self.config.rope_pairing)
        )
