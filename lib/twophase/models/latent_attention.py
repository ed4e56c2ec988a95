"""Multi-head latent attention as a layer (DeepSeek-V2, arXiv 2405.04434, section 2.1 and equations
37 to 47).

Parameter names and the order of rows are those of DeepSeek's checkpoints on Hugging Face.
"""

import torch
from torch import nn

from twophase.kernels.latent_attention import absorbing_is_cheaper, attend_latents, attend_unfolded
from twophase.kernels.rope import apply_rope
from twophase.models.config import Config
from twophase.models.linear import Linear
from twophase.models.norm import RMSNorm
from twophase.models.step import Step
from twophase.theory.sizes import LatentAttention as Sizes

# DeepSeek's code gives the norms of the two latents no eps, so they have its default, whatever
# `rms_norm_eps` says.
LATENT_NORM_EPS = 1e-6


class UpProjection(nn.Linear):
    """From a latent to the keys and values of all heads, R → N·(nope_dim + v_dim): the rows of a
    head are its key's, its value's.

    Called, it unfolds latents. `absorb` and `unfold` are its two halves, moved to the queries and
    past the sum. What takes its place may lack these two: then the layer always unfolds.
    """

    def __init__(self, N: int, sizes: Sizes) -> None:
        super().__init__(sizes.R, N * (sizes.nope_dim + sizes.v_dim), bias=False)
        self.N, self.sizes = N, sizes

    def absorb(self, q_nope: torch.Tensor) -> torch.Tensor:
        """The queries as they meet latents: [B, T, N, nope_dim] → [B, T, N, R]."""
        return torch.einsum("btnd,ndr->btnr", q_nope, self._heads()[:, : self.sizes.nope_dim])

    def unfold(self, summed: torch.Tensor) -> torch.Tensor:
        """The values in weighted sums of latents: [B, T, N, R] → [B, T, N, v_dim]."""
        return torch.einsum("btnr,ndr->btnd", summed, self._heads()[:, self.sizes.nope_dim :])

    def _heads(self) -> torch.Tensor:
        """The weight by head: a view [N, nope_dim + v_dim, R]."""
        return self.weight.view(self.N, -1, self.sizes.R)  # [N, nope_dim + v_dim, R]


class LatentAttention(nn.Module):
    """N heads whose keys and values all come from one latent per token, plus one rotated key that
    they share.

    `absorbed` says how: True, scores are taken against the latents; False, keys and values are
    unfolded from them; None (the default) takes what is cheaper where there is a cache, absorbed
    for few queries over many positions (decode, or a few drafted tokens), else unfolds.
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
            self.q_proj = Linear(c.D, q_width)
        else:
            self.q_a_proj = Linear(c.D, m.q_rank, c.qkv_bias)
            self.q_a_layernorm = latent_norm(m.q_rank, c)
            self.q_b_proj = Linear(m.q_rank, q_width)
        self.kv_a_proj_with_mqa = Linear(c.D, m.R + m.rope_dim, c.qkv_bias)
        self.kv_a_layernorm = latent_norm(m.R, c)
        self.kv_b_proj = UpProjection(c.N, m)
        self.o_proj = Linear(c.N * m.v_dim, c.D, c.o_bias)

    def forward(self, x: torch.Tensor, step: Step) -> torch.Tensor:
        """x: [B, T, D] → [B, T, D]; with a cache, the T tokens also see what it holds."""
        m, N, span = self.sizes, self.config.N, step.span
        B, T, _ = x.shape
        q_nope, q_rope = self._queries(x, step)  # [B, T, N, nope_dim], [B, T, N, rope_dim]
        latent, k_rope = self._latents(x, step)  # [B, T, R], [B, T, rope_dim]
        store = step.latents(self.layer)
        if store is not None:
            store.write(latent, k_rope, span)
        scale = self.config.score_scale or (m.nope_dim + m.rope_dim) ** -0.5
        if self._absorbs(span.end if store else T, T, step):
            q_latent = self.kv_b_proj.absorb(q_nope)  # [B, T, N, R]
            if store is not None:
                summed = store.attend(q_latent, q_rope, span, scale=scale)  # [B, T, N, R]
            else:
                summed = attend_latents(
                    q_latent, q_rope, latent, k_rope, scale=scale, mask=span.mask_of_all()
                )  # [B, T, N, R]
            out = self.kv_b_proj.unfold(summed)  # [B, T, N, v_dim]
        else:
            if store is not None:
                latent, k_rope = (held.to(x.dtype) for held in store.read(span))  # [B, S, ...]
            heads = self.kv_b_proj(latent).view(B, -1, N, m.nope_dim + m.v_dim)  # [B, S, N, ...]
            k_nope, v = heads.split([m.nope_dim, m.v_dim], dim=-1)
            out = attend_unfolded(
                q_nope, q_rope, k_nope, k_rope, v, scale=scale, mask=span.mask_of_all()
            )  # [B, T, N, v_dim]
        return self.o_proj(out.reshape(B, T, N * m.v_dim))  # type: ignore[no-any-return]

    def _absorbs(self, S: int, T: int, step: Step) -> bool:
        """Whether scores are taken against the latents."""
        m = self.sizes
        if not hasattr(self.kv_b_proj, "absorb"):
            return False
        if step.in_pages:  # unfolded keys of ragged sequences would have to be padded
            return True
        if self.absorbed is not None or step.cache is None:
            return bool(self.absorbed)
        return T == 1 or absorbing_is_cheaper(T, S, m.R, m.nope_dim, m.rope_dim, m.v_dim)

    def _queries(self, x: torch.Tensor, step: Step) -> tuple[torch.Tensor, torch.Tensor]:
        """The queries' parts: [B, T, N, nope_dim] and, rotated, [B, T, N, rope_dim]."""
        m = self.sizes
        if m.q_rank is None:
            q = self.q_proj(x)
        else:
            q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        q = q.view(*x.shape[:2], self.config.N, -1)  # [B, T, N, nope_dim + rope_dim]
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
        if tables is None:
            return heads
        return apply_rope(heads, *tables, pairing=self.config.rope_pairing)


def latent_norm(width: int, config: Config) -> RMSNorm:
    """The norm of a latent, with DeepSeek's eps."""
    norm = RMSNorm(width, config)
    norm.eps = LATENT_NORM_EPS
    return norm
