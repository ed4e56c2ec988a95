"""Multi-head latent attention as a layer (DeepSeek-V2, arXiv 2405.04434, section 2.1 and equations
37 to 47).

Parameter names and the order of rows are those of DeepSeek's checkpoints on Hugging Face.
"""

import torch
from torch import nn

from twophase.kernels.latent_attention import LatentCache, absorbed_attention, expanded_attention
from twophase.kernels.rope import apply_rope
from twophase.models.attention import Cache, Step
from twophase.models.cache import LayerCaches
from twophase.models.config import Config
from twophase.models.norm import RMSNorm

# DeepSeek's code gives the norms of the two latents no eps, so they have its default, whatever
# `rms_norm_eps` says.
LATENT_NORM_EPS = 1e-6


class LatentAttention(nn.Module):
    """N heads whose keys and values all come from one latent per token, plus one rotated key that
    they share.

    `absorbed` says how: True, scores are taken against the latents; False, keys and values are
    unfolded from them; None (the default) chooses absorbed for a single token that continues a
    cache, and expanded otherwise.
    """

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        c, m = config, config.mla
        if m is None:
            raise ValueError(
                "a latent attention layer needs the sizes in `mla` of its Config; it is None."
            )
        if c.source(layer) != layer:
            raise ValueError(
                f"layer {layer} cannot read the keys of another: latent attention shares no cache."
            )
        self.config, self.layer, self.sizes = c, layer, m
        self.absorbed: bool | None = None
        q_width = c.N * (m.nope_dim + m.rope_dim)
        if m.q_rank is None:
            self.q_proj = nn.Linear(c.D, q_width, bias=False)
        else:
            self.q_a_proj = nn.Linear(c.D, m.q_rank, bias=c.qkv_bias)
            self.q_a_layernorm = latent_norm(m.q_rank, c)
            self.q_b_proj = nn.Linear(m.q_rank, q_width, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(c.D, m.R + m.rope_dim, bias=c.qkv_bias)
        self.kv_a_layernorm = latent_norm(m.R, c)
        self.kv_b_proj = nn.Linear(m.R, c.N * (m.nope_dim + m.v_dim), bias=False)
        self.o_proj = nn.Linear(c.N * m.v_dim, c.D, bias=c.o_bias)

    def forward(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """x: [B, T, D] → [B, T, D]; with a cache, the T tokens also see what it holds, and are
        appended to it."""
        B, T, _ = x.shape
        q_nope, q_rope = self._queries(x, step)  # [B, T, N, nope_dim], [B, T, N, rope_dim]
        latent, k_rope = self._latents(x, step)  # [B, T, R], [B, T, rope_dim]
        if step.cache is not None:
            latent, k_rope = self._store(step.cache).append(
                latent, k_rope
            )  # [B, S, R], [B, S, rope_dim]
        absorbed = (T == 1 and step.cache is not None) if self.absorbed is None else self.absorbed
        attend = absorbed_attention if absorbed else expanded_attention
        out = attend(
            q_nope, q_rope, latent, k_rope, *self.up_projections(), scale=self.config.score_scale
        )
        return self.o_proj(out.reshape(B, T, -1))  # type: ignore[no-any-return]  # [B, T, D]

    def up_projections(self) -> tuple[torch.Tensor, torch.Tensor]:
        """w_uk [N, nope_dim, R] and w_uv [N, v_dim, R], views of kv_b_proj: the rows of a head are
        its key's, its value's."""
        m = self.sizes
        heads = self.kv_b_proj.weight.view(
            self.config.N, m.nope_dim + m.v_dim, m.R
        )  # [N, nope_dim + v_dim, R]
        return heads[:, : m.nope_dim], heads[:, m.nope_dim :]

    def _store(self, cache: Cache) -> LatentCache:
        """This layer's part of the cache."""
        store = cache.stores.get(self.layer) if isinstance(cache, LayerCaches) else None
        if not isinstance(store, LatentCache):
            raise ValueError(
                f"layer {self.layer} keeps latents: it needs a cache from `new_cache` of its own"
                " model."
            )
        return store

    def _queries(self, x: torch.Tensor, step: Step) -> tuple[torch.Tensor, torch.Tensor]:
        """The queries' parts: [B, T, N, nope_dim] and, rotated, [B, T, N, rope_dim]."""
        m = self.sizes
        q = (
            self.q_proj(x)
            if m.q_rank is None
            else self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        )
        q = q.view(
            *x.shape[:2], self.config.N, m.nope_dim + m.rope_dim
        )  # [B, T, N, nope_dim + rope_dim]
        q_nope, q_rope = q.split([m.nope_dim, m.rope_dim], dim=-1)
        return q_nope, self._turn(q_rope, step)

    def _latents(self, x: torch.Tensor, step: Step) -> tuple[torch.Tensor, torch.Tensor]:
        """What the cache keeps of the T tokens: latents [B, T, R], normalized, and keys [B, T,
        rope_dim], rotated."""
        m = self.sizes
        latent, k_rope = self.kv_a_proj_with_mqa(x).split([m.R, m.rope_dim], dim=-1)
        return self.kv_a_layernorm(latent), self._turn(k_rope[:, :, None], step)[:, :, 0]

    def _turn(self, heads: torch.Tensor, step: Step) -> torch.Tensor:
        """RoPE, where there is one. heads: [B, T, N, rope_dim], or [B, T, 1, rope_dim] for the
        shared key."""
        tables = step.rope["mla"]
        return (
            heads
            if tables is None
            else apply_rope(heads, *tables, pairing=self.config.rope_pairing)
        )


def latent_norm(width: int, config: Config) -> RMSNorm:
    """The norm of a latent, with DeepSeek's eps."""
    norm = RMSNorm(width, config)
    norm.eps = LATENT_NORM_EPS
    return norm
