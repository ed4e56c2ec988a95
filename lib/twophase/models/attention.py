"""Grouped-query attention as a layer, with all that its families do differently: windows, biases,
norms, shared keys."""

import torch
from torch import nn

from twophase.kernels.rope import apply_rope
from twophase.models.config import Config
from twophase.models.linear import Linear
from twophase.models.norm import RMSNorm
from twophase.models.step import Step, check_window


class GroupedQueryAttention(nn.Module):
    """N query heads over K shared KV heads; with a window, over the last keys only ("sliding")."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        c = self.config = config
        self.layer, self.kind, self.source = layer, c.mixers[layer], c.source(layer)
        self.has_keys = self.source == layer  # else it reads those of an earlier layer
        self.is_read_later = layer in (c.source(later) for later in range(layer + 1, c.L))
        self.window = c.window if self.kind == "sliding" else None
        self.q_proj = Linear(c.D, c.N * c.H, c.qkv_bias)
        if self.has_keys:
            self.k_proj = Linear(c.D, c.K * c.H, c.qkv_bias)
            self.v_proj = Linear(c.D, c.K * c.H, c.qkv_bias)
        self.o_proj = Linear(c.N * c.H, c.D, c.o_bias)
        if c.qk_norm:
            self.q_norm = RMSNorm(c.H, c)
            if self.has_keys:
                self.k_norm = RMSNorm(c.H, c)

    def forward(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """x: [B, T, D] → [B, T, D]; with a cache, the T tokens also see what it holds."""
        c = self.config
        B, T, _ = x.shape
        q = self.q_proj(x).view(B, T, c.N, c.H)  # [B, T, N, H]
        q = self._turn(self.q_norm(q) if c.qk_norm else q, step)
        store = step.keys_values(self.source, self.is_read_later)
        check_window(store, self.layer, self.window)
        if self.has_keys:
            k = self.k_proj(x).view(B, T, c.K, c.H)  # [B, T, K, H]
            v = self.v_proj(x).view(B, T, c.K, c.H)  # [B, T, K, H]
            store.write(self._turn(self.k_norm(k) if c.qk_norm else k, step), v, step.span)
        out = store.attend(
            q, step.span, window=self.window, scale=c.score_scale, softcap=c.score_cap
        )  # [B, T, N, H]
        return self.o_proj(out.reshape(B, T, c.N * c.H))  # type: ignore[no-any-return]  # [B, T, D]

    def _turn(self, heads: torch.Tensor, step: Step) -> torch.Tensor:
        """RoPE, where there is one."""
        tables = step.rope[self.kind]
        if tables is None:
            return heads
        return apply_rope(heads, *tables, pairing=self.config.rope_pairing)
